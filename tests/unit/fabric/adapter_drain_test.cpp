#include "adapter_requests.h"
#include "direct_fixtures.h"

/// What becomes of memory through whose window the peer writes, when its tag is revoked.
namespace splitnic::fabric::test::adapter_drain_test {
namespace {

using direct::Granted;
using direct::SlowEngine;
using direct::WithEngine;
using Names = std::vector<std::string>;

/// What a writer may store into, over a link that loses doorbells and delays writes.
struct RoughGrant {
  static constexpr std::size_t kBytes = 4096;

  explicit RoughGrant(std::uint64_t seed)
      : two(test::small_cells(), {}, LinkedPair::rough(), seed), random(seed), granted(two, 1, kBytes) {}

  TwoEndpoints two;
  SeededRandom random;
  Granted granted;
};

/// The peer stores all the time, until the quarantine ends and after it. From then on the memory is the owner's again:
/// what it puts there (`own`) stays.
template <class Store, class InQuarantine>
void expect_own_after_quarantine(TwoEndpoints& two, SeededRandom& random, const Granted& granted,
                                 const std::vector<std::byte>& own, Store&& store, InQuarantine&& in_quarantine) {
  while (in_quarantine()) {
    store();
    two.step(microseconds(random.below(10)));
  }
  granted.memory.store_bytes(0, own);
  for (int i = 0; i < 20; ++i) {
    store();
    two.step(microseconds(random.below(20)));
    REQUIRE(granted.bytes(0, own.size()) == own);
  }
}

}  // namespace

TEST_CASE("a revoked range is in quarantine until the peer says that its direct writes are over",
          "[fabric][adapter][drain]") {
  TwoEndpoints two;
  Granted granted(two, 1);
  ChannelAdapter& owner = two.end(1).adapter;
  REQUIRE(owner.deregister(granted.tag) == Status::ok);
  CHECK(owner.deregister(granted.tag) == Status::bad_tag);
  CHECK(owner.in_quarantine(granted.range));
  CHECK(owner.outstanding());
  const auto registered = [&](MemoryRange range) {
    return owner.register_bridge_memory(two.end(1).domain, range, kAllRights, true).has_value();
  };
  const std::size_t begin = granted.range.offset;
  const std::size_t end = begin + granted.range.bytes;
  CHECK_FALSE(registered(granted.range));
  CHECK_FALSE(registered({begin + 64, 64}));
  CHECK_FALSE(registered({end - 64, 128}));
  CHECK(registered({end, 64}));
  REQUIRE(two.settle());
  CHECK_FALSE(owner.in_quarantine(granted.range));
  const auto events = take_events(two.end(1));
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == AsyncEventKind::memory_drained);
  CHECK(events[0].tag == granted.tag);
  CHECK(owner.counters().drains_completed == 1);
  CHECK(granted.grant());
}

TEST_CASE("memory whose users have agreed is free at once, and so is what was never granted",
          "[fabric][adapter][drain]") {
  TwoEndpoints two;
  Granted granted(two, 1);
  ChannelAdapter& owner = two.end(1).adapter;
  SECTION("agreed") { REQUIRE(owner.deregister(granted.tag, DirectWrites::over) == Status::ok); }
  SECTION("not placeable") {
    REQUIRE(owner.deregister(granted.tag, DirectWrites::over) == Status::ok);
    const Stag plain = owner.register_bridge_memory(two.end(1).domain, granted.range, kAllRights, false).value();
    REQUIRE(owner.deregister(plain) == Status::ok);
  }
  CHECK_FALSE(owner.in_quarantine(granted.range));
  CHECK(granted.grant());
}

TEST_CASE("a drain waits for the engine's copies into that memory, and for no others", "[fabric][adapter][drain]") {
  SlowEngine engine;
  WithEngine with(engine);
  Granted granted(*with.two, 1, 8192);
  Endpoint& owner = with.end(1);
  const MemoryRange other_range{granted.range.offset + 8192, 4096};
  const Stag other = owner.adapter.register_bridge_memory(owner.domain, other_range, kAllRights, true).value();
  with.two->run(milliseconds(1));
  const auto data = pattern(8192, 1);
  with.end(0).fill(0, data);
  REQUIRE(with.end(0).write(1, 0, 8192, granted.at()) == Status::ok);
  with.two->run(milliseconds(1));
  REQUIRE(owner.adapter.deregister(granted.tag) == Status::ok);
  REQUIRE(owner.adapter.deregister(other) == Status::ok);
  with.two->run(milliseconds(300));  // it is asked again meanwhile
  CHECK(owner.adapter.in_quarantine(granted.range));
  CHECK_FALSE(owner.adapter.in_quarantine(other_range));
  engine.finish();
  with.two->run(milliseconds(1));
  CHECK_FALSE(owner.adapter.in_quarantine(granted.range));
  CHECK(granted.bytes(0, 8192) == data);  // it all landed while nobody else had the memory
  CHECK(how(with.end(0).take()) == Names{"remote_access_error"});
}

