#include <array>
#include <memory>

#include "adapter_fixtures.h"
#include "bridge_fixtures.h"
#include "late_link.h"

/// Turns that look first what has come in, and leave links and timers for a moment.
namespace splitnic::fabric::test::adapter_news_test {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kPaths = 3;
constexpr std::size_t kPlaces = kPaths * kLanes;
constexpr Duration kLinksWait = microseconds(4);
constexpr Duration kTimersWait = microseconds(10);

/// Two adapters with three paths between them, and a queue pair on each lane of each path.
struct World {
  explicit World(Duration ack_timeout = AdapterOptions{}.ack_timeout) {
    AdapterOptions options;
    options.ack_timeout = ack_timeout;
    for (std::size_t i = 0; i < kPaths; ++i) {
      for (std::size_t end = 0; end < 2; ++end) {
        under[end][i] = std::make_unique<FabricLink>(bridges[i].end(end), LinkOptions{}, random);
        under[end][i]->restart();
        links[end][i].use(under[end][i].get());
      }
    }
    for (std::size_t end = 0; end < 2; ++end) {
      ends[end] = std::make_unique<Endpoint>(links[end][0], options, random, QueuePairAttributes{});
      for (std::size_t i = 1; i < kPaths; ++i) REQUIRE(ends[end]->adapter.attach(links[end][i]).has_value());
    }
    for (int i = 0; i < 1000 && !all_up(); ++i) step();
    REQUIRE(all_up());
    for (std::size_t end = 0; end < 2; ++end) {
      for (std::size_t place = 0; place < kPlaces; ++place) {
        QueuePairAttributes with;
        with.lane = static_cast<VirtualLane>(place % kLanes);
        with.memory_requests = true;
        numbers[end][place] = ends[end]->make_queue_pair(with);
      }
    }
    for (std::size_t end = 0; end < 2; ++end) {
      for (std::size_t place = 0; place < kPlaces; ++place) {
        const PathNumber path{static_cast<std::uint32_t>(place / kLanes + 1)};
        const QpNumber peer = numbers[1 - end][place];
        REQUIRE(ends[end]->adapter.connect(numbers[end][place], {peer, 1, 1, 1, path}) == Status::ok);
      }
    }
    for (int i = 0; i < 3; ++i) step();
    for (auto& of_end : links) {
      for (LateLink& link : of_end) link.polls = 0;
    }
  }
  [[nodiscard]] bool all_up() const {
    return std::ranges::all_of(links, [](const auto& of_end) { return std::ranges::all_of(of_end, &LateLink::up); });
  }
  void step() {
    now += microseconds(20);
    for (auto& end : ends) static_cast<void>(end->adapter.take_turn(now));
  }
  AdapterTurn turn(std::size_t end, Duration later) {
    now += later;
    return ends[end]->adapter.take_turn(now);
  }
  /// The first end sends; the second has a receive.
  void send(std::size_t place, std::uint64_t id) {
    ends[0]->number = numbers[0][place];
    ends[1]->number = numbers[1][place];
    REQUIRE(ends[1]->receive(id, 4096, 64) == Status::ok);
    REQUIRE(ends[0]->send(id, 0, 64) == Status::ok);
  }
  /// The first message goes the general way.
  void warm_up(std::size_t place) {
    send(place, 0);
    step();
    step();
    REQUIRE(ends[0]->take().size() == 1);
    REQUIRE(ends[1]->take().size() == 1);
  }
  [[nodiscard]] std::size_t polls(std::size_t end) const {
    std::size_t all = 0;
    for (const LateLink& link : links[end]) all += link.polls;
    return all;
  }

  SeededRandom random{3};
  Time now{};
  std::array<ShmPairBridges, kPaths> bridges{};
  std::array<std::array<std::unique_ptr<FabricLink>, kPaths>, 2> under{};
  std::array<std::array<LateLink, kPaths>, 2> links{};
  std::array<std::unique_ptr<Endpoint>, 2> ends{};
  std::array<std::array<QpNumber, kPlaces>, 2> numbers{};
};

}  // namespace

