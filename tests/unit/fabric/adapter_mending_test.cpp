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

/// Only this answer came.
void expect_answer(const std::vector<Cell>& cells, Syndrome syndrome) {
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].opcode == Opcode::acknowledge);
  CHECK(to_string(cells[0].syndrome) == std::string(to_string(syndrome)));
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

TEST_CASE("a message whose cells get lost goes on where it broke off", "[fabric][adapter][mending]") {
  ScriptedPeer peer;
  FourCells cells = four_of_a_send();
  const bool write = GENERATE(false, true);
  if (write) {
    cells.opcodes = {Opcode::write_first, Opcode::write_middle, Opcode::write_middle, Opcode::write_last};
    cells.fill = [&](Cell& cell) {
      cell.address = peer.host.remote().address;
      cell.tag = peer.host.remote().tag;
      cell.message_bytes = 40;
    };
  } else {
    REQUIRE(peer.host.receive(1, 0, 40) == Status::ok);
  }
  cells.put(peer, {0, 2});
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error);
  cells.put(peer, {0, 1, 3});
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error);
  // Of what is here already nothing is needed but the cell that says that the message begins again.
  cells.put(peer, {0, 2, 3});
  expect_answer(peer.poll_and_take(), Syndrome::ok);
  CHECK(peer.host.holds(0, cells.data));
  CHECK(peer.host.take().size() == (write ? 0 : 1));
  // A gap in the next message is answered, although no cell said that this one had begun again after its last loss.
  peer.put(peer.cell(Opcode::send_only, kPsn + 2), pattern(10, 1));
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error);
}

TEST_CASE("a lost cell that comes late completes its message, and the next loss is asked for at once",
          "[fabric][adapter][mending]") {
  ScriptedPeer peer;
  const FourCells cells = four_of_a_send();
  REQUIRE(peer.host.receive(1, 0, 40) == Status::ok);
  cells.put(peer, {0, 1, 3});
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error);
  cells.put(peer, {2});
  cells.put(peer, {3});
  expect_answer(peer.poll_and_take(), Syndrome::ok);
  CHECK(peer.host.holds(0, cells.data));
  peer.put(peer.cell(Opcode::send_only, kPsn + 2), pattern(10, 1));
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error);
}

TEST_CASE("a message whose bytes changed between two copies starts anew", "[fabric][adapter][mending]") {
  ScriptedPeer peer;
  FourCells cells = four_of_a_send();
  REQUIRE(peer.host.receive(1, 0, 40) == Status::ok);
  cells.put(peer, {0, 1, 3});
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error);
  cells.data = pattern(40, 2);
  cells.put(peer, {0, 1, 2, 3});
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error);
  CHECK(peer.host.adapter.counters().dropped_bad_cell == 1);
  CHECK(peer.host.take().empty());
  cells.put(peer, {0, 1, 2, 3});
  expect_answer(peer.poll_and_take(), Syndrome::ok);
  CHECK(peer.host.holds(0, cells.data));
}

TEST_CASE("an answer whose cells get lost goes on where it broke off, and each loss is asked for at once",
          "[fabric][adapter][mending]") {
  ScriptedPeer peer(impatient());
  REQUIRE(post(peer.host, read_request(peer.host, 1, 0, 40, {5, Stag{6}})) == Status::ok);
  CHECK(peer.poll_and_take().size() == 1);
  FourCells cells{pattern(40, 1),
                  {Opcode::read_response_first, Opcode::read_response_middle, Opcode::read_response_middle,
                   Opcode::read_response_last},
                  [](Cell& cell) { cell.packet_sequence = kOwnPsn; }};
  cells.put(peer, {0, 2});
  CHECK(peer.poll_and_take().size() == 1);
  cells.put(peer, {0, 1, 3});
  CHECK(peer.poll_and_take().size() == 1);
  const bool changes = GENERATE(false, true);
  if (changes) {
    cells.data = pattern(40, 2);
    cells.put(peer, {0, 1, 2, 3});
    CHECK(peer.poll_and_take().size() == 1);
    CHECK(peer.host.take().empty());
    cells.put(peer, {0, 1, 2, 3});
  } else {
    cells.put(peer, {0, 2, 3});
  }
  CHECK(peer.poll_and_take().empty());
  CHECK(how(peer.host.take()) == std::vector<std::string>{"success"});
  CHECK(peer.host.holds(0, cells.data));
  CHECK(peer.host.adapter.counters().timeouts == 0);
}

TEST_CASE("losses cost an attempt for each timeout in which no request ends, and no more",
          "[fabric][adapter][mending]") {
  ScriptedPeer peer(impatient());
  REQUIRE(peer.host.send(1, 0, 600) == Status::ok);
  CHECK(peer.poll_and_take().size() == 3);
  const auto lose = [&](int times) {
    for (int i = 0; i < times; ++i) {
      peer.acknowledge(Syndrome::sequence_error, kOwnPsn);
      peer.poll(milliseconds(1));
      REQUIRE(peer.take().size() >= 3);
    }
  };
  lose(38);
  CHECK(peer.host.take().empty());
  SECTION("it is acknowledged in the end") {
    peer.acknowledge(Syndrome::ok, kOwnPsn);
    peer.poll();
    CHECK(how(peer.host.take()) == std::vector<std::string>{"success"});
    REQUIRE(peer.host.send(2, 0, 600) == Status::ok);  // which has its own attempts
    CHECK(peer.poll_and_take().size() == 3);
    peer.acknowledge(Syndrome::sequence_error, kOwnPsn + 1);
    CHECK(peer.poll_and_take(milliseconds(5)).size() == 3);
    CHECK(peer.host.take().empty());
  }
  SECTION("it is not") {
    for (int i = 0; i < 8; ++i) {
      peer.acknowledge(Syndrome::sequence_error, kOwnPsn);
      peer.poll(milliseconds(1));
    }
    CHECK(how(peer.host.take()) == std::vector<std::string>{"retry_exceeded"});
  }
}

