#include "path.h"

#include <fmt/format.h>

#include <algorithm>

namespace splitnic::sim {

using fabric::FabricLink;
using fabric::PortAddress;
using fabric::SimBridgePair;

namespace {

constexpr std::array<PortAddress, 2> kPorts{PortAddress{0x0200'0000'00a1}, PortAddress{0x0200'0000'00b2}};

}  // namespace

std::string faults_text(const PathOptions& options) {
  if (options.kind == PathKind::bridge) return {};
  return fmt::format("; a {} loses {}, doubles {} and delays {} permille",
                     options.kind == PathKind::relayed ? "relay" : "network of datagrams", options.lost_permille,
                     options.doubled_permille, options.late_permille);
}

std::unique_ptr<Path> Path::made(const PathOptions& options, RandomSource& random) {
  if (options.kind == PathKind::datagrams) return std::make_unique<DatagramPath>(options, random);
  return std::make_unique<BridgePath>(options, random);
}

BridgePath::BridgePath(const PathOptions& options, RandomSource& random)
    : options_(options),
      relayed_(options.kind == PathKind::relayed),
      random_(random),
      relay_(random, options.lost_permille, options.doubled_permille, options.late_permille) {
  bridges_.push_back(std::make_unique<SimBridgePair>(options.bridge, random));
  if (relayed_) bridges_.push_back(std::make_unique<SimBridgePair>(options.bridge, random));
  for (std::size_t end = 0; end < 2; ++end) {
    links_[end] = make_link(bridge_of(end).end(end), end);
    links_[end]->restart();
    make_sealed(end);
  }
  if (!relayed_) return;
  // The relay's links bear the port addresses of the ends that they stand for.
  relay_links_.push_back(make_link(bridges_[0]->end(1), 1));
  relay_links_.push_back(make_link(bridges_[1]->end(0), 0));
  restart_relay();
}

std::unique_ptr<FabricLink> BridgePath::make_link(fabric::Bridge& on, std::size_t bears) {
  fabric::LinkOptions with = options_.link;
  with.port_address = kPorts[bears];
  return std::make_unique<FabricLink>(on, with, random_);
}

bool BridgePath::up() const {
  const auto is_up = [](const auto& link) { return link->up(); };
  return std::ranges::all_of(links_, is_up) && std::ranges::all_of(relay_links_, is_up);
}

bool BridgePath::quiet() const {
  const auto carried = [](const auto& link) { return link == nullptr || link->empty(); };
  return relay_.empty() && std::ranges::all_of(sealed_, carried) &&
         std::ranges::all_of(bridges_, [](const auto& bridge) { return bridge->next_event() == kNever; });
}

std::size_t BridgePath::advance(Time now) {
  for (auto& bridge : bridges_) bridge->advance(now);
  for (auto& link : links_) link->poll(now);
  for (auto& link : relay_links_) link->poll(now);
  if (!relayed_) return 0;
  if (!up()) {
    relay_.clear();
    return 0;
  }
  return relay_.carry(*sealed_[0], *sealed_[1]) + relay_.carry(*sealed_[1], *sealed_[0]);
}

void BridgePath::make_sealed(std::size_t end) {
  if (relayed_) sealed_[end] = std::make_unique<fabric::test::SealedLink>(*links_[end]);
}

Time BridgePath::next_event(Time now) const {
  Time next = relay_.empty() ? kNever : now;
  for (const auto& bridge : bridges_) next = std::min(next, bridge->next_event());
  for (const auto& link : links_) next = std::min(next, link->next_deadline(now, true));
  for (const auto& link : relay_links_) next = std::min(next, link->next_deadline(now, true));
  return next;
}

void BridgePath::restart_relay() {
  relay_.clear();
  for (auto& link : relay_links_) link->restart();
}

void BridgePath::restart(std::size_t end) {
  links_[end]->restart();
  restart_relay();
}

void BridgePath::die(std::size_t end, bool scribble) {
  sealed_[end].reset();
  links_[end].reset();
  bridge_of(end).forget(end, scribble);
  links_[end] = make_link(bridge_of(end).end(end), end);
  links_[end]->restart();
  make_sealed(end);
  restart_relay();
}

void BridgePath::cut() {
  for (auto& bridge : bridges_) bridge->cut();
}

void BridgePath::restore() {
  for (auto& bridge : bridges_) bridge->restore();
}

// ---- over datagrams

namespace {

fabric::test::DatagramFaults faults_of(const PathOptions& options) {
  return {.lost = options.lost_permille,
          .duplicated = options.doubled_permille,
          .damaged = options.damaged_permille,
          .delay_min = std::chrono::microseconds(2),
          .delay_max = std::chrono::microseconds(60),
          .late = options.late_permille};
}

}  // namespace

DatagramPath::DatagramPath(const PathOptions& options, RandomSource& random)
    : random_(random),
      networks_{fabric::test::DatagramNetwork(random, faults_of(options)),
                fabric::test::DatagramNetwork(random, faults_of(options))} {
  make_link(0);
  make_link(1);
}

void DatagramPath::make_link(std::size_t end) {
  fabric::UdpOptions options;
  options.port_address = kPorts[end];
  options.window_bytes = {4U << 10U, 8U << 10U};
  options.hello_again = std::chrono::milliseconds(1);
  links_[end] = std::make_unique<fabric::UdpLink>(networks_[end], options, random_);
}

bool DatagramPath::quiet() const {
  return std::ranges::all_of(networks_, [](const auto& network) { return network.on_the_way.empty(); });
}

std::size_t DatagramPath::advance(Time now) {
  std::size_t moved = 0;
  for (std::size_t end = 0; end < 2; ++end) {
    moved += networks_[end].deliver(now, [&](const auto& datagram) { links_[1 - end]->peer().take(datagram, now); });
  }
  for (auto& link : links_) link->poll(now);
  return moved;
}

Time DatagramPath::next_event(Time now) const {
  Time next = kNever;
  for (const auto& network : networks_) next = std::min(next, network.next_arrival());
  for (const auto& link : links_) next = std::min(next, link->next_deadline(now, true));
  return next;
}

void DatagramPath::die(std::size_t end, bool /*scribble*/) {
  links_[end].reset();
  make_link(end);
}

void DatagramPath::cut() {
  for (auto& link : links_) link->restart();
}

}  // namespace splitnic::sim
