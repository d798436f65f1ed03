#pragma once

#include <cstddef>

#include "fabric/verbs/types.h"

namespace splitnic::verbs {

/// The way to one peer (Context::add_path()). Destroying the handle ends the path at once, as if the peer had died: its
/// queue pairs fail, regions of its bridge's memory are void, address handles lead nowhere, and the peer sees that this
/// end is gone. Nothing else changes.
class Path : public Handle<detail::PathObject> {
 public:
  using Handle::Handle;

  /// The number in events and in the completions of datagrams; 0 in a null handle. The number of a path that has ended
  /// may become another's.
  [[nodiscard]] PathNumber number() const;
  /// True: the peer is connected. The end of an epoch is the event path_down: every queue pair of the path has failed,
  /// and every region of its bridge's memory is void. Reset the queue pairs; register bridge memory again. Regions of
  /// the process's memory stay, as does everything that belongs to other paths.
  [[nodiscard]] bool up() const;
  /// The port address of the peer; 0 while up() is false.
  [[nodiscard]] PortAddress peer_port() const;
  /// Bytes of the bridge's memory that can be registered, addressed from 0; 0 while up() is false, and on links without
  /// such memory.
  [[nodiscard]] std::size_t bridge_bytes() const;
};

}  // namespace splitnic::verbs
