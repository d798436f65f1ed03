#include <array>
#include <memory>
#include <vector>

#include "adapter_requests.h"
#include "bridge_fixtures.h"
#include "fabric/link/loopback.h"
#include "late_link.h"

/// Paths over links that come up after they were attached and that go on over other bridges later, as those between
/// endnodes do; and over both ends of a loop-back link. Messages go the short way on them, too.
namespace splitnic::fabric::test::adapter_late_links_test {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

/// The two ends of a bridge.
struct Bridged {
  explicit Bridged(RandomSource& random) {
    for (std::size_t i = 0; i < 2; ++i) {
      links[i] = std::make_unique<FabricLink>(bridges.end(i), LinkOptions{}, random);
      links[i]->restart();
    }
  }
  ShmPairBridges bridges;
  std::array<std::unique_ptr<FabricLink>, 2> links;
};

/// Two ends whose links have no bridge at first.
struct Late {
  Late() {
    for (std::size_t i = 0; i < 2; ++i) {
      ends[i] = std::make_unique<Endpoint>(links[i], AdapterOptions{}, random, QueuePairAttributes{});
    }
    meet();
  }
  void step() {
    now += microseconds(10);
    for (auto& end : ends) {
      end->adapter.poll_links(now);
      end->adapter.poll(now);
    }
  }
  /// Queue pairs that are connected to each other.
  void connect() {
    for (auto& end : ends) end->number = end->make_queue_pair({});
    REQUIRE(ends[0]->adapter.connect(ends[0]->number, {ends[1]->number, 7, 9}) == Status::ok);
    REQUIRE(ends[1]->adapter.connect(ends[1]->number, {ends[0]->number, 9, 7}) == Status::ok);
  }
  /// A new bridge; what was on the old one is gone.
  void meet() {
    const std::unique_ptr<Bridged> before = std::exchange(bridged, std::make_unique<Bridged>(random));
    for (std::size_t i = 0; i < 2; ++i) use(i, bridged->links[i].get());
    for (int i = 0; i < 1000 && !(links[0].up() && links[1].up()); ++i) step();
    REQUIRE((links[0].up() && links[1].up()));
    step();
    connect();
  }
  void use(std::size_t end, FabricLink* under) {
    links[end].use(under);
    ends[end]->adapter.follow(PathNumber{1});
  }
  /// The first end sends a message to the second.
  void exchange() {
    ++messages;
    REQUIRE(ends[1]->receive(messages, 4096, 64) == Status::ok);
    REQUIRE(ends[0]->send(messages, 0, 64) == Status::ok);
    for (int i = 0; i < 4; ++i) step();
    for (auto& end : ends) {
      const auto done = end->take();
      REQUIRE(done.size() == 1);
      CHECK(done[0].id == messages);
      CHECK(done[0].status == CompletionStatus::success);
    }
  }
  /// The first message finds its memory in the table, and those after it remember it.
  void check_short_way() {
    exchange();
    for (LateLink& link : links) link.cells = 0;
    for (int i = 0; i < 10; ++i) exchange();
    CHECK(links[0].cells == 0);
    CHECK(links[1].cells == 0);
  }

  SeededRandom random{3};
  Time now{};
  std::uint64_t messages = 0;
  std::unique_ptr<Bridged> bridged;
  std::array<LateLink, 2> links;
  std::array<std::unique_ptr<Endpoint>, 2> ends;
};

}  // namespace

TEST_CASE("messages go the short way over a link that came up after it was attached, and over each later bridge",
          "[fabric][adapter][express]") {
  Late late;
  for (int bridge = 0; bridge < 3; ++bridge) {
    late.check_short_way();
    late.meet();
  }
}

TEST_CASE("a bridge that is replaced while messages are under way ends them, and nobody looks at its lanes again",
          "[fabric][adapter][express]") {
  Late late;
  late.check_short_way();
  Endpoint& first = *late.ends[0];
  REQUIRE(first.send(100, 0, 64) == Status::ok);  // finds no receive
  late.step();
  REQUIRE(first.send(101, 0, 64) == Status::ok);
  REQUIRE(late.ends[1]->receive(102, 0, 64) == Status::ok);
  for (std::size_t i = 0; i < 2; ++i) late.use(i, nullptr);
  late.bridged.reset();
  static_cast<void>(first.adapter.rests(late.now));
  CHECK(first.adapter.in_error(first.number));
  CHECK(first.take().size() == 2);
  CHECK(late.ends[1]->take().size() == 1);
  CHECK(first.send(103, 0, 64) == Status::bad_state);
  late.step();
  late.meet();
  late.check_short_way();
}

TEST_CASE("a path without a peer does not keep an adapter from resting", "[fabric][adapter][turns]") {
  Late late;
  LateLink lonely;
  ChannelAdapter& adapter = late.ends[0]->adapter;
  REQUIRE(adapter.attach(lonely).has_value());
  SECTION("whose peer has not come yet") {}
  SECTION("whose peer has gone") {
    Bridged other(late.random);
    lonely.use(other.links[0].get());
    for (int i = 0; i < 1000 && !lonely.up(); ++i) {
      late.step();
      other.links[1]->poll(late.now);
    }
    REQUIRE(lonely.up());
    late.step();
    lonely.use(nullptr);
    adapter.follow(PathNumber{2});
  }
  late.step();
  late.step();
  late.now += nanoseconds(100);
  CHECK(adapter.rests(late.now));
  REQUIRE(late.ends[1]->send(1, 0, 64) == Status::ok);
  CHECK_FALSE(adapter.rests(late.now));
}

