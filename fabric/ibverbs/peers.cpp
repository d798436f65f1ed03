#include "fabric/ibverbs/peers.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "fabric/endnode/fabric_directory.h"
#include "fabric/ibverbs/peer_link.h"

namespace splitnic::ibverbs {
namespace {

// Locally administered, with the letters S and N.
constexpr std::uint64_t kPortAddressBase = 0x0253'4e00'0000;

fabric::LinkOptions link_options(std::uint16_t local_id) {
  fabric::LinkOptions options;
  options.port_address = port_address_of(local_id);
  return options;
}

}  // namespace

fabric::PortAddress port_address_of(std::uint16_t local_id) { return fabric::PortAddress{kPortAddressBase | local_id}; }

std::uint16_t local_id_of(const fabric::Gid& gid) {
  const auto low = static_cast<std::uint16_t>(gid.bytes[14] << 8U | gid.bytes[15]);
  return fabric::port_gid(port_address_of(low)) == gid ? low : std::uint16_t{0};
}

Result<std::unique_ptr<Peers>> Peers::open(fabric::SharedAdapter& adapter, RandomSource& random) {
  std::unique_ptr<Peers> peers(new Peers(adapter, random));
  const char* fabric = std::getenv("SPLITNIC_FABRIC");
  auto directory = fabric::make_fabric_directory(fabric != nullptr ? fabric : fabric::kDefaultFabric);
  if (!directory) return tl::unexpected(directory.error());
  fabric::EndnodeOptions options;
  options.directory = std::move(*directory);
  options.max_peers = kMaxPaths;
  auto endnode = fabric::Endnode::open(std::move(options), random);
  if (!endnode) return tl::unexpected(endnode.error());
  peers->endnode_ = std::move(*endnode);
  peers->local_id_ = peers->endnode_->local_id().value;
  if (auto looped = peers->loop_back(); !looped) return tl::unexpected(looped.error());
  if (auto watched = peers->watch(); !watched) return tl::unexpected(watched.error());
  return peers;
}

Peers::~Peers() {
  if (endnode_watch_.value != 0) static_cast<void>(adapter_.unwatch(endnode_watch_));
  if (timer_watch_.value != 0) static_cast<void>(adapter_.unwatch(timer_watch_));
  if (timer_ >= 0) close(timer_);
}

/// Queue pairs of this adapter reach each other over a pair of links, which comes up at once.
Result<void> Peers::loop_back() {
  const fabric::LinkOptions options = link_options(local_id_);
  auto made = fabric::Loopback::create({options, options}, {&random_, &random_});
  if (!made) return tl::unexpected(made.error());
  loopback_ = std::move(*made);
  std::array<fabric::PathNumber, 2> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    auto path = adapter_.add_link(std::shared_ptr<fabric::CellLink>(loopback_, &loopback_->end(i)));
    if (!path) return tl::unexpected(path.error());
    ends[i] = *path;
    ids_[path->value] = local_id_;
  }
  const auto paired = adapter_.use([&](fabric::ChannelAdapter& adapter) { return adapter.pair(ends[0], ends[1]); });
  if (paired != fabric::Status::ok) return fail("the loop-back link: {}", fabric::to_string(paired));
  paths_.emplace(local_id_, ends[0]);
  constexpr int kStepsMax = 1000;  // of two ends that greet each other within one process
  for (int step = 0; step < kStepsMax; ++step) {
    if (loop_is_up(ends)) return {};
    static_cast<void>(adapter_.progress());
  }
  return fail("the loop-back link does not come up");
}

bool Peers::loop_is_up(const std::array<fabric::PathNumber, 2>& ends) {
  bool up = true;
  for (const fabric::PathNumber end : ends) {
    adapter_.with_link(end, [&](fabric::CellLink& link) { up = up && link.up(); });
  }
  return up;
}

Result<void> Peers::watch() {
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (timer_ < 0) return fail("no timer for the endnode");
  for (auto [descriptor, number] :
       {std::pair(endnode_->descriptor(), &endnode_watch_), std::pair(timer_, &timer_watch_)}) {
    auto watched = adapter_.watch(descriptor, [this] { follow(); });
    if (!watched) return tl::unexpected(watched.error());
    *number = *watched;
  }
  return {};
}

void Peers::set_timer(Time deadline) {
  itimerspec when{};  // zero: never
  if (deadline != kNever) {
    const auto since = std::max(deadline.time_since_epoch(), Duration(1));
    when.it_value.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(since).count();
    when.it_value.tv_nsec = (since % std::chrono::seconds(1)).count();
  }
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
}

void Peers::follow() {
  std::vector<PeerLink::Parts> ended;  // after the locks: the last reference to a bridge unmaps it
  const std::lock_guard guard(lock_);
  while (auto change = endnode_->poll(monotonic_now())) {
    const fabric::PathNumber path = find_or_add(change->peer.value);
    adapter_.with_link(path, [&](fabric::CellLink& link) {
      ended.push_back(static_cast<PeerLink&>(link).use(std::move(change->bridge)));
    });
  }
  set_timer(endnode_->next_deadline());
}

fabric::PathNumber Peers::find_or_add(std::uint16_t local_id) {
  const auto known = paths_.find(local_id);
  if (known != paths_.end()) return known->second;
  auto path = adapter_.add_link(std::make_shared<PeerLink>(link_options(local_id_), random_));
  if (!path) return {};
  ids_[path->value] = local_id;
  paths_.emplace(local_id, *path);
  return *path;
}

fabric::PathNumber Peers::path_to(std::uint16_t local_id) {
  if (local_id == 0) return {};
  const std::lock_guard guard(lock_);
  const fabric::PathNumber path = find_or_add(local_id);
  if (path.value == 0 || local_id == local_id_) return path;
  static_cast<void>(endnode_->reach(fabric::LocalId{local_id}, monotonic_now()));
  set_timer(endnode_->next_deadline());
  return path;
}

}  // namespace splitnic::ibverbs
