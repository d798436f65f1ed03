// A receive that stays posted: writes with immediate use it again and again.
#include "adapter_requests.h"
#include "verbs_fixture.h"

namespace splitnic::fabric::test::adapter_standing_receive_test {
namespace {

constexpr std::uint64_t kStanding = 99;
constexpr std::size_t kPlaces = 4;

AdapterOptions patient(unsigned retries = 1000) {
  AdapterOptions options = small_cells();
  options.receiver_not_ready_delay = microseconds(100);
  options.receiver_not_ready_retries = retries;
  return options;
}

/// How a write with immediate arrives.
enum class Way : std::uint8_t { direct, one_cell, several_cells };

/// Two adapters; the queue pair of the second has a standing receive, and few places for completions.
struct World {
  explicit World(QueuePairAttributes with = {}, const AdapterOptions& options = patient())
      : two(options), near(two.end(0).make_queue_pair(with)) {
    Endpoint& to = two.end(1);
    completions = to.adapter.create_completion_queue(kPlaces);
    with.domain = to.domain;
    with.send_completions = to.completions;
    with.receive_completions = completions;
    with.standing_receive = kStanding;
    far = to.adapter.create_queue_pair(with).value();
    connect();
    const MemoryRange range{two.pair.link(1).buffers().offset, 4096};
    const Stag tag = to.adapter.register_bridge_memory(to.domain, range, kAllRights, /*placeable=*/true).value();
    direct = {to.adapter.region_address(tag), tag};
    two.run(milliseconds(1));
  }
  void connect() {
    REQUIRE(two.end(0).adapter.connect(near, {far, 1, 2}) == Status::ok);
    REQUIRE(two.end(1).adapter.connect(far, {near, 2, 1}) == Status::ok);
  }

  void write(Way way, std::uint32_t immediate) {
    WorkRequest request = write_request(immediate, two.end(0).segment(0, way == Way::several_cells ? 600 : 60),
                                        way == Way::direct ? direct : two.end(1).remote());
    request.operation = Operation::rdma_write_with_immediate;
    request.immediate = immediate;
    REQUIRE(two.end(0).adapter.post_send(near, request) == Status::ok);
  }
  void send(std::uint64_t id) {
    REQUIRE(two.end(0).adapter.post_send(near, send_request(id, two.end(0).segment(0, 8))) == Status::ok);
  }
  Status receive(std::uint64_t id) {
    return two.end(1).adapter.post_receive(far, {id, two.end(1).segment(1000, 64), {}});
  }
  std::vector<Completion> take(std::size_t most = kPlaces) {
    std::vector<Completion> all(most);
    all.resize(two.end(1).adapter.poll_completions(completions, all));
    return all;
  }
  /// The immediates of what has arrived; every completion is the standing receive's.
  std::vector<std::uint32_t> immediates(std::size_t most = kPlaces) {
    std::vector<std::uint32_t> all;
    for (const Completion& one : take(most)) {
      CHECK(one.id == kStanding);
      CHECK(one.status == CompletionStatus::success);
      CHECK(one.receive);
      CHECK(one.queue_pair == far);
      CHECK(one.operation == Operation::rdma_write_with_immediate);
      CHECK(one.has_immediate);
      all.push_back(one.immediate);
    }
    return all;
  }

  TwoEndpoints two;
  QpNumber near;
  QpNumber far{};
  CqNumber completions{};
  RemoteAddress direct{};
};

using Immediates = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("writes with immediate use a standing receive again and again, and leave the posted ones to sends",
          "[fabric][adapter][standing]") {
  const Way way = GENERATE(Way::direct, Way::one_cell, Way::several_cells);
  const bool acknowledged = GENERATE(true, false);
  World world({.acknowledged = acknowledged});
  for (std::uint32_t round = 0; round < 20; ++round) {
    REQUIRE(world.receive(7) == Status::ok);
    world.write(way, 2 * round);
    world.write(way, 2 * round + 1);
    world.two.run(milliseconds(1));
    CHECK(world.immediates() == Immediates{2 * round, 2 * round + 1});
    world.send(1);
    world.two.run(milliseconds(1));
    const auto sent = world.take();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].id == 7);
    CHECK(sent[0].operation == Operation::send);
  }
  const auto ended = world.two.end(0).take();
  CHECK(ended.size() == 60);
  for (const Completion& one : ended) CHECK(one.status == CompletionStatus::success);
}

