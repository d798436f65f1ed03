#include "adapter_requests.h"
#include "datagram_fixtures.h"

/// Which queue pairs may store directly: those that the owner has connected, in the domain of the memory.
namespace splitnic::fabric::test::adapter_admission_test {
namespace {

/// Placeable bridge memory of end 1.
struct Memory {
  explicit Memory(TwoEndpoints& two, ProtectionDomain domain, QpNumber queue_pair = {})
      : range{two.pair.link(1).buffers().offset, 4096} {
    ChannelAdapter& owner = two.end(1).adapter;
    tag = owner.register_bridge_memory(domain, range, kAllRights, true, {}, queue_pair).value();
    at = {owner.region_address(tag), tag};
    bytes = two.pair.link(1).bridge().local_memory().slice(range.offset, range.bytes);
    bytes.zero(0, range.bytes);
    two.run(milliseconds(1));
  }
  [[nodiscard]] bool holds(std::span<const std::byte> expected) const {
    std::vector<std::byte> copy(expected.size());
    bytes.copy_out(0, copy);
    return std::ranges::equal(copy, expected);
  }
  [[nodiscard]] bool untouched() const { return holds(std::vector<std::byte>(range.bytes)); }

  MemoryRange range;
  Stag tag{};
  RemoteAddress at{};
  PeerMemory bytes;
};

/// A further queue pair of each end, connected to each other.
std::array<QpNumber, 2> connect_more(TwoEndpoints& two) {
  const std::array numbers{two.end(0).make_queue_pair({}), two.end(1).make_queue_pair({})};
  REQUIRE(two.end(0).adapter.connect(numbers[0], {numbers[1], 1, 2}) == Status::ok);
  REQUIRE(two.end(1).adapter.connect(numbers[1], {numbers[0], 2, 1}) == Status::ok);
  return numbers;
}

bool may_store(TwoEndpoints& two, const Memory& memory, QpNumber number) {
  two.run(microseconds(100));
  return two.end(0).adapter.claim_direct(number, memory.at, 64).has_value();
}
bool may_store(TwoEndpoints& two, const Memory& memory) { return may_store(two, memory, two.end(0).number); }

/// How a write of 64 bytes ends, and that it is not stored.
CompletionStatus refused_write(TwoEndpoints& two, const Memory& memory) {
  two.end(0).fill(0, pattern(64, 1));
  REQUIRE(two.end(0).write(1, 0, 64, memory.at) == Status::ok);
  REQUIRE(two.settle());
  CHECK(memory.untouched());
  CHECK(two.end(0).adapter.counters().direct_writes == 0);
  return two.end(0).take().at(0).status;
}

}  // namespace

TEST_CASE("memory of another domain is not stored to before its owner refuses the write", "[fabric][adapter][mpt]") {
  TwoEndpoints two;
  const Memory memory(two, two.end(1).adapter.allocate_domain());
  CHECK_FALSE(may_store(two, memory));
  CHECK(refused_write(two, memory) == CompletionStatus::remote_access_error);
}

TEST_CASE("memory for one queue pair is stored to by this one alone", "[fabric][adapter][mpt]") {
  TwoEndpoints two;
  const auto others = connect_more(two);
  const Memory memory(two, two.end(1).domain, others[1]);
  CHECK(may_store(two, memory, others[0]));
  CHECK_FALSE(may_store(two, memory));
  CHECK(refused_write(two, memory) == CompletionStatus::remote_access_error);
}

TEST_CASE("a queue pair without the right to be written through admits no store", "[fabric][adapter][mpt]") {
  TwoEndpoints two;
  const Memory memory(two, two.end(1).domain);
  REQUIRE(may_store(two, memory));
  QueuePairSettings reads_alone;
  reads_alone.remote_rights = Rights{} | Right::remote_read;
  REQUIRE(two.end(1).adapter.configure(two.end(1).number, reads_alone) == Status::ok);
  CHECK_FALSE(may_store(two, memory));
  CHECK(refused_write(two, memory) == CompletionStatus::remote_access_error);
}

TEST_CASE("a queue pair that has left its connection is not stored through", "[fabric][adapter][mpt]") {
  enum class Leaving { error, reset, destruction };
  const Leaving how = GENERATE(Leaving::error, Leaving::reset, Leaving::destruction);
  AdapterOptions options = test::small_cells();
  options.retry_count = 1;
  options.ack_timeout = milliseconds(1);
  TwoEndpoints two(options);
  const Memory memory(two, two.end(1).domain);
  REQUIRE(may_store(two, memory));
  ChannelAdapter& owner = two.end(1).adapter;
  const QpNumber gone = two.end(1).number;
  if (how == Leaving::destruction) REQUIRE(owner.destroy_queue_pair(gone) == Status::ok);
  if (how != Leaving::destruction) {
    REQUIRE(owner.modify(gone, how == Leaving::reset ? QueuePairEvent::reset : QueuePairEvent::fail) == Status::ok);
  }
  CHECK(owner.in_quarantine(gone));
  CHECK_FALSE(may_store(two, memory));  // although the writer's end is connected
  CHECK_FALSE(owner.in_quarantine(gone));
  CHECK(owner.counters().drains_completed == 1);
  std::vector<AsyncEvent> events(8);
  events.resize(owner.poll_events(events));
  REQUIRE_FALSE(events.empty());
  CHECK(events.back().kind == AsyncEventKind::queue_pair_drained);
  CHECK(events.back().queue_pair == gone);
  static_cast<void>(refused_write(two, memory));
}

TEST_CASE("nothing is drained for a queue pair in whose domain nothing is granted", "[fabric][adapter][mpt]") {
  TwoEndpoints two;
  const Memory memory(two, two.end(1).adapter.allocate_domain());
  REQUIRE(two.end(1).adapter.modify(two.end(1).number, QueuePairEvent::reset) == Status::ok);
  CHECK_FALSE(two.end(1).adapter.in_quarantine(two.end(1).number));
  CHECK_FALSE(two.end(1).adapter.outstanding());
}

TEST_CASE("the number of a queue pair in another domain lets its peer store there, and nowhere else",
          "[fabric][adapter][mpt]") {
  TwoEndpoints two;
  Endpoint& owner = two.end(1);
  const Memory memory(two, owner.domain);
  const auto well_known = [&](ProtectionDomain domain) {
    QueuePairAttributes options;
    options.domain = domain;
    options.send_completions = options.receive_completions = owner.completions;
    options.number = QpNumber{5};
    REQUIRE(owner.adapter.create_queue_pair(options) == QpNumber{5});
    REQUIRE(owner.adapter.connect(QpNumber{5}, {two.end(0).number, 2, 1}) == Status::ok);
    REQUIRE(two.end(0).adapter.modify(two.end(0).number, QueuePairEvent::reset) == Status::ok);
    REQUIRE(two.end(0).adapter.connect(two.end(0).number, {QpNumber{5}, 1, 2}) == Status::ok);
  };
  well_known(owner.domain);
  CHECK(may_store(two, memory));
  REQUIRE(owner.adapter.destroy_queue_pair(QpNumber{5}) == Status::ok);
  const ProtectionDomain other = owner.adapter.allocate_domain();
  well_known(other);
  CHECK_FALSE(may_store(two, memory));
  CHECK(refused_write(two, memory) == CompletionStatus::remote_access_error);
}

TEST_CASE("the question for a drain that finds no room waits for some, and does not keep its adapter awake",
          "[fabric][adapter][drain]") {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(1);
  TwoEndpoints two(options);
  const Memory memory(two, two.end(1).domain);
  REQUIRE(may_store(two, memory));
  ChannelAdapter& owner = two.end(1).adapter;
  const QpNumber gone = two.end(1).number;
  REQUIRE(owner.modify(gone, QueuePairEvent::reset) == Status::ok);
  // The peer stands still, and each question stays in the lane.
  const auto poll_owner = [&] {
    two.pair.advance(options.ack_timeout);
    owner.poll(two.pair.now());
  };
  for (int asked = 0; !two.pair.link(1).wants_room(VirtualLane::control); ++asked) {
    REQUIRE(asked < 1000);
    CHECK(owner.next_deadline() <= two.pair.now() + options.ack_timeout);
    poll_owner();
  }
  poll_owner();
  CHECK(owner.next_deadline() == kNever);
  CHECK(owner.in_quarantine(gone));
  two.run(milliseconds(10));
  CHECK_FALSE(owner.in_quarantine(gone));
  CHECK(owner.counters().drains_completed == 1);
}

TEST_CASE("a peer that answers no drain is asked about all queue pairs together", "[fabric][adapter][drain]") {
  AdapterOptions options = test::small_cells();
  options.max_events = 4096;
  TwoEndpoints two(options);
  const Memory memory(two, two.end(1).domain);
  ChannelAdapter& owner = two.end(1).adapter;
  constexpr std::size_t kQueuePairs = 1000;
  std::vector<QpNumber> gone;
  for (std::size_t i = 0; i < kQueuePairs; ++i) {
    gone.push_back(two.end(1).make_queue_pair({}));
    REQUIRE(owner.connect(gone.back(), {QpNumber{100}, 1, 1}) == Status::ok);
    REQUIRE(owner.destroy_queue_pair(gone.back()) == Status::ok);
    two.pair.advance(microseconds(10));
    owner.poll(two.pair.now());
  }
  const auto in_quarantine = [&](QpNumber number) { return owner.in_quarantine(number); };
  CHECK(std::ranges::all_of(gone, in_quarantine));
  FabricLink& link = two.pair.link(0);
  const auto questions = [&link] {
    std::vector<std::uint32_t> numbers;
    for (; link.front(VirtualLane::control) != nullptr; link.pop(VirtualLane::control)) {
      REQUIRE(link.front(VirtualLane::control)->cell.opcode == Opcode::drain_request);
      numbers.push_back(link.front(VirtualLane::control)->cell.generation);
    }
    return numbers;
  };
  const auto answer = [&](std::uint32_t number) {
    Cell cell;
    cell.opcode = Opcode::drain_acknowledge;
    cell.generation = number;
    ClaimedPayload none;
    REQUIRE(link.claim(VirtualLane::control, cell, 0, none));
    std::uint32_t packet_crc = kPacketCrcStart;
    static_cast<void>(link.release(VirtualLane::control, cell, packet_crc));
    two.pair.advance(microseconds(10));
    owner.poll(two.pair.now());
    two.pair.advance(microseconds(10));
  };
  const auto first = questions();
  REQUIRE(first.size() == 1);
  answer(first[0]);
  // The answer says nothing about those that have left after the question.
  CHECK_FALSE(in_quarantine(gone[0]));
  CHECK(std::ranges::all_of(std::span(gone).subspan(1), in_quarantine));
  answer(first[0]);  // a copy of it neither
  CHECK(std::ranges::all_of(std::span(gone).subspan(1), in_quarantine));
  const auto second = questions();
  REQUIRE(second.size() == 1);
  answer(second[0]);
  CHECK(std::ranges::none_of(gone, in_quarantine));
  CHECK(owner.counters().drains_completed == kQueuePairs);
  std::vector<AsyncEvent> events(4096);
  events.resize(owner.poll_events(events));
  CHECK(events.size() == kQueuePairs);
  CHECK_FALSE(owner.outstanding());
}

TEST_CASE("a queue pair that awaited its link is admitted when the epoch begins", "[fabric][adapter][mpt]") {
  LinkedPair pair;
  AwaitedLink late(pair.link(1));
  Endpoint writer(pair.link(0), small_cells(), pair.random(), {});
  Endpoint owner(late, small_cells(), pair.random(), {});
  REQUIRE(writer.adapter.connect(writer.number, {owner.number, 1, 2}) == Status::ok);
  REQUIRE(owner.adapter.connect(owner.number, {writer.number, 2, 1}) == Status::ok);
  late.shown = true;
  owner.adapter.poll(pair.now());
  const MemoryRange range{pair.link(1).buffers().offset, 4096};
  const Stag tag = owner.adapter.register_bridge_memory(owner.domain, range, kAllRights, true).value();
  pair.advance(microseconds(1));
  const RemoteAddress at{owner.adapter.region_address(tag), tag};
  CHECK(writer.adapter.claim_direct(writer.number, at, 64).has_value());
}

}  // namespace splitnic::fabric::test::adapter_admission_test
