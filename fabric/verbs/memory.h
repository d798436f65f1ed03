#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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
  Rights rights{};  ///< as in the verbs, remote write and atomics only with local write
  TouchControl touch = TouchControl::unlimited;
  bool invalidatable = false;  ///< a peer's send may end it
  /// The address that peers use for byte 0; nullopt: one is drawn.
  std::optional<std::uint64_t> base = {};
};

enum class BridgeAccess : std::uint8_t {
  segmented,  ///< the peer's bytes come in cells
  direct,     ///< the peer may store through its window: faster, and what it was granted it may scribble over
};

/// What may be used together: regions, windows and queue pairs of one domain.
class ProtectionDomain : public Handle<detail::DomainObject> {
 public:
  using Handle::Handle;

  /// Memory of the process, which stays its own: it must outlive the region, or be missed (event memory_gone, an error
  /// completion, no fault). Errors: bad_argument (the process may not access it so, or the rights contradict each
  /// other), bad_length (none), no_resources.
  [[nodiscard]] Expected<MemoryRegion> register_memory(std::span<std::byte> memory, const RegionOptions& options);
  [[nodiscard]] Expected<MemoryRegion> register_memory(std::span<std::byte> memory, Rights rights);
  /// The same of pages that need not be neighbours; they have peers' addresses alone. pages: read during the call.
  [[nodiscard]] Expected<MemoryRegion> register_pages(const PageList& pages, const RegionOptions& options);
  /// [offset, offset + bytes) of the bridge's memory (Context::bridge_bytes). Errors: bad_length, bad_argument,
  /// in_use (a peer may still write there: wait for memory_drained), link_down, no_resources.
  [[nodiscard]] Expected<MemoryRegion> register_bridge_memory(std::size_t offset, std::size_t bytes, Rights rights,
                                                              BridgeAccess access = BridgeAccess::direct);
  /// A region for QueuePair::post_register(): nothing yet, room for max_pages. Errors: bad_argument, bad_length,
  /// no_resources.
  [[nodiscard]] Expected<MemoryRegion> allocate_region(std::size_t max_pages);
  /// For QueuePair::post_bind(). Errors: bad_argument, no_resources. Source: S4 (AllocateRKey).
  [[nodiscard]] Expected<MemoryWindow> allocate_window(WindowType type);
  /// Several, all or none. Errors: as above, bad_length (none asked for).
  [[nodiscard]] Expected<std::vector<MemoryWindow>> allocate_windows(WindowType type, std::size_t count);

  /// depth: receives. Errors: bad_argument, bad_length, no_resources.
  [[nodiscard]] Expected<SharedReceiveQueue> create_shared_receive_queue(std::size_t depth);
  /// In state reset. Errors: bad_argument (a queue that is null or foreign, a number not in 1 .. 15, a shared queue of
  /// another domain), bad_length (a limit exceeded), no_resources (also: the number is taken).
  [[nodiscard]] Expected<QueuePair> create_queue_pair(const QueuePairOptions& options);
  /// port: of the peer at the other end of this bridge. Errors: bad_argument (no such port), link_down.
  [[nodiscard]] Expected<AddressHandle> create_address_handle(PortAddress port);
};

/// Other memory or rights under a new tag; what is not given stays.
struct Reregistration {
  const ProtectionDomain* domain = nullptr;
  std::span<std::byte> memory{};
  std::optional<Rights> rights = {};
};

/// Registered memory. Letting go of the handle ends every access at once, that of windows bound to it included. A
/// region of an epoch that is over is void: nothing opens with it.
class MemoryRegion : public Handle<detail::RegionObject> {
 public:
  using Handle::Handle;

  /// Whether its tag opens anything now; of a region registered through a send queue: once that was carried out.
  [[nodiscard]] bool valid() const;
  /// Bytes that its tag opens.
  [[nodiscard]] std::size_t size() const;
  /// Its tag, all requests that are posted taken as carried out.
  [[nodiscard]] Stag tag() const;
  /// For a gather or scatter list. Nothing is checked before the post.
  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t bytes) const;
  /// To send to the peer: all of it, or the first 2^32 - 1 bytes. A null handle gives a key that opens nothing.
  [[nodiscard]] RemoteKey remote_key() const;
  /// Errors: bad_argument, bad_tag (void), bad_length (not inside, or longer than a key can say).
  [[nodiscard]] Expected<RemoteKey> remote_key(std::size_t offset, std::size_t bytes) const;

  /// The own process's access by offset; the only one to bridge memory. Errors: bad_argument (also: the memory is
  /// gone), bad_length (not inside), bad_tag (void, or not registered yet).
  Status load(std::size_t offset, std::span<std::byte> to) const;
  Status store(std::size_t offset, std::span<const std::byte> from);

  /// Regions of register_memory() alone. Errors: those of registering, in_use (windows are bound), not_permitted,
  /// bad_tag (void).
  Status reregister(const Reregistration& change);
  /// As letting go, but refused while windows are bound. Errors: bad_argument, in_use. Source: S3.
  Status deregister();
};

/// A part of a region, opened to peers through a send queue (QueuePair::post_bind) without a system call. S4: RKey.
class MemoryWindow : public Handle<detail::WindowObject> {
 public:
  using Handle::Handle;

  /// Whether its tag opens anything now: bound, and that was carried out.
  [[nodiscard]] bool valid() const;
  /// As allocated; of a null handle type_1.
  [[nodiscard]] WindowType type() const;
  /// All requests that are posted taken as carried out; if one fails, the key opens nothing.
  [[nodiscard]] Stag tag() const;
  [[nodiscard]] RemoteKey remote_key() const;
  /// As the sink of an own read in strict domains.
  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t bytes) const;
};

}  // namespace splitnic::verbs
