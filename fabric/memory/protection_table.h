#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tl/expected.hpp>
#include <unordered_map>
#include <vector>

#include "fabric/memory/protection_entry.h"
#include "fabric/memory/protection_error.h"
#include "fabric/memory/tag_space.h"

namespace splitnic::fabric {

/// Who makes an access. Each side numbers its own requests, so that a request of the peer may have the queue pair and
/// the sequence of an own one.
enum class AccessBy : std::uint8_t {
  peer,       ///< a request of the peer
  answer,     ///< the answer to an own read or atomic
  unstarted,  ///< an own read or atomic that has no sequence yet, so that it has taken nothing
};

/// An access that a queue pair wants to make.
struct Access {
  Stag tag{};
  ProtectionDomain domain{};  ///< the queue pair's
  std::uint64_t bytes = 0;
  Right right = Right::remote_write;
  QpNumber queue_pair{};
  std::uint32_t sequence = 0;  ///< of the request's packet: the same for all its segments and retries
  AccessBy by = AccessBy::peer;
};

/// The memory of an access that passed the checks. Valid until any operation but touch() changes the table. store() and
/// load() return false if the process does not have the memory any more (memory_is_gone).
struct Placement {
  const ProtectionEntry* entry = nullptr;
  const RegionMemory* memory = nullptr;  ///< the entry's, or that of the window's region
  std::uint64_t offset = 0;              ///< of the access's first byte, in `memory`

  [[nodiscard]] bool store(std::span<const std::byte> from) const { return memory->store(offset, from); }
  [[nodiscard]] bool load(std::span<std::byte> to) const { return memory->load(offset, to); }
};

/// How a region may be used. Conflicts: placeable with touch control or invalidatable, because direct stores are not
/// checked; touch control with window binding, because windows would outlive their region.
struct EntryOptions {
  Rights rights{};
  TouchControl touch = TouchControl::unlimited;
  bool placeable = false;
  bool invalidatable = false;              ///< a peer's send may invalidate the tag
  QpNumber queue_pair{};                   ///< the only queue pair that may use it; 0: any of the domain
  std::optional<std::uint64_t> base = {};  ///< the address of byte 0 (0: zero-based); nullopt: drawn at random
  bool named_by_base = false;              ///< this process, too, names bytes by `base`, rather than by pointer
};

/// Registers a region through the send queue. Source: S3 (registration by work request), the verbs' fast registration.
struct FastRegister {
  Stag tag{};            ///< the current tag
  std::uint8_t key = 0;  ///< the instance of the new tag
  PageList pages{};
  EntryOptions options{};  ///< not placeable
};

/// BindRKey. Source: S4 (RKey binding), the verbs' windows.
struct Bind {
  Stag window{};  ///< the current tag
  Stag region{};
  std::uint64_t address = 0;  ///< of the first byte, as a peer would address the region (see address_of())
  std::uint64_t length = 0;   ///< 0: UnbindRKey; the region is ignored
  Rights rights{};            ///< remote rights. Remote read needs the region's local read, the others its local write
  TouchControl touch = TouchControl::unlimited;
  std::uint8_t key = 0;       ///< type 2: the instance of the new tag. Type 1 takes the next instance
  bool zero_based = false;    ///< type 2: peers address the first byte as 0 instead of `address`
  bool invalidatable = true;  ///< type 2: a peer's send may invalidate the tag
};

/// What reregister() changes; fields without a value stay as they are.
struct Reregister {
  std::optional<ProtectionDomain> domain;
  std::optional<RegionMemory> memory;  ///< a new base is drawn, if there is none
  std::optional<std::uint64_t> base;   ///< of the new memory
  std::optional<Rights> rights;
  bool keeps_tag = false;  ///< without new memory: the tag stays what it is
};

/// The queue pair that binds, fast-registers or invalidates.
struct Consumer {
  ProtectionDomain domain{};
  QpNumber queue_pair{};
};

/// A user of entries that keeps at it after its call has returned, as a DMA engine does.
class EntryWatch {
 public:
  virtual ~EntryWatch() = default;
  /// The entry at this index is about to end, or to change: whoever stores into its memory has stopped when this
  /// returns. Called from within the table's functions; must not call the table.
  virtual void entry_ends(std::uint32_t index) = 0;
};

/// The owner's authoritative table of what its tags allow (TPT). Entries do not move; a lookup is one index. The cost
/// of an operation does not depend on the number of entries, except for clear(). An operation that is refused leaves
/// the table unchanged.
/// Thread: the adapter's owner. Source: S3 Figs. 13 to 18, S4 (RKeys); design, "Protection".
class ProtectionTable {
 public:
  template <class T>
  using Checked = tl::expected<T, ProtectionError>;

  /// capacity: the maximum of tags. first_index: of the node's tags, this table has indices from here on; a multiple of
  /// TagSpace::slots_for(capacity).
  ProtectionTable(std::size_t capacity, RandomSource& random, std::uint32_t first_index = 0);

