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

/// What somebody wants to do with memory.
struct Access {
  Stag tag{};
  ProtectionDomain domain{};  ///< of the queue pair that asks
  std::uint64_t bytes = 0;
  Right right = Right::remote_write;
  QpNumber queue_pair{};       ///< that asks
  std::uint32_t sequence = 0;  ///< of the packet that asks: one and the same for all segments and retries of it
};

/// Where a checked access leads. Good until the table changes in any way but touch(). The moves answer false where the
/// process has no such memory any more (memory_is_gone).
struct Placement {
  const ProtectionEntry* entry = nullptr;
  const RegionMemory* memory = nullptr;  ///< of the entry, or of the region that a window indexes
  std::uint64_t offset = 0;              ///< of the access's first byte, in memory

  [[nodiscard]] bool store(std::span<const std::byte> from) const { return memory->store(offset, from); }
  [[nodiscard]] bool load(std::span<std::byte> to) const { return memory->load(offset, to); }
};

/// How a region may be used. Conflicts: placeable with touch control or invalidatable, as direct stores are not
/// checked; touch control with window binding, as windows would outlive their region.
struct EntryOptions {
  Rights rights{};
  TouchControl touch = TouchControl::unlimited;
  bool placeable = false;
  bool invalidatable = false;              ///< a peer's send may name the tag and end it
  QpNumber queue_pair{};                   ///< the only one that may use it; 0: any of the domain
  std::optional<std::uint64_t> base = {};  ///< the address of byte 0 (0: zero-based); nullopt: one is drawn
};

/// A region through the send queue. Source: S3 (registration by work request), the verbs' fast registration.
struct FastRegister {
  Stag tag{};            ///< as it is now
  std::uint8_t key = 0;  ///< the instance that it gets
  PageList pages{};
  EntryOptions options{};  ///< not placeable
};

/// BindRKey. Source: S4 (RKey binding), the verbs' windows.
struct Bind {
  Stag window{};  ///< as it is now
  Stag region{};
  std::uint64_t address = 0;  ///< of the first byte, as a peer would address the region (see address_of())
  std::uint64_t length = 0;   ///< 0: UnbindRKey; the region is not looked at
  Rights rights{};            ///< remote ones. Reading builds on the region's local read, the others on local write
  TouchControl touch = TouchControl::unlimited;
  std::uint8_t key = 0;       ///< type 2: the instance that the window gets. Type 1 takes the next
  bool zero_based = false;    ///< type 2: peers address the first byte as 0 instead of `address`
  bool invalidatable = true;  ///< type 2: a peer's send may name the tag and end it
};

/// What reregister() changes; the rest stays.
struct Reregister {
  std::optional<ProtectionDomain> domain;
  std::optional<RegionMemory> memory;  ///< a new base is drawn
  std::optional<Rights> rights;
};

/// Who asks for what a queue pair does: binds, fast-registers, invalidates.
struct Consumer {
  ProtectionDomain domain{};
  QpNumber queue_pair{};
};

/// The owner's authoritative table of what its tags allow (TPT). Entries stay where they are; looking one up is one
/// index, and nothing but clear() takes time by the number of entries. A refusal leaves the table as it was.
/// Thread: the adapter's owner. Source: S3 Figs. 13 to 18, S4 (RKeys); design, "Protection".
class ProtectionTable {
 public:
  template <class T>
  using Checked = tl::expected<T, ProtectionError>;

  /// capacity: tags at most.
  ProtectionTable(std::size_t capacity, RandomSource& random);

  /// For entries made in the domain from now on; verbs unless said.
  void set_rules(ProtectionDomain domain, DomainRules rules);
  /// The domain is no more, and has no tags.
  void forget_domain(ProtectionDomain domain);
  /// Tags that the domain has.
  [[nodiscard]] std::size_t tags_in(ProtectionDomain domain) const;
  /// Memory that the table takes, whatever is in it. The translations of regions come on top: one each, shared or not.
  [[nodiscard]] std::size_t memory_bytes() const {
    return entries_.size() * (sizeof(ProtectionEntry) + TagSpace::kBytesPerSlot);
  }
  /// Forgets every entry.
  void clear();

  /// A plain region under a new tag; nullopt: the table is full.
  [[nodiscard]] std::optional<Stag> insert(ProtectionDomain domain, const RegionMemory& memory, Rights rights,
                                           bool placeable);
  /// Errors: table_full, options_conflict, bad_range (the given base).
  [[nodiscard]] Checked<Stag> register_region(ProtectionDomain domain, const RegionMemory& memory,
                                              const EntryOptions& options);
  /// The tag takes its next instance. Errors: those of naming a tag (invalid_stag, wrong_kind, stale_stag),
  /// windows_bound, options_conflict (also: a placeable region, which is deregistered and registered instead).
  [[nodiscard]] Checked<Stag> reregister(Stag region, const Reregister& change);
  /// Errors: those of naming a tag, windows_bound.
  [[nodiscard]] Checked<void> deregister(Stag region);