TEST_CASE("what has come in is taken at once, wherever it lies, and links wait", "[fabric][adapter][turns]") {
  World of;
  const std::size_t place = GENERATE(range(std::size_t{0}, kPlaces));
  const std::size_t other = GENERATE(range(std::size_t{0}, kPlaces));
  of.send(place, 1);
  if (other != place) of.send(other, 2);
  const AdapterTurn turn = of.turn(1, kLinksWait - nanoseconds(1));
  CHECK(turn.moved != 0);
  CHECK_FALSE(turn.rested);
  CHECK_FALSE(turn.links_changed);
  CHECK(of.ends[1]->take().size() == (other == place ? 1 : 2));
  CHECK(of.polls(1) == 0);
}

TEST_CASE("links are polled although messages come all the time", "[fabric][adapter][turns]") {
  World of;
  for (std::uint64_t id = 1; id <= 8; ++id) {
    of.send(kPlaces - 1, id);
    static_cast<void>(of.turn(1, microseconds(1)));
    CHECK(of.ends[1]->take().size() == 1);
    static_cast<void>(of.turn(0, {}));
    CHECK(of.ends[0]->take().size() == 1);
  }
  CHECK(of.polls(1) == 2 * kPaths);
}

TEST_CASE("links are polled, and nothing else is done, by a turn that finds nothing", "[fabric][adapter][turns]") {
  World of;
  CHECK(of.turn(1, nanoseconds(1)).rested);
  CHECK(of.polls(1) == 0);
  const AdapterTurn turn = of.turn(1, kLinksWait - microseconds(1));
  CHECK_FALSE(turn.rested);
  CHECK(turn.moved == 0);
  CHECK(of.polls(1) == kPaths);
  CHECK(of.turn(1, nanoseconds(1)).rested);
}

TEST_CASE("a turn says whether a link has come up or gone down", "[fabric][adapter][turns]") {
  World of;
  of.links[1][1].use(nullptr);
  of.ends[1]->adapter.follow(PathNumber{2});
  of.under[1][1]->restart();
  of.links[1][1].use(of.under[1][1].get());
  bool changed = false;
  for (int i = 0; i < 1000 && !of.all_up(); ++i) {
    of.turn(0, microseconds(2));
    changed = of.turn(1, {}).links_changed || changed;
  }
  CHECK(of.all_up());
  CHECK(changed);
}

TEST_CASE("timers of what is under way begin soon after a turn that only completes", "[fabric][adapter][turns]") {
  World of;
  Endpoint& sender = *of.ends[0];
  of.warm_up(1);
  of.send(1, 1);
  static_cast<void>(of.turn(1, microseconds(1)));
  SECTION("while the next message is under way") {
    of.send(1, 2);
    CHECK(of.turn(0, {}).moved != 0);
    CHECK(sender.take().size() == 1);
    CHECK(sender.adapter.next_deadline() <= of.now + kTimersWait);
    SECTION("with a later turn") { static_cast<void>(of.turn(0, kTimersWait)); }
    SECTION("or before a sleep") { REQUIRE(sender.adapter.prepare_sleep()); }
    SECTION("or before another sleep") { REQUIRE(sender.adapter.rearm()); }
    CHECK(sender.adapter.next_deadline() == of.now + AdapterOptions{}.ack_timeout);
  }
  SECTION("and not if nothing is") {
    CHECK(of.turn(0, {}).moved != 0);
    CHECK(sender.take().size() == 1);
    CHECK(sender.adapter.next_deadline() == kNever);
    CHECK_FALSE(sender.adapter.outstanding());
  }
}

TEST_CASE("an end that sleeps after a turn sleeps until its timers", "[fabric][adapter][turns]") {
  World of;
  Endpoint& sender = *of.ends[0];
  of.warm_up(1);
  of.send(1, 1);
  SECTION("of both") { static_cast<void>(of.turn(0, microseconds(1))); }
  SECTION("of the adapter alone") {
    of.now += microseconds(1);
    static_cast<void>(sender.adapter.poll(of.now));
  }
  SECTION("that has completed one of two requests") {
    of.send(1, 2);
    static_cast<void>(of.turn(0, 2 * kTimersWait));
    FabricLink& peer = *of.under[1][0];
    REQUIRE(peer.front(VirtualLane::data) != nullptr);
    peer.pop(VirtualLane::data);
    peer.settle(VirtualLane::data);
    REQUIRE(peer.return_room(VirtualLane::data, true));
    CHECK(of.turn(0, microseconds(1)).moved != 0);
  }
  REQUIRE(sender.adapter.prepare_sleep());
  CHECK(sender.adapter.next_deadline() == of.now + AdapterOptions{}.ack_timeout);
}

