#include "fabric/ibverbs/peers.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "common/os/errno_text.h"
#include "common/os/timespec.h"
#include "common/os/uncancelled.h"
#include "fabric/endnode/fabric_directory.h"

namespace splitnic::ibverbs {
namespace {

// Locally administered, with the letters S and N.
constexpr std::uint64_t kPortAddressBase = 0x0253'4e00'0000;

// So many looks take every cell of full rings, also when the adapter looks at other paths in between.
constexpr int kLastLooks = 1000;
constexpr int kLeastLooks = 2;  // a turn may leave completions to the next one

fabric::LinkOptions link_options(std::uint16_t local_id, std::uint16_t peer) {
  fabric::LinkOptions options;
  options.port_address = port_address_of(local_id);
  options.peer_port_address = port_address_of(peer);
  return options;
}

}  // namespace

fabric::PortAddress port_address_of(std::uint16_t local_id) { return fabric::PortAddress{kPortAddressBase | local_id}; }

std::uint16_t local_id_of(const fabric::Gid& gid) {
  const auto low = static_cast<std::uint16_t>(gid.bytes[14] << 8U | gid.bytes[15]);
  return fabric::port_gid(port_address_of(low)) == gid ? low : std::uint16_t{0};
}

Result<std::unique_ptr<Peers>> Peers::open(fabric::SharedAdapter& adapter, RandomSource& random,
                                           fabric::LocalPlacements& placements) {
  std::unique_ptr<Peers> peers(new Peers(adapter, random, placements));
  auto folders = fabric::chosen_fabric_folders();
  if (!folders) return tl::unexpected(folders.error());
  fabric::EndnodeOptions options;
  options.directory = std::move(folders->meeting);
  options.own_directory = std::move(folders->own);
  options.max_peers = kMaxPaths - 2;  // without the ends of the loop-back link
  auto endnode = fabric::Endnode::open(std::move(options), random);
  if (!endnode) return tl::unexpected(endnode.error());
  peers->endnode_ = std::move(*endnode);
  peers->local_id_ = peers->endnode_->local_id().value;
  const auto peer_of = [opened = peers.get()](fabric::PathNumber path) { return opened->local_id_of(path); };
  if (auto started = placements.start(adapter, peers->local_id_, random, peer_of); !started) {
    return tl::unexpected(started.error());
  }
  if (auto watched = peers->watch(); !watched) return tl::unexpected(watched.error());
  return peers;
}

Peers::~Peers() {
  if (endnode_watch_.value != 0) static_cast<void>(adapter_.unwatch(endnode_watch_));
  if (timer_watch_.value != 0) static_cast<void>(adapter_.unwatch(timer_watch_));
  if (hang_up_watch_.value != 0) static_cast<void>(adapter_.unwatch(hang_up_watch_));
}

/// Queue pairs of this adapter reach each other over a pair of links, which comes up at once. Null: it does not.
Peers::Peer* Peers::loop_back() {
  const fabric::LinkOptions options = link_options(local_id_, local_id_);
  auto made = fabric::Loopback::create({options, options}, {&random_, &random_});
  if (!made) return nullptr;
  const std::shared_ptr<fabric::Loopback> loopback = std::move(*made);
  std::array<fabric::PathNumber, 2> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    ends[i] = adapter_.add_link(std::shared_ptr<fabric::CellLink>(loopback, &loopback->end(i)))
                  .value_or(fabric::PathNumber{});
  }
  const auto paired = adapter_.use([&](fabric::ChannelAdapter& adapter) { return adapter.pair(ends[0], ends[1]); });
  constexpr int kStepsMax = 1000;  // of two ends that greet each other within one process
  for (int step = 0; paired == fabric::Status::ok && step < kStepsMax; ++step) {
    if (loop_is_up(ends)) {
      for (const fabric::PathNumber end : ends) ids_[end.value] = local_id_;
      Peer& peer = peers_[local_id_];
      peer.path = ends[0];
      return &peer;
    }
    static_cast<void>(adapter_.progress());
  }
  for (const fabric::PathNumber end : ends) static_cast<void>(adapter_.remove_link(end));
  return nullptr;
}

bool Peers::loop_is_up(const std::array<fabric::PathNumber, 2>& ends) {
  bool up = true;
  for (const fabric::PathNumber end : ends) {
    adapter_.with_link(end, [&](fabric::CellLink& link) { up = up && link.up(); });
  }
  return up;
}

Result<void> Peers::watch() {
  timer_ = os::UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  hang_ups_ = std::make_shared<const os::UniqueFd>(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!timer_ || !*hang_ups_) return fail("no timer for the endnode: {}", os::errno_text());
  for (auto [descriptor, number] :
       {std::pair(endnode_->descriptor(), &endnode_watch_), std::pair(timer_.get(), &timer_watch_),
        std::pair(hang_ups_->get(), &hang_up_watch_)}) {
    auto watched = adapter_.watch(descriptor, [this] { follow(); });
    if (!watched) return tl::unexpected(watched.error());
    *number = *watched;
  }
  return {};
}