  /// A tag for fast_register(), not valid yet, with room for max_pages.
  [[nodiscard]] Checked<Stag> allocate_region(ProtectionDomain domain, std::size_t max_pages);
  /// Makes an allocated region valid. Errors: those of naming a tag, stag_not_associated, already_valid,
  /// options_conflict, bad_page_list, bad_range.
  [[nodiscard]] Checked<Stag> fast_register(const FastRegister& request, const Consumer& consumer);

  /// AllocateRKey: windows of the domain, not bound yet; all or none. kind: one of the two window types.
  [[nodiscard]] Checked<void> allocate_windows(ProtectionDomain domain, EntryKind kind, std::span<Stag> tags);
  /// BindRKey and, with length 0, UnbindRKey; answers the window's tag from now on. The window's errors come first:
  /// those of naming a tag, stag_not_associated, wrong_queue_pair, already_valid, options_conflict; then the region's
  /// in the order of the checks: any of an access, with binding_not_allowed for the right.
  [[nodiscard]] Checked<Stag> bind(const Bind& request, const Consumer& consumer);
  /// DeallocateRKey, bound or not. Errors: those of naming a tag.
  [[nodiscard]] Checked<void> deallocate(Stag window);

  /// By a work request: fast-registered regions and type 2 windows. The tag stays allocated. Errors: invalid_stag,
  /// wrong_kind, stag_not_associated, stale_stag, wrong_queue_pair, cannot_invalidate, windows_bound, in this order.
  [[nodiscard]] Checked<void> invalidate_local(Stag tag, const Consumer& consumer);
  /// By a peer's message that names the tag: only what was opened to it, any region or type 2 window. Errors as above.
  [[nodiscard]] Checked<void> invalidate_remote(Stag tag, const Consumer& consumer);

  /// The entry of an iSCSI command: zero-based; send_request is kept as its base. Errors: table_full,
  /// options_conflict (rights other than remote read or write). Source: S3 Fig. 17A.
  [[nodiscard]] Checked<Stag> register_iscsi(const Consumer& consumer, const RegionMemory& memory, Rights rights,
                                             std::uint64_t send_request);
  /// The response has come: ends the entry, answers its send request. Errors: those of identifying an access.
  [[nodiscard]] Checked<std::uint64_t> finish_iscsi(Stag tag, const Consumer& consumer);

  /// The entry of exactly this tag, valid or not; null: there is none.
  [[nodiscard]] const ProtectionEntry* find(Stag tag) const;
  /// The entry at this index whatever the instance of its tag, valid or not; null: out of range or reserved. For the
  /// tag's owner, as binding and registering change the instance: it says nothing about a tag that somebody else names.
  [[nodiscard]] const ProtectionEntry* at(std::uint32_t index) const;
  /// How peers address a byte of a region of the process's memory.
  [[nodiscard]] std::optional<std::uint64_t> address_of(Stag region, const std::byte* byte) const;

  /// A peer's write, read request or atomic: [address, address + access.bytes). Source: S3 Figs. 18A, 18B.
  [[nodiscard]] Checked<Placement> check_remote(const Access& access, std::uint64_t address) const;
  /// A segment of the data that an own read request asked for; access.right is not looked at. The sink is a region with
  /// local write, in strict domains a window with remote write (S3 Fig. 18B).
  [[nodiscard]] Checked<Placement> check_response(const Access& access, std::uint64_t address) const;
  /// R2T (remote read) and Data-In (remote write) of an iSCSI command. Source: S3 Fig. 17B.
  [[nodiscard]] Checked<Placement> check_iscsi(const Access& access, std::uint64_t offset) const;
  /// The own process's access to memory of its own, by its address. Source: S3 Fig. 15.
  [[nodiscard]] Checked<Placement> check_local(const Access& access, const std::byte* address) const;
  /// The own process's access by the address that peers would use: the only way to pages and bridge memory.
  [[nodiscard]] Checked<Placement> check_local(const Access& access, std::uint64_t address) const;

  /// The touch that a checked remote access or response makes, segment by segment, before it is placed; an atomic is
  /// one last segment. Reads: a one-shot entry is taken by the request (last not set) and ended when its data has gone
  /// out (last set); a one-touch entry is not touched.
  [[nodiscard]] TouchAction touch(const Access& access, const SegmentPosition& segment);
  /// The stream has advanced: ends the one-touch entry if it has caught up with the segment remembered there. True:
  /// nothing is left to wait for.
  bool catch_up(Stag tag, std::uint32_t next_expected);

 private:
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
  [[nodiscard]] std::uint32_t index_of(const ProtectionEntry& entry) const;
  [[nodiscard]] Stag tag_of(const ProtectionEntry& entry) const;

  RandomSource& random_;
  TagSpace tags_;
  std::vector<ProtectionEntry> entries_;
  std::unordered_map<ProtectionDomain, Domain> domains_;
};

}  // namespace splitnic::fabric
