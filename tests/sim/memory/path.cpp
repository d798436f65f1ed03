#include "path.h"

#include <algorithm>
#include <span>

namespace splitnic::sim {

using fabric::FabricLink;
using fabric::FifoReceiver;
using fabric::PortAddress;
using fabric::SimBridgePair;
using fabric::VirtualLane;

namespace {

constexpr std::array<PortAddress, 2> kPorts{PortAddress{0x0200'0000'00a1}, PortAddress{0x0200'0000'00b2}};

}  // namespace

Path::Path(const PathOptions& options, RandomSource& random) : options_(options), random_(random) {
  bridges_.push_back(std::make_unique<SimBridgePair>(options.bridge, random));
  if (options.relayed) bridges_.push_back(std::make_unique<SimBridgePair>(options.bridge, random));
  for (std::size_t end = 0; end < 2; ++end) {
    links_[end] = make_link(end, end, bridge_of(end).end(end));
    links_[end]->restart();
  }
  if (!options.relayed) return;
  // The relay's links bear the port addresses of the ends that they stand for.
  relay_.push_back(make_link(0, 1, bridges_[0]->end(1)));
  relay_.push_back(make_link(1, 0, bridges_[1]->end(0)));
  restart_relay();
}

std::unique_ptr<FabricLink> Path::make_link(std::size_t, std::size_t bears, fabric::Bridge& on) {
  fabric::LinkOptions with = options_.link;
  with.port_address = kPorts[bears];
  return std::make_unique<FabricLink>(on, with, random_);
}

bool Path::up() const {
  const auto is_up = [](const auto& link) { return link->up(); };
  return std::ranges::all_of(links_, is_up) && std::ranges::all_of(relay_, is_up);
}

bool Path::quiet() const {
  return std::ranges::all_of(bridges_, [](const auto& bridge) { return bridge->next_event() == kNever; });
}

std::size_t Path::advance(Time now) {
  for (auto& bridge : bridges_) bridge->advance(now);
  for (auto& link : links_) link->poll(now);
  for (auto& link : relay_) link->poll(now);
  if (!options_.relayed || !up()) return 0;
  return carry(*relay_[0], *relay_[1]) + carry(*relay_[1], *relay_[0]);
}

std::size_t Path::carry(FabricLink& from, FabricLink& to) {
  std::size_t carried = 0;
  for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
    FifoReceiver& receiver = from.receiver(lane);
    while (const auto front = receiver.front()) {
      std::vector<std::byte> cell(front->size());
      front->copy_out(0, cell);
      receiver.pop();
      ++carried;
      if (random_.below(1000) < options_.lost_permille) continue;
      const int times = random_.below(1000) < options_.doubled_permille ? 2 : 1;
      // No room: lost too.
      for (int i = 0; i < times; ++i) static_cast<void>(to.sender(lane).send({std::span<const std::byte>(cell)}));
    }
    receiver.push_tail(true);
  }
  to.notify();
  from.notify();
  return carried;
}

Time Path::next_event(Time now) const {
  Time next = kNever;
  for (const auto& bridge : bridges_) next = std::min(next, bridge->next_event());
  for (const auto& link : links_) next = std::min(next, link->next_deadline(now, true));
  for (const auto& link : relay_) next = std::min(next, link->next_deadline(now, true));
  return next;
}

void Path::restart_relay() {
  for (auto& link : relay_) link->restart();
}

void Path::restart(std::size_t end) {
  links_[end]->restart();
  restart_relay();
}

void Path::die(std::size_t end, bool scribble) {
  links_[end].reset();
  bridge_of(end).forget(end, scribble);
  links_[end] = make_link(end, end, bridge_of(end).end(end));
  links_[end]->restart();
  restart_relay();
}

void Path::cut() {
  for (auto& bridge : bridges_) bridge->cut();
}

void Path::restore() {
  for (auto& bridge : bridges_) bridge->restore();
}

}  // namespace splitnic::sim
