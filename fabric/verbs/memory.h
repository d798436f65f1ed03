#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fabric/verbs/path.h"
#include "fabric/verbs/remote.h"
#include "fabric/verbs/types.h"

namespace splitnic::verbs {

class AddressHandle;
class MemoryRegion;
class MemoryWindow;
class QueuePair;
class SharedReceiveQueue;
struct QueuePairOptions;

enum class WindowType : std::uint8_t {
  type_1,  ///< usable by all queue pairs of the domain; each binding gives a new tag
  type_2,  ///< belongs to the queue pair that binds it; the binder chooses the key; can be invalidated
};

/// The most pages of one region that is registered by its pages.
inline constexpr std::size_t kMaxPages = std::size_t{1} << 20U;

struct RegionOptions {
  Rights rights{};  ///< as in libibverbs, remote write and atomics need local write
  TouchControl touch = TouchControl::unlimited;
  bool invalidatable = false;  ///< a peer's send may invalidate the tag
  /// The address that peers use for byte 0; nullopt: drawn at random.
  std::optional<std::uint64_t> base = {};
};

enum class BridgeAccess : std::uint8_t {
  segmented,  ///< the peer's bytes arrive in cells
  direct,     ///< the peer may store through its peer window: faster, but the stores are not checked
};

/// Regions, windows and queue pairs of one domain can be used together.
class ProtectionDomain : public Handle<detail::DomainObject> {
 public:
  using Handle::Handle;

  /// Registers memory of the process, which keeps owning it. The memory should outlive the region; if it does not, an
  /// access to it ends in the event memory_gone and an error completion, not in a fault. Errors: bad_argument (the
  /// process may not access the memory so, or the rights contradict each other), bad_length (no bytes), no_resources.
  [[nodiscard]] Expected<MemoryRegion> register_memory(std::span<std::byte> memory, const RegionOptions& options);
  [[nodiscard]] Expected<MemoryRegion> register_memory(std::span<std::byte> memory, Rights rights);
  /// The same for pages that need not be contiguous. They have only the addresses that peers use. pages: read during
  /// the call.
  [[nodiscard]] Expected<MemoryRegion> register_pages(const PageList& pages, const RegionOptions& options);
  /// Registers the memory of another region of this context once more, under a tag of its own: with its own rights,
  /// base and touch control, in this domain. Both share one translation (the list of the pages), which lasts as long as
  /// either of them; neither needs the other afterwards. Errors: bad_argument (also: local write, which `other` has
  /// not), bad_tag (`other` opens nothing any more), not_permitted (`other` is bridge memory, or registered through a
  /// send queue), no_resources. Source: S3 Fig. 14.
  [[nodiscard]] Expected<MemoryRegion> register_shared(const MemoryRegion& other, const RegionOptions& options);
  /// Registers [offset, offset + bytes) of the memory of the path's bridge (Path::bridge_bytes). Errors: bad_length,
  /// bad_argument, in_use (a peer may still write there: wait for memory_drained), link_down, no_resources.
  [[nodiscard]] Expected<MemoryRegion> register_bridge_memory(const Path& path, std::size_t offset, std::size_t bytes,
                                                              Rights rights,
                                                              BridgeAccess access = BridgeAccess::direct);
  /// A region without memory for QueuePair::post_register(), with room for max_pages. Errors: bad_argument, bad_length,
  /// no_resources.
  [[nodiscard]] Expected<MemoryRegion> allocate_region(std::size_t max_pages);
  /// A window for QueuePair::post_bind(). Errors: bad_argument, no_resources. Source: S4 (AllocateRKey).
  [[nodiscard]] Expected<MemoryWindow> allocate_window(WindowType type);
  /// Several windows, all or none. Errors: as above, bad_length (count is 0).
  [[nodiscard]] Expected<std::vector<MemoryWindow>> allocate_windows(WindowType type, std::size_t count);

  /// depth: receives. Errors: bad_argument, bad_length, no_resources.
  [[nodiscard]] Expected<SharedReceiveQueue> create_shared_receive_queue(std::size_t depth);
  /// A queue pair in state reset. Errors: bad_argument (a queue that is null or of another context, a number not in 2
  /// .. 15, a shared queue of another domain), bad_length (a limit is exceeded), no_resources (also: the number is
  /// taken).
  [[nodiscard]] Expected<QueuePair> create_queue_pair(const QueuePairOptions& options);
  /// Of the path's peer, in its present life. Errors: bad_argument (not a path of this context), link_down,
  /// no_resources.
  [[nodiscard]] Expected<AddressHandle> create_address_handle(const Path& path);
  /// Of a multicast group, for datagrams to its members (Context::add_group_member()). Errors: bad_argument (not a
  /// group), no_resources.
  [[nodiscard]] Expected<AddressHandle> create_group_handle(const Gid& group);
};

/// Changes of a region, under a new tag; fields that are not set stay as they are.
struct Reregistration {
  const ProtectionDomain* domain = nullptr;
  std::span<std::byte> memory{};
  std::optional<Rights> rights = {};
};

/// Registered memory. Destroying the handle ends every access at once, including access by windows bound to the region.
/// A region of the bridge's memory is void after a new epoch: its tag opens nothing. Other regions stay valid.
class MemoryRegion : public Handle<detail::RegionObject> {
 public:
  using Handle::Handle;

  /// Whether the tag opens anything now. A region for the send queue is valid once its registration was carried out.
  [[nodiscard]] bool valid() const;
  /// Bytes that the tag opens.
  [[nodiscard]] std::size_t size() const;
  /// The tag that the region will have once all posted requests have been carried out.
  [[nodiscard]] Stag tag() const;
  /// For a gather or scatter list. Nothing is checked before the post.
  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t bytes) const;
  /// The key to send to the peer, for the whole region or its first 2^32 - 1 bytes. The key of a null handle opens
  /// nothing.
  [[nodiscard]] RemoteKey remote_key() const;
  /// Errors: bad_argument, bad_tag (void), bad_length (not inside, or more than 2^32 - 1 bytes).
  [[nodiscard]] Expected<RemoteKey> remote_key(std::size_t offset, std::size_t bytes) const;

  /// This process's own access by offset, the only one to bridge memory. Errors: bad_argument (also: the memory is
  /// gone), bad_length (not inside), bad_tag (void, or not registered yet).
  Status load(std::size_t offset, std::span<std::byte> to) const;
  Status store(std::size_t offset, std::span<const std::byte> from);

  /// Changes a region; only for regions of register_memory(). Errors: those of registering, in_use (windows are bound),
  /// not_permitted, bad_tag (void).
  Status reregister(const Reregistration& change);
  /// Ends the region as destroying the handle does, but is refused while windows are bound. Errors: bad_argument,
  /// in_use. Source: S3.
  Status deregister();
};

/// A part of a region, opened to peers through a send queue (QueuePair::post_bind) without a system call. S4: RKey.
class MemoryWindow : public Handle<detail::WindowObject> {
 public:
  using Handle::Handle;

  /// Whether the tag opens anything now: the window is bound, and the bind was carried out.
  [[nodiscard]] bool valid() const;
  /// The type that was allocated; type_1 in a null handle.
  [[nodiscard]] WindowType type() const;
  /// The tag and key that the window will have once all posted requests have been carried out; if one of them fails,
  /// the key opens nothing.
  [[nodiscard]] Stag tag() const;
  [[nodiscard]] RemoteKey remote_key() const;
  /// A sink for a read of this process in strict domains.
  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t bytes) const;
};

}  // namespace splitnic::verbs
