#include <functional>
#include <initializer_list>

#include "adapter_requests.h"
#include "datagram_fixtures.h"

/// What a link does that loses, repeats and delays cells, and how long messages come through it all the same.
namespace splitnic::fabric::test::adapter_mending_test {
namespace {

constexpr std::uint32_t kPsn = ScriptedPeer::kPsn;
constexpr std::uint32_t kOwnPsn = ScriptedPeer::kOwnPsn;

AdapterOptions impatient() {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(10);
  options.retry_count = 3;
  return options;
}

/// One cell of a message of four, ten bytes each; the packet CRC spans them in this order.
struct FourCells {
  std::vector<std::byte> data;
  std::array<Opcode, 4> opcodes;
  std::function<void(Cell&)> fill = [](Cell&) {};

  /// Puts the cells that are named; those that are not are lost.
  void put(ScriptedPeer& peer, std::initializer_list<std::size_t> arrive) const {
    std::uint32_t crc = kPacketCrcStart;
    for (std::size_t i = 0; i < opcodes.size(); ++i) {
      Cell cell = peer.cell(opcodes[i], kPsn, static_cast<std::uint16_t>(i));
      fill(cell);
      auto record = SealedLink::sealed(cell, std::span(data).subspan(10 * i, 10), crc);
      const bool arrives = std::find(arrive.begin(), arrive.end(), i) != arrive.end();
      if (arrives) peer.sealed.in(peer.lane).push_back(std::move(record));
    }
  }
};

FourCells four_of_a_send() {
  return {pattern(40, 1), {Opcode::send_first, Opcode::send_middle, Opcode::send_middle, Opcode::send_last}};
}

}  // namespace

TEST_CASE("copies of one refusal count once", "[fabric][adapter][mending]") {
  AdapterOptions options = impatient();
  options.receiver_not_ready_retries = 2;
  ScriptedPeer peer(options);
  REQUIRE(peer.host.send(1, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 1);
  const bool later = GENERATE(false, true);
  for (int retry = 0; retry < 2; ++retry) {
    for (int copy = 0; copy < 5; ++copy) {
      peer.acknowledge(Syndrome::receiver_not_ready, kOwnPsn, 3000);
      if (later) CHECK(peer.poll_and_take(microseconds(100)).empty());
    }
    CHECK(peer.poll_and_take().empty());
    CHECK(peer.poll_and_take(microseconds(3000)).size() == 1);
  }
  CHECK(peer.host.adapter.counters().not_ready_received == 2);
  CHECK(peer.host.adapter.counters().dropped_duplicate == 8);
  peer.acknowledge(Syndrome::receiver_not_ready, kOwnPsn, 3000);
  peer.poll();
  CHECK(how(peer.host.take()) == std::vector<std::string>{"receiver_not_ready"});
}

TEST_CASE("copies of one request to send again have a message sent again once", "[fabric][adapter][mending]") {
  ScriptedPeer peer;
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(peer.host.send(i, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 3);
  for (int copy = 0; copy < 5; ++copy) peer.acknowledge(Syndrome::sequence_error, kOwnPsn + 1);
  CHECK(peer.poll_and_take().size() == 2);
  CHECK(peer.host.adapter.counters().sequence_errors_received == 1);
  CHECK(peer.host.adapter.counters().dropped_duplicate == 4);
  CHECK(peer.host.take().size() == 1);
}

TEST_CASE("a repeated cell of an unacknowledged message is dropped, and the message arrives",
          "[fabric][adapter][mending]") {
  QueuePairAttributes unacknowledged;
  unacknowledged.acknowledged = false;
  ScriptedPeer peer(test::small_cells(), unacknowledged);
  REQUIRE(peer.host.receive(1, 0, 40) == Status::ok);
  const FourCells cells = four_of_a_send();
  for (std::size_t cell = 0; cell < 4; ++cell) {
    cells.put(peer, {cell});
    cells.put(peer, {cell});
    if (cell == 2) cells.put(peer, {0, 1});
  }
  CHECK(peer.poll_and_take().empty());
  CHECK(peer.host.take().size() == 1);
  CHECK(peer.host.holds(0, cells.data));
  CHECK(peer.host.adapter.counters().dropped_duplicate == 6);
  CHECK(peer.host.adapter.counters().dropped_out_of_sequence == 0);
  CHECK(peer.host.adapter.counters().dropped_unacknowledged == 0);
}

}  // namespace splitnic::fabric::test::adapter_mending_test
