#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "fabric/connect/connection_manager.h"
#include "fabric/verbs/context.h"
#include "fabric/verbs/path.h"
#include "fabric/verbs/queue_pair.h"
#include "fabric/verbs/types.h"

/// Connection management: programs that have a path between them connect queue pairs by service numbers, exchange some
/// bytes of their own, and end connections so that the peer can tell it from a death. See docs/verbs.md.
namespace splitnic::verbs {

using fabric::ConnectionCounters;
using fabric::ConnectionEvent;
using fabric::ConnectionEventKind;
using fabric::ConnectionInfo;
using fabric::ConnectionNumber;
using fabric::ConnectionOptions;
using fabric::ConnectionState;
using fabric::kMaxPrivateBytes;
using fabric::kMaxRequestPrivateBytes;
using fabric::PrivateData;
using fabric::RejectReason;
using fabric::ServiceNumber;

namespace detail {
struct ConnectionsObject;
struct ConnectionObject;
struct ListenerObject;
}  // namespace detail

/// A connection of a queue pair, from its request to its end. Destroying the handle rejects a request and disconnects a
/// connection; the queue pair is in error then. It holds its queue pair.
class Connection : public Handle<detail::ConnectionObject> {
 public:
  using Handle::Handle;

  /// The number in events; 0 in a null handle.
  [[nodiscard]] ConnectionNumber number() const;
  [[nodiscard]] ConnectionState state() const { return info().state; }
  /// What is known: how the connection ended, and the bytes that the peer's program sent last. `ended` in a null
  /// handle.
  [[nodiscard]] ConnectionInfo info() const;

  /// Accepts a request. queue_pair: of this context, in reset or init, acknowledged or not as the peer's is, not for
  /// datagrams; it is connected at once, so post its receives before. Wait for `established` before the first send:
  /// the peer's queue pair is ready then. data: at most kMaxPrivateBytes. Errors: bad_argument, bad_state (the request
  /// does not wait any more; the queue pair cannot be connected), bad_length (also: longer than the path's cells
  /// allow), link_down.
  Status accept(const QueuePair& queue_pair, std::span<const std::byte> data = {});
  /// Refuses a request; the peer's event is `rejected`, by_program. Errors: bad_argument, bad_state, bad_length.
  Status reject(std::span<const std::byte> data = {});
  /// The orderly end. Both queue pairs go to error, and what is posted is flushed: wait for completions before. The
  /// event `disconnected` says that the peer has noticed. Errors: bad_argument, bad_state (neither accepted
  /// nor established), bad_length.
  Status disconnect(std::span<const std::byte> data = {});
};

/// Takes requests for a service. Destroying the handle rejects those that wait.
class Listener : public Handle<detail::ListenerObject> {
 public:
  using Handle::Handle;

  [[nodiscard]] ServiceNumber service() const;
  /// The oldest request, in state requested; nullopt: none waits.
  [[nodiscard]] std::optional<Connection> take();
};

/// The connection management of a context; Context::poll() drives it.
class Connections : public Handle<detail::ConnectionsObject> {
 public:
  using Handle::Handle;

  /// From now on the context answers its peers' requests; before, they are dropped, and the peers repeat them. Takes
  /// one queue pair, one completion queue and one tag of the context's limits, and an address handle for each path.
  /// Errors: bad_argument (a null context, impossible options), in_use (they are open already), no_resources.
  [[nodiscard]] static Expected<Connections> open(const Context& context, const ConnectionOptions& options = {});

  /// backlog: requests that may wait. Errors: bad_argument (service 0), bad_length (no backlog), in_use (somebody
  /// listens).
  [[nodiscard]] Expected<Listener> listen(ServiceNumber service, std::size_t backlog = 16);
  /// Requests a connection to the service of the path's peer. queue_pair: as in accept(); it is connected when the
  /// event `established` comes. data: at most kMaxRequestPrivateBytes. Errors: as of accept(), no_resources.
  [[nodiscard]] Expected<Connection> connect(const Path& path, ServiceNumber service, const QueuePair& queue_pair,
                                             std::span<const std::byte> data = {});
  /// Events of all listeners and connections since the last call, oldest first; returns how many. A program may look at
  /// Connection::state() instead.
  [[nodiscard]] std::size_t poll_events(std::span<ConnectionEvent> out);
  [[nodiscard]] ConnectionCounters counters() const;
};

}  // namespace splitnic::verbs