  /// Told of each entry that ends from now on; lent.
  void set_watch(EntryWatch& watch) { watch_ = &watch; }
  /// Sets the rules for entries made in the domain from now on; the default is DomainRules::verbs.
  void set_rules(ProtectionDomain domain, DomainRules rules);
  /// Removes a domain that has no tags.
  void forget_domain(ProtectionDomain domain);
  /// Number of tags in the domain.
  [[nodiscard]] std::size_t tags_in(ProtectionDomain domain) const;
  /// Memory that the table takes, full or empty, without the translations of regions (one per region).
  [[nodiscard]] std::size_t memory_bytes() const { return entries_.size() * kBytesPerSlot; }
  /// The same of a table with this capacity.
  [[nodiscard]] static std::size_t memory_bytes(std::size_t capacity) {
    return TagSpace::slots_for(capacity) * kBytesPerSlot;
  }
  /// Ends what lies in the bridge's memory when a path's epoch is over: its regions are void, windows on them are not
  /// bound any more. indices: of all tags that were such regions at some time. Walks the table only if windows are
  /// bound to one of them.
  void end_bridge_memory(PathNumber path, std::span<const std::uint32_t> indices);

  /// Registers a plain region under a new tag; nullopt: the table is full.
  [[nodiscard]] std::optional<Stag> insert(ProtectionDomain domain, const RegionMemory& memory, Rights rights,
                                           bool placeable);
  /// Registers a region under a new tag. Errors: table_full, options_conflict, bad_range (the given base).
  [[nodiscard]] Checked<Stag> register_region(ProtectionDomain domain, const RegionMemory& memory,
                                              const EntryOptions& options);
  /// Changes a region, whose tag takes its next instance, unless the change keeps it. Errors: those of naming a tag
  /// (invalid_stag, wrong_kind, stale_stag), windows_bound, options_conflict (also for a placeable region: deregister
  /// it and register it again).
  [[nodiscard]] Checked<Stag> reregister(Stag region, const Reregister& change);
  /// Ends a region and frees its tag. Errors: those of naming a tag, windows_bound.
  [[nodiscard]] Checked<void> deregister(Stag region);

  /// Allocates a tag for fast_register(), not valid yet, with room for max_pages.
  [[nodiscard]] Checked<Stag> allocate_region(ProtectionDomain domain, std::size_t max_pages);
  /// Makes an allocated region valid. Errors: those of naming a tag, stag_not_associated, already_valid,
  /// options_conflict, bad_page_list, bad_range.
  [[nodiscard]] Checked<Stag> fast_register(const FastRegister& request, const Consumer& consumer);

  /// AllocateRKey: allocates windows of the domain, not bound yet; all or none. kind: one of the two window types.
  [[nodiscard]] Checked<void> allocate_windows(ProtectionDomain domain, EntryKind kind, std::span<Stag> tags);
  /// BindRKey, and UnbindRKey with length 0. Returns the window's new tag. The window's errors come first: those of
  /// naming a tag, stag_not_associated, wrong_queue_pair, already_valid, options_conflict. Then come the region's
  /// errors: those of an access, in the order of the checks, with binding_not_allowed for the right.
  [[nodiscard]] Checked<Stag> bind(const Bind& request, const Consumer& consumer);
  /// Unbinds a window that a posted request is about to bind elsewhere: it keeps its tag, by which that request names
  /// it. Peers who know the tag reach nothing by it, and the next bind gives a new one. Errors: those of naming a tag.
  [[nodiscard]] Checked<void> unbind_for_rebind(Stag window);
  /// DeallocateRKey, for bound and unbound windows. Errors: those of naming a tag.
  [[nodiscard]] Checked<void> deallocate(Stag window);

  /// Invalidates for a work request: fast-registered regions and type 2 windows. The tag stays allocated. Errors, in
  /// this order: invalid_stag, wrong_kind, stag_not_associated, stale_stag, wrong_queue_pair, cannot_invalidate,
  /// windows_bound.
  [[nodiscard]] Checked<void> invalidate_local(Stag tag, const Consumer& consumer);
  /// Invalidates for a peer's message that names the tag: any region or type 2 window that is invalidatable. Errors as
  /// above.
  [[nodiscard]] Checked<void> invalidate_remote(Stag tag, const Consumer& consumer);

  /// Registers the entry of an iSCSI command: zero-based; send_request is kept as its base. Errors: table_full,
  /// options_conflict (rights other than remote read or write). Source: S3 Fig. 17A.
  [[nodiscard]] Checked<Stag> register_iscsi(const Consumer& consumer, const RegionMemory& memory, Rights rights,
                                             std::uint64_t send_request);
  /// Ends the entry after the response has arrived, and returns its send request. Errors: those of identifying an
  /// access.
  [[nodiscard]] Checked<std::uint64_t> finish_iscsi(Stag tag, const Consumer& consumer);