void Peers::set_timer(Time deadline) {
  itimerspec when{};  // zero: never
  if (deadline != kNever) when.it_value = os::timespec_of(std::max(deadline.time_since_epoch(), Duration(1)));
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void Peers::follow() {
  Ended ended;
  const std::lock_guard guard(lock_);
  eventfd_t hang_ups = 0;
  eventfd_read(hang_ups_->get(), &hang_ups);  // before they are looked at
  if (const std::uint16_t killed = killed_.exchange(0); killed != 0) cut(killed, ended);
  while (auto change = endnode_->poll(monotonic_now())) {
    Peer* peer = find_or_add(change->peer.value);
    if (peer == nullptr) {
      endnode_->forget(change->peer);  // the peer sees its bridge go down
      continue;
    }
    if (change->bridge) {
      peer->idle = false;
    } else {
      endnode_->ids()->announce();  // a child of the dead one may keep its files open, so that nobody else learns it
    }
    receive_the_rest(peer->path);
    placements_.lost(peer->path);
    if (change->bridge) placements_.reached(peer->path, change->peer.value, change->bridge->peer());
    adapter_.with_link(peer->path, [&](fabric::CellLink& link) {
      ended.push_back(static_cast<PeerLink&>(link).use(std::move(change->bridge)));
    });
  }
  const std::size_t before = idle_.size();
  adapter_.use([&](fabric::ChannelAdapter& adapter) {
    for (auto& [local_id, peer] : peers_) note_if_idle(adapter, local_id, peer);
  });
  end_idle_from(before, ended);
}

Peers::Peer* Peers::find_or_add(std::uint16_t local_id) {
  const auto known = peers_.find(local_id);
  if (known != peers_.end()) return &known->second;
  if (local_id == local_id_) return loop_back();
  const auto hung_up = [hang_ups = hang_ups_] {
    const os::Uncancelled whole;
    eventfd_write(hang_ups->get(), 1);
  };
  auto path = adapter_.add_link(std::make_shared<PeerLink>(link_options(local_id_, local_id), random_, hung_up));
  if (!path) return nullptr;
  ids_[path->value] = local_id;
  Peer& peer = peers_[local_id];
  peer.path = *path;
  return &peer;
}

PathUse Peers::path_to(std::uint16_t local_id) {
  if (local_id == 0 || local_id > fabric::kMaxLocalId) return {};
  const std::lock_guard guard(lock_);
  Peer* peer = find_or_add(local_id);
  if (peer == nullptr) return {};
  if (local_id != local_id_) {
    static_cast<void>(endnode_->reach(fabric::LocalId{local_id}, monotonic_now()));
    set_timer(endnode_->next_deadline());
  }
  ++peer->users;
  peer->idle = false;
  return PathUse(*this, local_id, peer->path);
}

/// Of a peer that has ended: what it sent and settled before is in this process's memory, and still counts.
void Peers::receive_the_rest(fabric::PathNumber path) {
  bool more = true;
  adapter_.use([&](fabric::ChannelAdapter& adapter) { adapter.attend(path); });
  for (int looks = 0; looks < kLeastLooks || (more && looks < kLastLooks); ++looks) {
    adapter_.progress();
    more = false;
    adapter_.with_link(path, [&](fabric::CellLink& link) { more = static_cast<PeerLink&>(link).brings_more(); });
  }
}

fabric::EndnodeCounters Peers::counters() {
  const std::lock_guard guard(lock_);
  return endnode_->counters();
}

bool Peers::kill(fabric::PathNumber path) {
  const std::uint16_t local_id = local_id_of(path);
  if (local_id == 0 || local_id == local_id_) return false;
  killed_ = local_id;
  const os::Uncancelled whole;
  eventfd_write(hang_ups_->get(), 1);
  return true;
}

/// As when the endnode says that the peer has died.
void Peers::cut(std::uint16_t local_id, Ended& ended) {
  const auto found = peers_.find(local_id);
  if (found == peers_.end()) return;
  endnode_->forget(fabric::LocalId{local_id});
  receive_the_rest(found->second.path);
  placements_.lost(found->second.path);
  adapter_.with_link(found->second.path,
                     [&](fabric::CellLink& link) { ended.push_back(static_cast<PeerLink&>(link).use(nullptr)); });
}

PathUse::~PathUse() {
  if (peers_ != nullptr) peers_->release(local_id_);
}

void Peers::release(std::uint16_t local_id) {
  Ended ended;
  const std::lock_guard guard(lock_);
  Peer& peer = peers_.at(local_id);
  if (--peer.users != 0) return;
  const std::size_t before = idle_.size();
  adapter_.use([&](fabric::ChannelAdapter& adapter) { note_if_idle(adapter, local_id, peer); });
  if (idle_.size() != before) end_idle_from(before, ended);
}

/// A datagram that waits while its address handle is destroyed needs the path. If no bridge comes, it is dropped within
/// two seconds, and the endnode's next attempt finds the path idle.
bool Peers::is_needed(fabric::ChannelAdapter& adapter, std::uint16_t local_id, const Peer& peer) const {
  return peer.users != 0 || local_id == local_id_ || endnode_->has_bridge(fabric::LocalId{local_id}) ||
         adapter.datagrams_outlive_handle(peer.path);
}

/// Under the adapter's lock, because its owner sees a bridge go down.
void Peers::note_if_idle(fabric::ChannelAdapter& adapter, std::uint16_t local_id, Peer& peer) {
  if (peer.idle || is_needed(adapter, local_id, peer)) return;
  peer.idle = true;
  idle_.push_back(local_id);
}

void Peers::end_idle_from(std::size_t before, Ended& ended) {
  for (std::size_t at = before; at < idle_.size(); ++at) {
    cut(idle_[at], ended);
  }
  while (idle_.size() > kIdlePathsKept) remove_longest_idle();
  set_timer(endnode_->next_deadline());
}

void Peers::remove_longest_idle() {
  const auto found = peers_.find(idle_.front());
  idle_.pop_front();
  if (found == peers_.end() || !found->second.idle) return;  // used again since
  ids_[found->second.path.value] = 0;
  static_cast<void>(adapter_.remove_link(found->second.path));
  peers_.erase(found);
}

}  // namespace splitnic::ibverbs