TEST_CASE("a queue pair's drain waits for the engine's copies that had begun, and for no later ones",
          "[fabric][adapter][drain]") {
  SlowEngine engine;
  WithEngine with(engine);
  Granted granted(*with.two, 1, 8192);
  const QpNumber near = with.end(0).make_queue_pair({});
  const QpNumber far = with.end(1).make_queue_pair({});
  REQUIRE(with.end(0).adapter.connect(near, {far, 1, 2}) == Status::ok);
  REQUIRE(with.end(1).adapter.connect(far, {near, 2, 1}) == Status::ok);
  with.two->run(milliseconds(1));
  ChannelAdapter& owner = with.end(1).adapter;
  const QpNumber gone = with.end(1).number;
  REQUIRE(with.end(0).write(1, 0, 100, granted.at()) == Status::ok);
  with.two->run(milliseconds(1));
  REQUIRE(engine.waiting.size() == 1);
  REQUIRE(owner.modify(gone, QueuePairEvent::reset) == Status::ok);
  with.two->run(milliseconds(1));
  const WorkRequest later = write_request(2, with.end(0).segment(100, 100), granted.at(100));
  REQUIRE(with.end(0).adapter.post_send(near, later) == Status::ok);
  with.two->run(milliseconds(300));  // it is asked again meanwhile
  REQUIRE(engine.waiting.size() == 2);
  CHECK(owner.in_quarantine(gone));
  engine.finish();
  with.two->run(milliseconds(1));
  CHECK_FALSE(owner.in_quarantine(gone));
  CHECK(engine.waiting.size() == 1);
}

TEST_CASE("a peer that never answers leaves the range in quarantine until the epoch ends", "[fabric][adapter][drain]") {
  QueuePairAttributes options;
  options.lane = VirtualLane::control;
  ScriptedPeer peer(test::small_cells(), options);
  ChannelAdapter& adapter = peer.host.adapter;
  const MemoryRange range{peer.pair.link(0).buffers().offset, 4096};
  const Stag tag = adapter.register_bridge_memory(peer.host.domain, range, kAllRights, true).value();
  REQUIRE(adapter.deregister(tag) == Status::ok);
  std::uint32_t number = 0;
  for (int asked = 0; asked < 5; ++asked) {
    const auto cells = peer.poll_and_take(milliseconds(200));
    REQUIRE(cells.size() == 1);
    CHECK(cells[0].opcode == Opcode::drain_request);
    CHECK(cells[0].tag == tag);
    CHECK((asked == 0 || cells[0].generation == number));
    number = cells[0].generation;
    CHECK(peer.poll_and_take(milliseconds(100)).empty());
    CHECK(adapter.in_quarantine(range));
  }
  // Answers to what was not asked end nothing.
  const auto answer = [&](Stag of, std::uint32_t to) {
    Cell cell = peer.cell(Opcode::drain_acknowledge, 0);
    cell.destination_queue_pair = cell.source_queue_pair = QpNumber{};
    cell.tag = of;
    cell.generation = to;
    peer.put(cell);
    peer.poll();
  };
  answer(tag, number + 1);
  answer(Stag{tag.value + 1}, number);
  CHECK(adapter.in_quarantine(range));
  SECTION("the epoch ends") {
    peer.pair.link(1).restart();
    peer.pair.come_up();
    peer.poll();
    CHECK_FALSE(adapter.in_quarantine(range));
    CHECK(adapter.counters().drains_completed == 0);
  }
  SECTION("it answers in the end") {
    answer(tag, number);
    CHECK_FALSE(adapter.in_quarantine(range));
    answer(tag, number);  // a copy
    CHECK(adapter.counters().drains_completed == 1);
  }
}