  /// The entry of exactly this tag, valid or not; null: there is none.
  [[nodiscard]] const ProtectionEntry* find(Stag tag) const;
  /// The entry at this index, valid or not, whatever its instance; null: out of range or reserved. Only for the tag's
  /// owner, who keeps the index while binding and registering change the instance. Do not use it to check a tag that
  /// anybody else named.
  [[nodiscard]] const ProtectionEntry* at(std::uint32_t index) const;
  /// The address that peers use for a byte of a region of the process's memory.
  [[nodiscard]] std::optional<std::uint64_t> address_of(Stag region, const std::byte* byte) const;

  /// Checks a peer's write, read request or atomic to [address, address + access.bytes). Source: S3 Figs. 18A, 18B.
  [[nodiscard]] Checked<Placement> check_remote(const Access& access, std::uint64_t address) const;
  /// Checks a segment of the response to a read request of this end; access.right is ignored. The sink is a region with
  /// local write; in strict domains it is a window with remote write (S3 Fig. 18B).
  [[nodiscard]] Checked<Placement> check_response(const Access& access, std::uint64_t address) const;
  /// Checks R2T (remote read) and Data-In (remote write) of an iSCSI command, for a queue pair in iSCSI mode. There is
  /// none yet; it would also compare the message with its command (check g). Source: S3 Fig. 17B, checks a to f.
  [[nodiscard]] Checked<Placement> check_iscsi(const Access& access, std::uint64_t offset) const;
  /// Checks an access of this process to its own memory, by its own address. Source: S3 Fig. 15.
  [[nodiscard]] Checked<Placement> check_local(const Access& access, const std::byte* address) const;
  /// Checks an access of this process by the address that peers use, the only address of pages and bridge memory.
  [[nodiscard]] Checked<Placement> check_local(const Access& access, std::uint64_t address) const;

  /// Applies touch control to a segment of a checked remote access or response. Call it for each segment before the
  /// segment is placed; an atomic is one last segment. Reads: the request takes a one-shot entry (last not set), and
  /// the end of the response ends the entry (last set); reads do not touch a one-touch entry.
  [[nodiscard]] TouchAction touch(const Access& access, const SegmentPosition& segment);
  /// Call when a queue pair ends. Ends the one-shot entry if an operation of that queue pair has taken it.
  void end_taken(Stag tag, QpNumber taker);
  /// Call when the stream has advanced. Ends the one-touch entry if the stream has caught up with the remembered
  /// segment. True: the entry waits for no segment any more.
  bool catch_up(Stag tag, std::uint32_t next_expected);

 private:
  static constexpr std::size_t kBytesPerSlot = sizeof(ProtectionEntry) + TagSpace::kBytesPerSlot;

  struct Domain {
    DomainRules rules = DomainRules::verbs;
    std::size_t tags = 0;
  };
  enum class Side : std::uint8_t { local, remote, response, iscsi };

  [[nodiscard]] static bool usable(const ProtectionEntry& entry, Side side);
  [[nodiscard]] Checked<const ProtectionEntry*> identify(const Access& access, Side side) const;
  [[nodiscard]] Checked<void> range(const ProtectionEntry& entry, const Access& access, std::uint64_t address) const;
  [[nodiscard]] Checked<Placement> check(const Access& access, Side side, std::uint64_t address) const;
  [[nodiscard]] const RegionMemory& memory_of(const ProtectionEntry& entry) const;
  [[nodiscard]] TouchAction take(ProtectionEntry& entry, const Access& access, bool last);

  [[nodiscard]] Checked<ProtectionEntry*> named(Stag tag, bool (*is_kind)(EntryKind));
  [[nodiscard]] Checked<ProtectionEntry*> named_by(Stag tag, bool (*is_kind)(EntryKind), const Consumer& consumer);
  [[nodiscard]] Checked<ProtectionEntry*> to_invalidate(Stag tag, const Consumer& consumer);
  [[nodiscard]] Checked<const ProtectionEntry*> bindable(const Bind& request, const Consumer& consumer) const;
  [[nodiscard]] Checked<ProtectionEntry*> allocate(ProtectionDomain domain, EntryKind kind);
  [[nodiscard]] Stag unbind(ProtectionEntry& window);
  void describe(ProtectionEntry& entry, const EntryOptions& options);
  void invalidate(ProtectionEntry& entry);
  void forget(std::uint32_t index);
  void end_uses(const ProtectionEntry& entry) {
    if (watch_ != nullptr) watch_->entry_ends(index_of(entry));
  }
  /// index: one of this table.
  [[nodiscard]] const ProtectionEntry& entry_at(std::uint32_t index) const { return entries_[tags_.slot_of(index)]; }
  [[nodiscard]] ProtectionEntry& entry_at(std::uint32_t index) { return entries_[tags_.slot_of(index)]; }
  [[nodiscard]] std::uint32_t index_of(const ProtectionEntry& entry) const;
  [[nodiscard]] Stag tag_of(const ProtectionEntry& entry) const;

  RandomSource& random_;
  TagSpace tags_;
  std::vector<ProtectionEntry> entries_;
  std::unordered_map<ProtectionDomain, Domain> domains_;
  EntryWatch* watch_ = nullptr;
};

}  // namespace splitnic::fabric