TEST_CASE("a path that is detached before its link came up fails the queue pairs that await it", "[fabric][adapter]") {
  SeededRandom random(5);
  LateLink link;
  Endpoint end(link, AdapterOptions{}, random, QueuePairAttributes{});
  REQUIRE(end.adapter.connect(end.number, {QpNumber{77}, 7, 9}) == Status::ok);
  REQUIRE(end.send(1, 0, 64) == Status::ok);
  REQUIRE(end.receive(2, 4096, 64) == Status::ok);
  REQUIRE(end.adapter.detach(PathNumber{1}) == Status::ok);
  CHECK(end.send(3, 0, 64) == Status::bad_state);
  end.adapter.poll(Time{} + microseconds(10));
  CHECK(end.adapter.in_error(end.number));
  CHECK(how(end.take()) == std::vector<std::string>{"flushed", "flushed"});
  const auto events = take_events(end);
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == AsyncEventKind::queue_pair_fatal);
  CHECK_FALSE(end.adapter.outstanding());
}

TEST_CASE("a queue pair that is connected when the peer has gone owes the next one nothing", "[fabric][adapter]") {
  LinkedPair pair;
  LateLink late;
  late.use(&pair.link(0));
  Endpoint end(late, AdapterOptions{}, pair.random(), QueuePairAttributes{});
  REQUIRE(end.adapter.connect(end.number, {QpNumber{77}, 7, 9}) == Status::ok);
  FabricLink& peer = pair.link(1);
  const auto poll = [&] {
    pair.advance(microseconds(20));
    end.adapter.poll(pair.now());
    pair.advance(Duration::zero());
  };
  // The peer takes nothing, until a refusal has to speak for all of its messages.
  std::uint32_t sent = 0;
  while (!pair.link(0).wants_room(VirtualLane::data)) {
    Cell lost;
    lost.opcode = Opcode::send_only;
    lost.destination_queue_pair = QpNumber{0xabcde};
    lost.packet_sequence = sent++;
    lost.awaited = true;
    ClaimedPayload none;
    REQUIRE(peer.claim(VirtualLane::data, lost, 0, none));
    std::uint32_t packet_crc = kPacketCrcStart;
    static_cast<void>(peer.release(VirtualLane::data, lost, packet_crc));
    if (sent % 32 == 0) poll();
  }
  poll();
  const std::uint64_t refusals = end.adapter.counters().not_taken_sent;
  REQUIRE(refusals < sent);
  while (peer.front(VirtualLane::data) != nullptr) peer.pop(VirtualLane::data);
  static_cast<void>(peer.return_room(VirtualLane::data, true));
  poll();
  REQUIRE(end.adapter.counters().not_taken_sent == refusals + 1);
  const std::uint64_t acknowledgements = end.adapter.counters().acknowledgements_sent;
  late.use(nullptr);
  end.adapter.follow(PathNumber{1});

  enum class Next { none, begins, is_up };
  const Next next = GENERATE(Next::none, Next::begins, Next::is_up);
  LinkedPair fresh;
  if (next == Next::begins) fresh.link(0).restart();
  if (next != Next::none) late.use(&fresh.link(0));
  end.adapter.follow(PathNumber{1});
  REQUIRE(late.up() == (next == Next::is_up));
  const QpNumber made = end.make_queue_pair({});
  REQUIRE(end.adapter.connect(made, {QpNumber{78}, 1, 1}) == Status::ok);
  for (int i = 0; i < 5; ++i) poll();
  CHECK(end.adapter.state(made) == QueuePairState::ready_to_send);
  CHECK(end.adapter.counters().acknowledgements_sent == acknowledgements);
  CHECK_FALSE(end.adapter.outstanding());
}

TEST_CASE("messages between queue pairs of one adapter go the short way", "[fabric][adapter][express]") {
  SeededRandom random(5);
  Time now{};
  auto loopback = Loopback::create({}, {&random, &random});
  REQUIRE(loopback.has_value());
  std::array<LateLink, 2> links;
  for (std::size_t i = 0; i < 2; ++i) links[i].use(&(*loopback)->end(i));
  Endpoint both(links[0], AdapterOptions{}, random, QueuePairAttributes{});
  const PathNumber out{1};
  const auto back = both.adapter.attach(links[1]);
  REQUIRE(back.has_value());
  REQUIRE(both.adapter.pair(out, *back) == Status::ok);
  const auto step = [&] {
    now += microseconds(10);
    both.adapter.poll_links(now);
    both.adapter.poll(now);
  };
  for (int i = 0; i < 1000 && !(links[0].up() && links[1].up()); ++i) step();
  step();
  const QpNumber other = both.make_queue_pair({});
  REQUIRE(both.adapter.connect(both.number, {other, 7, 9, 1, out}) == Status::ok);
  REQUIRE(both.adapter.connect(other, {both.number, 9, 7, 1, out}) == Status::ok);
  for (std::uint64_t id = 0; id < 10; ++id) {
    if (id == 1) links[0].cells = links[1].cells = 0;
    REQUIRE(both.adapter.post_receive(other, {id, both.segment(4096, 64)}) == Status::ok);
    REQUIRE(both.send(id, 0, 64) == Status::ok);
    for (int i = 0; i < 4; ++i) step();
    CHECK(both.take().size() == 2);
  }
  CHECK(links[0].cells == 0);
  CHECK(links[1].cells == 0);
}

}  // namespace splitnic::fabric::test::adapter_late_links_test