TEST_CASE("a message that is mended before it was on the wire whole has a timeout", "[fabric][adapter][mending]") {
  AdapterOptions options = impatient();
  options.cell_payload_bytes = 16384;
  options.max_message_bytes = Endpoint::kBufferBytes;
  ScriptedPeer peer(options);
  REQUIRE(peer.host.send(1, 0, Endpoint::kBufferBytes) == Status::ok);  // more than the lane has room for
  CHECK(peer.poll_and_take().size() > 4);
  peer.acknowledge(Syndrome::sequence_error, kOwnPsn);
  const Time lost = peer.pair.now() + microseconds(1);
  peer.poll();
  CHECK(peer.host.adapter.next_deadline() == lost + milliseconds(10));
  // The peer takes all cells that leave. It says no more, or asks for each copy again before that has left whole.
  const bool asks_again = GENERATE(false, true);
  const auto poll = [&](int times) {
    for (int i = 0; i < times; ++i) {
      if (asks_again) peer.acknowledge(Syndrome::sequence_error, kOwnPsn);
      peer.poll(milliseconds(1));
      static_cast<void>(peer.take());
    }
  };
  poll(39);
  CHECK(peer.host.take().empty());
  poll(12);
  CHECK(how(peer.host.take()) == std::vector<std::string>{"retry_exceeded"});
}

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

TEST_CASE("messages of a megabyte come through a network that loses half a percent, with the usual options",
          "[fabric][adapter][mending][udp]") {
  constexpr std::size_t kBytes = std::size_t{1} << 20U;
  constexpr std::uint64_t kMessages = 3;
  const auto operation = GENERATE(Operation::rdma_write, Operation::rdma_read);
  const DatagramFaults faults{.lost = 5, .delay_min = microseconds(50), .delay_max = microseconds(50)};
  SeededRandom random(7);
  std::array networks{DatagramNetwork(random, faults), DatagramNetwork(random, faults)};
  std::array<std::unique_ptr<UdpLink>, 2> links;
  std::array<std::unique_ptr<ChannelAdapter>, 2> adapters;
  std::array<std::vector<std::byte>, 2> memory{pattern(kBytes, 1), pattern(kBytes, 2)};
  std::array<Stag, 2> tags;
  std::array<QpNumber, 2> queue_pairs;
  std::array<CqNumber, 2> completions;
  for (std::size_t i = 0; i < 2; ++i) {
    UdpOptions options;
    options.port_address = kLinkPorts.at(i);
    links[i] = std::make_unique<UdpLink>(networks[i], options, random);
  }
  Time now{};
  const auto step = [&] {
    now += microseconds(20);
    for (std::size_t i = 0; i < 2; ++i) {
      networks[i].deliver(now, [&](const auto& datagram) { links[1 - i]->peer().take(datagram, now); });
    }
    for (std::size_t i = 0; i < 2; ++i) {
      links[i]->poll(now);
      if (adapters[i] != nullptr) adapters[i]->poll(now);
    }
  };
  for (int i = 0; i < 100'000 && !(links[0]->up() && links[1]->up()); ++i) step();
  for (std::size_t i = 0; i < 2; ++i) {
    adapters[i] = std::make_unique<ChannelAdapter>(*links[i], AdapterOptions{}, random);
    QueuePairAttributes with;
    with.domain = adapters[i]->allocate_domain();
    with.send_completions = with.receive_completions = completions[i] = adapters[i]->create_completion_queue(64);
    tags[i] = adapters[i]->register_memory(with.domain, memory[i], kEverything).value();
    queue_pairs[i] = adapters[i]->create_queue_pair(with).value();
  }
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(adapters[i]->connect(queue_pairs[i], {queue_pairs[1 - i], kPsn, kPsn}) == Status::ok);
  }
  for (std::uint64_t id = 0; id < kMessages; ++id) {
    WorkRequest request = send_request(id, {memory[0].data(), kBytes, tags[0]});
    request.operation = operation;
    request.remote = {adapters[1]->region_address(tags[1]), tags[1]};
    REQUIRE(adapters[0]->post_send(queue_pairs[0], request) == Status::ok);
  }
  std::vector<std::string> ends;
  for (int i = 0; i < 100'000 && ends.size() != kMessages; ++i) {
    step();
    std::array<Completion, 8> taken;
    const std::size_t count = adapters[0]->poll_completions(completions[0], taken);
    for (const Completion& one : std::span(taken).first(count)) ends.emplace_back(to_string(one.status));
  }
  CHECK(ends == std::vector<std::string>(kMessages, "success"));
  CHECK(memory[0] == memory[1]);
  CHECK(networks[0].lost + networks[1].lost > 10);
}

}  // namespace splitnic::fabric::test::adapter_mending_test
