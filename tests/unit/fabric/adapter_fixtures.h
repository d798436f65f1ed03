#pragma once

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/bridge/link.h"
#include "fabric/memory/mpt.h"
#include "fabric/memory/protection_table.h"
#include "fabric/wire/cell.h"
#include "sealed_link.h"
#include "tests/sim_bridge/sim_bridge.h"

namespace splitnic::fabric::test {

using std::chrono::microseconds;
using std::chrono::milliseconds;

inline constexpr std::array<PortAddress, 2> kPorts{PortAddress{0x0200'0000'00a1}, PortAddress{0x0200'0000'00b2}};

/// Two links over a simulated bridge, brought up.
class LinkedPair {
 public:
  static SimBridgeOptions calm() {
    SimBridgeOptions options;
    options.write_delay_max = Duration::zero();
    options.scratchpad_delay_max = Duration::zero();
    options.doorbell_delay_max = Duration::zero();
    options.torn_permille = 0;
    options.doorbell_lost_permille = 0;
    options.doorbell_spurious_permille = 0;
    return options;
  }
  static SimBridgeOptions rough() {
    SimBridgeOptions options = calm();
    options.write_delay_max = microseconds(20);
    options.torn_permille = 300;
    options.doorbell_lost_permille = 300;
    return options;
  }

  explicit LinkedPair(const SimBridgeOptions& bridge = calm(), std::uint64_t seed = 1, LinkOptions link = {})
      : random_(seed), bridges_(bridge, random_) {
    for (std::size_t i = 0; i < 2; ++i) {
      link.port_address = kPorts[i];
      links_[i] = std::make_unique<FabricLink>(bridges_.end(i), link, random_);
      links_[i]->restart();
    }
    come_up();
  }

  void come_up() {
    for (int i = 0; i < 10'000 && !(links_[0]->up() && links_[1]->up()); ++i) advance(milliseconds(1));
    REQUIRE((links_[0]->up() && links_[1]->up()));
  }
  void advance(Duration by) {
    now_ += by;
    bridges_.advance(now_);
    for (auto& link : links_) link->poll(now_);
  }
  [[nodiscard]] Time now() const { return now_; }
  FabricLink& link(std::size_t index) { return *links_[index]; }
  SimBridgePair& bridges() { return bridges_; }
  SeededRandom& random() { return random_; }

 private:
  SeededRandom random_;
  SimBridgePair bridges_;
  Time now_{};
  std::array<std::unique_ptr<FabricLink>, 2> links_;
};

inline constexpr Rights kLocalRights = Right::local_read | Right::local_write;
inline constexpr Rights kAllRights = Right::local_read | Right::local_write | Right::remote_write;

inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::byte> result(bytes);
  for (auto& byte : result) byte = static_cast<std::byte>(random.next());
  return result;
}

/// Cells of 256 bytes, so that messages of some hundred bytes have several.
inline AdapterOptions small_cells() {
  AdapterOptions options;
  options.cell_payload_bytes = 256;
  return options;
}

/// An adapter with a registered buffer and a queue pair, as a driver would have.
class Endpoint {
 public:
  static constexpr std::size_t kBufferBytes = 256U << 10U;

  Endpoint(CellLink& link, const AdapterOptions& options, RandomSource& random, const QueuePairAttributes& queue_pair)
      : adapter(link, options, random), buffer(kBufferBytes) {
    domain = adapter.allocate_domain();
    completions = adapter.create_completion_queue(1024);
    tag = adapter.register_memory(domain, buffer, kAllRights).value();
    number = make_queue_pair(queue_pair);
  }