TEST_CASE("a peer's questions are remembered up to a bound, and each is answered once", "[fabric][adapter][drain]") {
  QueuePairAttributes options;
  options.lane = VirtualLane::control;
  ScriptedPeer peer(test::small_cells(), options);
  const auto ask = [&](std::uint32_t number) {
    Cell cell = peer.cell(Opcode::drain_request, 0);
    cell.destination_queue_pair = cell.source_queue_pair = QpNumber{};
    cell.tag = Stag{5};
    cell.generation = number;
    peer.put(cell);
    peer.pair.advance(microseconds(1));
    static_cast<void>(peer.host.adapter.receive(peer.pair.now()));  // without its answers
  };
  for (std::uint32_t i = 1; i <= 256; ++i) ask(i);
  ask(1);  // again: still the same question
  CHECK(peer.host.adapter.counters().dropped_drains == 0);
  ask(257);
  CHECK(peer.host.adapter.counters().dropped_drains == 1);
  std::size_t answers = 0;
  for (int i = 0; i < 100; ++i) answers += peer.poll_and_take().size();
  CHECK(answers == 256);
}

TEST_CASE("memory that is used anew after a drain is not written by what the peer had begun before",
          "[fabric][adapter][drain][sim]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{25}));
  INFO("seed " << seed);
  constexpr std::size_t kBytes = RoughGrant::kBytes;
  RoughGrant world(seed);
  auto& [two, random, granted] = world;
  Endpoint& writer = two.end(0);
  ChannelAdapter& owner = two.end(1).adapter;
  // The writer stores all over the range as fast as it can, by requests and by its own hand.
  const auto write = [&] {
    const auto bytes = 1 + static_cast<std::uint32_t>(random.below(kBytes));
    const std::size_t at = random.below(kBytes - bytes + 1);
    writer.fill(0, pattern(bytes, random.next()));
    static_cast<void>(writer.write(1, 0, bytes, granted.at(at)));
    if (const auto window = writer.adapter.claim_direct(writer.number, granted.at(at), bytes)) {
      two.pair.link(0).bridge().peer_window().write(*window, pattern(bytes, random.next()));
    }
  };
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t steps = random.below(30);
    for (std::uint64_t i = 0; i < steps; ++i) {
      write();
      two.step(microseconds(random.below(10)));
    }
    REQUIRE(owner.deregister(granted.tag) == Status::ok);
    expect_own_after_quarantine(two, random, granted, pattern(kBytes, ~seed), write,
                                [&] { return owner.in_quarantine(granted.range); });
    // The writes to the tag that was revoked have ended the queue pairs.
    two.run(milliseconds(1));
    for (std::size_t i = 0; i < 2; ++i) {
      Endpoint& end = two.end(i);
      static_cast<void>(end.take());
      REQUIRE(end.adapter.destroy_queue_pair(end.number) == Status::ok);
      end.number = end.make_queue_pair({});
      static_cast<void>(end.take());
    }
    two.connect();
    REQUIRE(granted.grant());
    two.run(milliseconds(1));
  }
  CHECK(owner.counters().drains_completed == 10);
  CHECK(writer.adapter.counters().direct_writes > 0);
}

TEST_CASE("memory is not written through a queue pair that has left its connection once that is drained",
          "[fabric][adapter][drain][sim]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{25}));
  INFO("seed " << seed);
  constexpr std::size_t kBytes = RoughGrant::kBytes;
  RoughGrant world(seed);
  auto& [two, random, granted] = world;
  Endpoint& writer = two.end(0);
  Endpoint& owner = two.end(1);
  std::size_t stored = 0;
  const auto store = [&] {
    const auto bytes = 1 + static_cast<std::uint32_t>(random.below(kBytes));
    const auto window = writer.adapter.claim_direct(writer.number, granted.at(random.below(kBytes - bytes + 1)), bytes);
    if (!window) return;
    two.pair.link(0).bridge().peer_window().write(*window, pattern(bytes, random.next()));
    ++stored;
  };
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t steps = random.below(30); steps != 0; --steps) {
      store();
      two.step(microseconds(random.below(10)));
    }
    REQUIRE(owner.adapter.modify(owner.number, QueuePairEvent::reset) == Status::ok);
    expect_own_after_quarantine(two, random, granted, pattern(kBytes, ~seed), store,
                                [&] { return owner.adapter.in_quarantine(owner.number); });
    REQUIRE(writer.adapter.modify(writer.number, QueuePairEvent::reset) == Status::ok);
    two.connect();
  }
  CHECK(owner.adapter.counters().drains_completed == 10);
  CHECK(stored > 0);
}

}  // namespace splitnic::fabric::test::adapter_drain_test
