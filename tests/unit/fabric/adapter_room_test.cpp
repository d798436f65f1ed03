#include <cstdint>
#include <vector>

#include "slot_peer.h"

/// How long a request waits that finds no room in its lane when its turn comes.
namespace splitnic::fabric::adapter_room_test {
namespace {

using test::ids_of;
using test::microseconds;
using test::milliseconds;
using test::SlotPeer;

constexpr VirtualLane kData = VirtualLane::data;
constexpr Duration kTimeout = milliseconds(1);
constexpr Duration kAll = 4 * kTimeout;  // of a request that is never answered

AdapterOptions three_retries() {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = kTimeout;
  options.retry_count = 3;
  return options;
}

/// A peer that has stopped with its lane full, and a queue pair of the host's that has sent nothing.
struct Stopped : SlotPeer {
  explicit Stopped(const QueuePairAttributes& queue_pair = {}) : SlotPeer(three_retries(), queue_pair) {
    fill_lane();
    poll();
  }
  void poll_for(Duration time) {
    for (const Time until = pair.now() + time; pair.now() < until;) poll(microseconds(50));
  }
  /// So many of the oldest cells, and gives their room.
  void take_some(int cells) {
    pair.advance(microseconds(1));
    for (; cells != 0; --cells) {
      REQUIRE(link.front(kData) != nullptr);
      link.pop(kData);
    }
    tell();
    pair.advance(microseconds(1));
  }
  std::vector<std::uint64_t> exceeded() { return ids_of(host.take(), CompletionStatus::retry_exceeded); }
};

}  // namespace

TEST_CASE("a request that finds the lane full when it begins ends when the peer has given no room for long",
          "[fabric][adapter][room]") {
  QueuePairAttributes attributes;
  attributes.acknowledged = GENERATE(true, false);
  Stopped peer(attributes);
  const bool reads = attributes.acknowledged && GENERATE(true, false);
  if (reads) {
    REQUIRE(test::post(peer.host, test::read_request(peer.host, 1, 0, 8, {5, Stag{6}})) == Status::ok);
  } else {
    REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  }
  REQUIRE(peer.host.send(2, 0, 10) == Status::ok);
  peer.poll();
  CHECK(peer.host.adapter.next_deadline() == peer.pair.now() + kAll);
  peer.poll_for(kAll - microseconds(100));
  CHECK(peer.host.take().empty());
  peer.poll_for(microseconds(200));
  const auto ended = peer.host.take();
  CHECK(ids_of(ended, CompletionStatus::retry_exceeded) == std::vector<std::uint64_t>{1});
  CHECK(ids_of(ended, CompletionStatus::flushed) == std::vector<std::uint64_t>{2});
  CHECK(peer.host.adapter.in_error(peer.host.number));
  CHECK(peer.host.adapter.counters().retries_exceeded == 1);
  CHECK_FALSE(peer.host.adapter.outstanding());
}

TEST_CASE("a request waits for room as long as the peer gives some to others", "[fabric][adapter][room]") {
  Stopped peer;
  QueuePairAttributes attributes;
  const QpNumber first = peer.host.number;
  const QpNumber other = peer.host.make_queue_pair(attributes);
  REQUIRE(peer.host.adapter.connect(other, {QpNumber{78}, 1, 1}) == Status::ok);
  REQUIRE(peer.host.send(1, 0, 256) == Status::ok);  // waits for two lines
  for (int i = 0; i < 6; ++i) {
    peer.poll_for(kAll - microseconds(500));
    peer.take_some(1);
    Cell filler = SlotPeer::not_taken(QpNumber{99}, 0);  // somebody else is faster
    ClaimedPayload none;
    REQUIRE(peer.pair.link(0).claim(kData, filler, 0, none));
    std::uint32_t packet_crc = kPacketCrcStart;
    static_cast<void>(peer.pair.link(0).release(kData, filler, packet_crc));
  }
  CHECK(peer.host.take().empty());
  CHECK_FALSE(peer.host.adapter.in_error(first));
  peer.poll_for(kAll + microseconds(100));
  CHECK(peer.exceeded() == std::vector<std::uint64_t>{1});
}

TEST_CASE("room that came while its end did not poll is found before the request ends", "[fabric][adapter][room]") {
  Stopped peer;
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  peer.poll();
  peer.take_some(10);
  peer.poll(2 * kAll);
  const auto cells = peer.take();
  REQUIRE_FALSE(cells.empty());
  CHECK(cells.back().opcode == Opcode::send_only);
  peer.settle();
  peer.poll();
  CHECK(peer.completed() == 1);
}

TEST_CASE("what does not wait for room is not ended for want of it", "[fabric][adapter][room]") {
  Stopped peer;
  WorkRequest delay;
  delay.id = 1;
  delay.operation = Operation::delay;
  delay.delay = 4 * kAll;
  REQUIRE(test::post(peer.host, delay) == Status::ok);
  REQUIRE(peer.host.send(2, 0, 10) == Status::ok);
  peer.poll_for(3 * kAll);
  CHECK(peer.host.take().empty());
  peer.poll_for(kAll + microseconds(200));
  CHECK(peer.completed() == 1);
  CHECK_FALSE(peer.host.adapter.in_error(peer.host.number));
  peer.poll_for(kAll + microseconds(200));  // now it does
  CHECK(peer.exceeded() == std::vector<std::uint64_t>{2});
}

}  // namespace splitnic::fabric::adapter_room_test