TEST_CASE("timers of what was posted after a turn begin with the next one", "[fabric][adapter][turns]") {
  World of;
  Endpoint& sender = *of.ends[0];
  of.warm_up(1);
  of.send(1, 1);
  static_cast<void>(of.turn(0, microseconds(1)));
  of.send(1, 2);  // perhaps much later: the adapter has no clock
  REQUIRE(sender.adapter.prepare_sleep());
  CHECK(sender.adapter.next_deadline() <= of.now + kTimersWait);
}

TEST_CASE("timers have their turn although each turn brings a message that is answered", "[fabric][adapter][turns]") {
  World of(microseconds(30));
  Endpoint& answering = *of.ends[1];
  for (std::uint64_t id = 1; id <= 60; ++id) {
    of.send(1, id);  // the asking end does not look at the answers
    static_cast<void>(of.turn(1, microseconds(1)));
    static_cast<void>(answering.take());
    REQUIRE(answering.send(id, 0, 64) == Status::ok);
  }
  CHECK(answering.adapter.counters().timeouts >= 1);
}

TEST_CASE("a queue pair that drains says so in the turn that completes its last request", "[fabric][adapter][turns]") {
  World of;
  Endpoint& sender = *of.ends[0];
  of.send(1, 1);
  REQUIRE(sender.adapter.modify(sender.number, QueuePairEvent::drain_sends) == Status::ok);
  static_cast<void>(of.turn(0, 2 * kTimersWait));
  static_cast<void>(of.turn(1, microseconds(1)));
  CHECK(of.turn(0, {}).moved != 0);
  std::array<AsyncEvent, 2> events;
  CHECK(sender.adapter.poll_events(events) == 1);
  CHECK(events[0].kind == AsyncEventKind::send_queue_drained);
}

TEST_CASE("a queue pair that drains with nothing in flight says so at once, although its end goes to sleep",
          "[fabric][adapter][turns]") {
  World of;
  Endpoint& sender = *of.ends[0];
  const bool others_send = GENERATE(false, true);
  if (others_send) {
    of.warm_up(1);
    of.send(1, 1);
    static_cast<void>(of.turn(0, microseconds(1)));
  }
  const QpNumber drains = of.numbers[0][0];
  REQUIRE(sender.adapter.modify(drains, QueuePairEvent::drain_sends) == Status::ok);
  static_cast<void>(sender.adapter.prepare_sleep());
  std::array<AsyncEvent, 2> events;
  REQUIRE(sender.adapter.poll_events(events) == 1);
  CHECK(events[0].kind == AsyncEventKind::send_queue_drained);
  CHECK(events[0].queue_pair == drains);
  for (int i = 0; i < 3; ++i) of.step();
  CHECK(sender.adapter.poll_events(events) == 0);
}

TEST_CASE("what has waited for a request begins in the turn that completes it", "[fabric][adapter][turns]") {
  World of;
  Endpoint& sender = *of.ends[0];
  of.send(1, 1);
  const auto old = sender.adapter.register_memory(sender.domain, std::span(sender.buffer).first(64), kLocalRights);
  REQUIRE(old.has_value());
  WorkRequest request;
  request.operation = Operation::local_invalidate;
  request.invalidate = *old;
  REQUIRE(sender.adapter.post_send(sender.number, request) == Status::ok);
  static_cast<void>(of.turn(0, 2 * kTimersWait));
  CHECK(sender.take().empty());
  static_cast<void>(of.turn(1, microseconds(1)));
  CHECK(of.turn(0, {}).moved != 0);
  CHECK(sender.take().size() == 2);
}

}  // namespace splitnic::fabric::test::adapter_news_test