  QpNumber make_queue_pair(QueuePairAttributes with) {
    with.domain = domain;
    with.send_completions = with.receive_completions = completions;
    const auto made = adapter.create_queue_pair(with);
    REQUIRE(made.has_value());
    return *made;
  }
  LocalSegment segment(std::size_t offset, std::size_t bytes) {
    return LocalSegment{buffer.data() + offset, static_cast<std::uint32_t>(bytes), tag};
  }
  Status receive(std::uint64_t id, std::size_t offset, std::size_t bytes) {
    return adapter.post_receive(number, ReceiveRequest{id, segment(offset, bytes)});
  }
  Status send(std::uint64_t id, std::size_t offset, std::size_t bytes) {
    WorkRequest request;
    request.id = id;
    request.segments[0] = segment(offset, bytes);
    request.segment_count = 1;
    return adapter.post_send(number, request);
  }
  Status write(std::uint64_t id, std::size_t offset, std::size_t bytes, RemoteAddress remote,
               std::optional<std::uint32_t> immediate = std::nullopt) {
    WorkRequest request;
    request.id = id;
    request.operation = immediate ? Operation::rdma_write_with_immediate : Operation::rdma_write;
    request.segments[0] = segment(offset, bytes);
    request.segment_count = 1;
    request.remote = remote;
    request.immediate = immediate.value_or(0);
    return adapter.post_send(number, request);
  }
  std::vector<Completion> take() {
    std::vector<Completion> all(1024);
    all.resize(adapter.poll_completions(completions, all));
    return all;
  }
  RemoteAddress remote(std::size_t offset = 0) { return {adapter.region_address(tag) + offset, tag}; }
  bool holds(std::size_t offset, std::span<const std::byte> expected) const {
    return std::equal(expected.begin(), expected.end(), buffer.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void fill(std::size_t offset, std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), buffer.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  ChannelAdapter adapter;
  std::vector<std::byte> buffer;
  ProtectionDomain domain{};
  CqNumber completions{};
  Stag tag{};
  QpNumber number{};
};

/// Two adapters, one connected queue pair each.
class TwoEndpoints {
 public:
  explicit TwoEndpoints(const AdapterOptions& adapter = small_cells(), const QueuePairAttributes& queue_pair = {},
                        const SimBridgeOptions& bridge = LinkedPair::calm(), std::uint64_t seed = 1)
      : pair(bridge, seed),
        ends{std::make_unique<Endpoint>(pair.link(0), adapter, pair.random(), queue_pair),
             std::make_unique<Endpoint>(pair.link(1), adapter, pair.random(), queue_pair)} {
    connect();
  }

  void connect() {
    const std::uint32_t psn0 = pair.random().next32();
    const std::uint32_t psn1 = pair.random().next32();
    REQUIRE(end(0).adapter.connect(end(0).number, {end(1).number, psn0, psn1}) == Status::ok);
    REQUIRE(end(1).adapter.connect(end(1).number, {end(0).number, psn1, psn0}) == Status::ok);
  }
  Endpoint& end(std::size_t index) { return *ends[index]; }
  void step(Duration by = microseconds(10)) {
    pair.advance(by);
    for (auto& one : ends) one->adapter.poll(pair.now());
  }
  void run(Duration total, Duration by = microseconds(10)) {
    for (Time end_time = pair.now() + total; pair.now() < end_time;) step(by);
  }
  /// Until nothing moves and nothing is outstanding; false after `limit` steps.
  bool settle(int limit = 100'000) {
    for (int i = 0; i < limit; ++i) {
      step();
      if (!end(0).adapter.outstanding() && !end(1).adapter.outstanding()) return true;
    }
    return false;
  }

  LinkedPair pair;
  std::array<std::unique_ptr<Endpoint>, 2> ends;
};

/// An adapter at end 0, on a link whose cells carry CRCs; at end 1 a peer that writes cells by hand and reads what
/// comes back.
class ScriptedPeer {
 public:
  static constexpr std::uint32_t kPsn = 1000;     // of the scripted peer's packets
  static constexpr std::uint32_t kOwnPsn = 5000;  // of the adapter's
  static constexpr QpNumber kNumber{77};

  explicit ScriptedPeer(const AdapterOptions& options = small_cells(), const QueuePairAttributes& queue_pair = {})
      : host(sealed, options, pair.random(), queue_pair), lane(queue_pair.lane) {
    REQUIRE(host.adapter.connect(host.number, {kNumber, kOwnPsn, kPsn}) == Status::ok);
  }

  /// A cell of the peer for the host's queue pair; the caller fills in the rest.
  Cell cell(Opcode opcode, std::uint32_t psn, std::uint16_t sequence = 0) const {
    Cell made;
    made.opcode = opcode;
    made.destination = kPorts[0];
    made.source = kPorts[1];
    made.destination_queue_pair = host.number;
    made.source_queue_pair = kNumber;
    made.packet_sequence = psn;
    made.cell_sequence = sequence;
    return made;
  }
  /// The packet CRC runs on over Middle and Last cells, as in a sender.
  void put(const Cell& made, std::span<const std::byte> payload = {}) {
    if (traits(made.opcode).first) packet_crc = kPacketCrcStart;
    sealed.in(lane).push_back(SealedLink::sealed(made, payload, packet_crc));
  }
  void put_raw(std::span<const std::byte> bytes) { sealed.in(lane).emplace_back(bytes.begin(), bytes.end()); }
  void acknowledge(Syndrome syndrome, std::uint32_t psn, std::uint32_t delay_microseconds = 0) {
    Cell made = cell(Opcode::acknowledge, psn);
    made.syndrome = syndrome;
    made.delay_microseconds = delay_microseconds;
    put(made);
  }
  void poll(Duration by = microseconds(1)) {
    pair.advance(by);
    host.adapter.poll(pair.now());
    pair.advance(Duration::zero());
  }
  /// What the adapter sent, oldest first; payloads point into `received`.
  std::vector<Cell> take() {
    pair.advance(microseconds(1));
    std::vector<Cell> cells;
    for (SealedLink::Queue& sent = sealed.out(lane); !sent.empty(); sent.pop_front()) {
      received.push_back(std::make_unique<std::vector<std::byte>>(sent.front()));
      const auto decoded = decode_cell(*received.back());
      REQUIRE(decoded.has_value());
      cells.push_back(*decoded);
    }
    return cells;
  }
  std::vector<Cell> poll_and_take(Duration by = microseconds(1)) {
    poll(by);
    return take();
  }

  LinkedPair pair;
  SealedLink sealed{pair.link(0)};
  Endpoint host;
  VirtualLane lane;
  std::uint32_t packet_crc = kPacketCrcStart;
  std::vector<std::unique_ptr<std::vector<std::byte>>> received;
};

}  // namespace splitnic::fabric::test
