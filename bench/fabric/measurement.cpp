#include "bench/fabric/measurement.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fabric/wire/datagram.h"

namespace splitnic::bench {

namespace {

constexpr std::array<Verb, 6> kVerbs{Verb::send, Verb::datagram,    Verb::write, Verb::write_immediate,
                                     Verb::read, Verb::compare_swap};
constexpr std::string_view kPeers = "peers";
constexpr std::array<std::uint32_t, 7> kDefaultSizes{8, 64, 256, 1500, 4096, 65536, 1U << 20U};
constexpr std::size_t kLine = 64;
// Two, so that a message's bytes stay as they are until it is acknowledged, while the next is made.
constexpr std::size_t kPingPongSlots = 2;

void add(std::vector<Measurement>& to, Quantity quantity, Verb verb, const std::vector<std::uint32_t>& sizes) {
  if (verb == Verb::compare_swap) {
    to.push_back({quantity, verb, Path::segmented, sizeof(std::uint64_t)});
    return;
  }
  for (const Path path : {Path::segmented, Path::direct}) {
    // The receiver alone knows where a send goes.
    if (verb <= Verb::datagram && path == Path::direct) continue;
    for (const std::uint32_t bytes : sizes) {
      if (quantity == Quantity::rate || bytes <= kLongestLatencyMessage) to.push_back({quantity, verb, path, bytes});
    }
  }
}

std::vector<std::uint32_t> in_one_cell(std::vector<std::uint32_t> sizes, std::uint32_t cell_bytes) {
  std::erase_if(sizes, [=](std::uint32_t bytes) { return bytes + sizeof(fabric::DatagramBytes) > cell_bytes; });
  return sizes;
}

}  // namespace

const char* to_string(Quantity quantity) { return quantity == Quantity::latency ? "latency" : "rate"; }

const char* to_string(Verb verb) {
  switch (verb) {
    case Verb::send:
      return "send";
    case Verb::datagram:
      return "datagram";
    case Verb::write:
      return "write";
    case Verb::write_immediate:
      return "write-immediate";
    case Verb::read:
      return "read";
    case Verb::compare_swap:
      return "compare-swap";
  }
  return "?";
}

const char* to_string(Path path) { return path == Path::direct ? "direct" : "segmented"; }

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const Verb verb : kVerbs) names.emplace_back(to_string(verb));
  names.emplace_back(kTables);
  names.emplace_back(kPeers);
  return names;
}

Result<Plan> plan_of(const FabricCommand& command) {
  std::vector<std::uint32_t> sizes(command.sizes);
  if (sizes.empty()) sizes.assign(kDefaultSizes.begin(), kDefaultSizes.end());
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  Plan plan;
  plan.tables = asked_for(command.operations, kTables);
  plan.peers = asked_for(command.operations, kPeers);
  for (const Quantity quantity : {Quantity::latency, Quantity::rate}) {
    for (const Verb verb : kVerbs) {
      // Datagrams have no flow control: many of them at once would measure losses.
      if (verb == Verb::datagram && quantity == Quantity::rate) continue;
      if (!asked_for(command.operations, to_string(verb))) continue;
      add(plan.measurements, quantity, verb, verb == Verb::datagram ? in_one_cell(sizes, command.cell_bytes) : sizes);
    }
  }
  if (plan.measurements.empty() && !plan.tables && !plan.peers) return fail("nothing to measure");
  return plan;
}

SlotLayout::SlotLayout(const Measurement& what)
    : bytes(what.bytes),
      slots(kPingPongSlots),
      head(what.verb == Verb::datagram ? fabric::kRouteHeaderBytes : 0),
      stride((head + what.bytes + kLine - 1) / kLine * kLine),
      stamp_at((what.bytes - sizeof(std::uint64_t)) / sizeof(std::uint64_t) * sizeof(std::uint64_t)),
      source_moves(what.verb != Verb::read) {
  // No more memory than the caches hold: it is the fabric that is measured.
  constexpr std::size_t kCached = kMaxBytes;
  if (what.quantity == Quantity::rate) {
    slots = std::clamp(kCached / stride, kPingPongSlots, what.list > 1 ? kMostInFlightInLists : kMostInFlight);
    // Each slot belongs to one queue pair.
    if (slots > what.queue_pairs) slots -= slots % what.queue_pairs;
  }
}

}  // namespace splitnic::bench