TEST_CASE("a standing receive that finds no place for a completion is as one that is not posted",
          "[fabric][adapter][standing]") {
  const Way way = GENERATE(Way::direct, Way::one_cell, Way::several_cells);
  World world;
  REQUIRE(world.receive(7) == Status::ok);  // has a place of its own
  for (std::uint32_t i = 0; i < 8; ++i) world.write(way, i);
  world.two.run(milliseconds(5));
  CHECK(world.immediates(1) == Immediates{0});
  world.two.run(milliseconds(5));
  CHECK(world.immediates() == Immediates{1, 2, 3});
  world.two.run(milliseconds(5));
  CHECK(world.immediates() == Immediates{4, 5, 6});
  world.send(1);
  world.two.run(milliseconds(5));
  const auto last = world.take();
  REQUIRE(last.size() == 2);
  CHECK(last[0].immediate == 7);
  CHECK(last[1].id == 7);
  CHECK(world.two.settle());
}

TEST_CASE("a receive is refused the places that uses of the standing one have taken", "[fabric][adapter][standing]") {
  World world;
  for (std::uint32_t i = 0; i < kPlaces; ++i) world.write(Way::direct, i);
  world.two.run(milliseconds(1));
  CHECK(world.receive(7) == Status::queue_full);
  CHECK(world.immediates(1) == Immediates{0});
  CHECK(world.receive(7) == Status::ok);
  CHECK(world.receive(8) == Status::queue_full);
}

TEST_CASE("a sender gives up when a standing receive finds no place for too long", "[fabric][adapter][standing]") {
  const Way way = GENERATE(Way::direct, Way::one_cell, Way::several_cells);
  World world({}, patient(2));
  for (std::uint32_t i = 0; i < kPlaces + 1; ++i) world.write(way, i);
  world.two.run(milliseconds(5));
  const auto ended = world.two.end(0).take();
  REQUIRE(ended.size() == kPlaces + 1);
  CHECK(ended[kPlaces - 1].status == CompletionStatus::success);
  CHECK(ended[kPlaces].status == CompletionStatus::receiver_not_ready);
  CHECK(world.immediates() == Immediates{0, 1, 2, 3});
}

TEST_CASE("an unacknowledged write that finds no place is dropped and counted", "[fabric][adapter][standing]") {
  World world({.acknowledged = false});
  for (std::uint32_t i = 0; i < kPlaces + 2; ++i) world.write(Way::one_cell, i);
  world.two.run(milliseconds(1));
  CHECK(world.immediates() == Immediates{0, 1, 2, 3});
  CHECK(world.two.end(1).adapter.counters().dropped_no_receive == 2);
  world.write(Way::one_cell, 6);
  world.two.run(milliseconds(1));
  CHECK(world.immediates() == Immediates{6});
}

TEST_CASE("a standing receive makes no completion when its queue pair ends, and stands again after a reset",
          "[fabric][adapter][standing]") {
  World world;
  for (int life = 0; life < 3; ++life) {
    REQUIRE(world.receive(7) == Status::ok);
    world.write(Way::direct, 5);
    world.two.run(milliseconds(1));
    CHECK(world.immediates() == Immediates{5});
    REQUIRE(world.two.end(1).adapter.modify(world.far, QueuePairEvent::fail) == Status::ok);
    const auto flushed = world.take();
    REQUIRE(flushed.size() == 1);
    CHECK(flushed[0].id == 7);
    CHECK(flushed[0].status == CompletionStatus::flushed);
    REQUIRE(world.two.end(1).adapter.modify(world.far, QueuePairEvent::reset) == Status::ok);
    REQUIRE(world.two.end(0).adapter.modify(world.near, QueuePairEvent::reset) == Status::ok);
    CHECK(world.take().empty());
    world.connect();
  }
  CHECK(world.two.end(1).adapter.destroy_queue_pair(world.far) == Status::ok);
  CHECK(world.take().empty());
  CHECK(world.two.end(1).adapter.destroy_completion_queue(world.completions) == Status::ok);
}

