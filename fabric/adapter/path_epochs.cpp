#include <cstddef>

#include "fabric/adapter/adapter_state.h"

namespace splitnic::fabric {

void ChannelAdapter::State::begin_epoch(Path& path) {
  path.open = true;
  ++path_epochs;
  path.incarnation = path.link.incarnation();
  path.slots = {path.link.slots(VirtualLane::control), path.link.slots(VirtualLane::data)};
  path.route = {port_gid(path.link.peer_port_address()), port_gid(path.link.port_address())};
  if (path.direct != nullptr) {
    path.grants.start(*path.direct);
    PeerWindow& window = path.direct->bridge.peer_window();
    path.window = window.is_memory() ? &window : nullptr;
  }
  path.peer_grants.start();
  path.drains.start();
  for (const QueuePair* queue_pair : queue_pairs) {  // those that have awaited the link
    if (queue_pair->path == &path) publish_admission(context, *queue_pair);
  }
  path.settled = path.refused_to = path.released = {};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    path.awaited[lane].start(path.slots[lane] == nullptr ? 0 : path.slots[lane]->sender.lines());
  }
  context.turns.attend(path);
}

void ChannelAdapter::State::end_epoch(Path& path) {
  path.open = false;
  path.slots = {};
  path.window = nullptr;
  path.takes_no_datagrams = false;
  // Nobody is there to be told.
  path.not_taken = {};
  path.all_doubted_until = 0;
  path.more = {};
  ++path_epochs;
  context.turns.attend(path);
  if (path.direct != nullptr) context.transfers.abandon(path.direct->bridge.peer_window());
  for (QueuePair* queue_pair : queue_pairs) {
    if (queue_pair->path != &path) continue;
    turns.end_wait(*queue_pair);
    void_queue_pair(context, *queue_pair);
  }
  context.table.end_bridge_memory(path.number, path.regions);
  path.regions.clear();
  path.drains.start();
  AsyncEvent event;
  event.kind = AsyncEventKind::path_down;
  event.path = path.number;
  context.report(event);
}

}  // namespace splitnic::fabric
