#include "path.h"

#include <algorithm>

namespace splitnic::sim {

using fabric::FabricLink;
using fabric::PortAddress;
using fabric::SimBridgePair;

namespace {

constexpr std::array<PortAddress, 2> kPorts{PortAddress{0x0200'0000'00a1}, PortAddress{0x0200'0000'00b2}};

}  // namespace

Path::Path(const PathOptions& options, RandomSource& random)
    : options_(options),
      random_(random),
      relay_(random, options.lost_permille, options.doubled_permille, options.late_permille) {
  bridges_.push_back(std::make_unique<SimBridgePair>(options.bridge, random));
  if (options.relayed) bridges_.push_back(std::make_unique<SimBridgePair>(options.bridge, random));
  for (std::size_t end = 0; end < 2; ++end) {
    links_[end] = make_link(bridge_of(end).end(end), end);
    links_[end]->restart();
    make_sealed(end);
  }
  if (!options.relayed) return;
  // The relay's links bear the port addresses of the ends that they stand for.
  relay_links_.push_back(make_link(bridges_[0]->end(1), 1));
  relay_links_.push_back(make_link(bridges_[1]->end(0), 0));
  restart_relay();
}

std::unique_ptr<FabricLink> Path::make_link(fabric::Bridge& on, std::size_t bears) {
  fabric::LinkOptions with = options_.link;
  with.port_address = kPorts[bears];
  return std::make_unique<FabricLink>(on, with, random_);
}

bool Path::up() const {
  const auto is_up = [](const auto& link) { return link->up(); };
  return std::ranges::all_of(links_, is_up) && std::ranges::all_of(relay_links_, is_up);
}

bool Path::quiet() const {
  const auto carried = [](const auto& link) { return link == nullptr || link->empty(); };
  return relay_.empty() && std::ranges::all_of(sealed_, carried) &&
         std::ranges::all_of(bridges_, [](const auto& bridge) { return bridge->next_event() == kNever; });
}

std::size_t Path::advance(Time now) {
  for (auto& bridge : bridges_) bridge->advance(now);
  for (auto& link : links_) link->poll(now);
  for (auto& link : relay_links_) link->poll(now);
  if (!options_.relayed) return 0;
  if (!up()) {
    relay_.clear();
    return 0;
  }
  return relay_.carry(*sealed_[0], *sealed_[1]) + relay_.carry(*sealed_[1], *sealed_[0]);
}

void Path::make_sealed(std::size_t end) {
  if (options_.relayed) sealed_[end] = std::make_unique<fabric::test::SealedLink>(*links_[end]);
}

Time Path::next_event(Time now) const {
  Time next = relay_.empty() ? kNever : now;
  for (const auto& bridge : bridges_) next = std::min(next, bridge->next_event());
  for (const auto& link : links_) next = std::min(next, link->next_deadline(now, true));
  for (const auto& link : relay_links_) next = std::min(next, link->next_deadline(now, true));
  return next;
}

void Path::restart_relay() {
  relay_.clear();
  for (auto& link : relay_links_) link->restart();
}

void Path::restart(std::size_t end) {
  links_[end]->restart();
  restart_relay();
}

void Path::die(std::size_t end, bool scribble) {
  sealed_[end].reset();
  links_[end].reset();
  bridge_of(end).forget(end, scribble);
  links_[end] = make_link(bridge_of(end).end(end), end);
  links_[end]->restart();
  make_sealed(end);
  restart_relay();
}

void Path::cut() {
  for (auto& bridge : bridges_) bridge->cut();
}

void Path::restore() {
  for (auto& bridge : bridges_) bridge->restore();
}

}  // namespace splitnic::sim