TEST_CASE("a queue pair with a shared receive queue may have a standing receive besides",
          "[fabric][adapter][standing]") {
  TwoEndpoints two(patient());
  Endpoint& to = two.end(1);
  const SrqNumber shared = to.adapter.create_shared_receive_queue(to.domain, 4).value();
  const QpNumber near = two.end(0).make_queue_pair({});
  const QpNumber far = to.make_queue_pair({.shared_receives = shared, .standing_receive = kStanding});
  REQUIRE(two.end(0).adapter.connect(near, {far, 1, 2}) == Status::ok);
  REQUIRE(to.adapter.connect(far, {near, 2, 1}) == Status::ok);
  REQUIRE(to.adapter.post_shared_receive(shared, {7, to.segment(1000, 64), {}}) == Status::ok);
  WorkRequest request = write_request(1, two.end(0).segment(0, 60), to.remote());
  request.operation = Operation::rdma_write_with_immediate;
  for (int i = 0; i < 3; ++i) REQUIRE(two.end(0).adapter.post_send(near, request) == Status::ok);
  REQUIRE(two.end(0).adapter.post_send(near, send_request(2, two.end(0).segment(0, 8))) == Status::ok);
  CHECK(two.settle());
  std::vector<std::uint64_t> ids;
  for (const Completion& one : to.take()) ids.push_back(one.id);
  CHECK(ids == std::vector<std::uint64_t>{kStanding, kStanding, kStanding, 7});
}

TEST_CASE("datagrams and XRC targets have no standing receive", "[fabric][adapter][standing]") {
  TwoEndpoints two;
  Endpoint& end = two.end(0);
  QueuePairAttributes with;
  with.domain = end.domain;
  with.send_completions = with.receive_completions = end.completions;
  with.standing_receive = kStanding;
  CHECK(end.adapter.create_queue_pair(with));
  with.datagram = true;
  with.acknowledged = false;
  CHECK_FALSE(end.adapter.create_queue_pair(with));
  QueuePairAttributes target;
  target.domain = end.domain;
  target.xrc = XrcRole::target;
  target.xrc_domain = XrcDomain{1};
  CHECK(end.adapter.create_queue_pair(target));
  target.standing_receive = kStanding;
  CHECK_FALSE(end.adapter.create_queue_pair(target));
}

TEST_CASE("the verbs offer a standing receive", "[fabric][verbs][standing]") {
  using namespace verbs;
  QueuePairOptions shape = verbs::test::plain();
  shape.standing_receive = kStanding;
  verbs::test::Pair pair(shape);
  for (std::uint32_t i = 0; i < 20; ++i) {
    const RemoteAddress to = pair.b.region.remote_key().at(64);
    REQUIRE(pair.a.queue_pair.post_send(rdma_write_with_immediate(i, {pair.a.region.segment(0, 8)}, to, i)) ==
            Status::ok);
    const Completion arrived = pair.one(pair.b);
    CHECK(arrived.id == kStanding);
    CHECK(arrived.immediate == i);
    CHECK(pair.a.take().size() == 1);
  }
  shape.datagram = true;
  shape.acknowledged = false;
  shape.memory_requests = false;
  shape.send_completions = shape.receive_completions = &pair.a.completions;
  CHECK(verbs::test::refusal(pair.a.domain.create_queue_pair(shape)) == Status::bad_argument);
}

}  // namespace splitnic::fabric::test::adapter_standing_receive_test
