#include <catch2/catch.hpp>
#include <numeric>

#include "verbs_fixture.h"

// Again last, as in the fixture.

namespace splitnic::verbs::test::verbs_lifetime_test {

using enum CompletionStatus;

namespace {

constexpr std::size_t kHandles = 10;

/// One of each kind, in the midst of work.
struct Everything {
  explicit Everything(Bridges& bridges, std::size_t index) {
    ContextOptions options;
    options.random = &bridges.random();
    context = made(Context::open(options));
    path = made(context.add_path(bridges.end(index)));
    domain = made(context.allocate_domain());
    channel = made(context.create_completion_channel());
    completions = made(context.create_completion_queue(64, &channel));
    shared = made(domain.create_shared_receive_queue(8));
    region = made(domain.register_memory(memory, kEverything));
    type_1 = made(domain.allocate_window(WindowType::type_1));
    type_2 = made(domain.allocate_window(WindowType::type_2));
    QueuePairOptions shape = plain();
    shape.send_completions = shape.receive_completions = &completions;
    shape.shared_receives = &shared;
    queue_pair = made(domain.create_queue_pair(shape));
  }
  void be_busy() {
    REQUIRE(completions.arm(Arm::next) == Status::ok);
    for (std::uint64_t id = 0; id < 4; ++id) {
      REQUIRE(shared.post_receive(receive(id, region.segment(0, 64))) == Status::ok);
    }
    Binding binding;
    binding.bytes = 8;
    binding.rights = binding.rights | Right::remote_write;
    REQUIRE(queue_pair.post_bind(type_1, region, binding) == Status::ok);
    REQUIRE(queue_pair.post_bind(type_2, region, binding) == Status::ok);
    for (std::uint64_t id = 0; id < 4; ++id) {
      REQUIRE(queue_pair.post_send(send(id, {region.segment(0, 32)})) == Status::ok);
    }
  }
  void let_go(std::size_t which) {
    switch (which) {
      case 0:
        context = Context();
        return;
      case 1:
        domain = ProtectionDomain();
        return;
      case 2:
        channel = CompletionChannel();
        return;
      case 3:
        completions = CompletionQueue();
        return;
      case 4:
        shared = SharedReceiveQueue();
        return;
      case 5:
        region = MemoryRegion();
        return;
      case 6:
        type_1 = MemoryWindow();
        return;
      case 7:
        type_2 = MemoryWindow();
        return;
      case 8:
        path = Path();
        return;
      default:
        queue_pair = QueuePair();
        return;
    }
  }
  /// With whatever is left: answers, whichever they are.
  void use() {
    std::array<Completion, 64> some;
    static_cast<void>(completions.poll(some));
    static_cast<void>(channel.take());
    static_cast<void>(region.valid());
    static_cast<void>(type_1.remote_key());
    static_cast<void>(type_2.remote_key());
    static_cast<void>(queue_pair.post_send(send(9, {region.segment(0, 8)})));
    static_cast<void>(queue_pair.post_bind(type_1, region, Binding{}));
    static_cast<void>(queue_pair.post_unbind(type_2));
    static_cast<void>(shared.post_receive(receive(9, region.segment(0, 8))));
    context.poll(Time{} + milliseconds(20));
  }

  std::vector<std::byte> memory = std::vector<std::byte>(256);
  Context context;
  Path path;
  ProtectionDomain domain;
  CompletionChannel channel;
  CompletionQueue completions;
  SharedReceiveQueue shared;
  MemoryRegion region;
  MemoryWindow type_1;
  MemoryWindow type_2;
  QueuePair queue_pair;
};

/// What an adapter has room for, all of it: nothing of what was let go stays behind.
void fill_up(End& end) {
  const AdapterLimits limits = end.context.limits();
  std::vector<CompletionChannel> channels(limits.completion_channels);
  for (auto& channel : channels) channel = made(end.context.create_completion_channel());
  std::vector<CompletionQueue> queues(limits.completion_queues - 1);
  for (auto& queue : queues) queue = made(end.context.create_completion_queue(4));
  std::vector<SharedReceiveQueue> shared(limits.shared_receive_queues);
  for (auto& queue : shared) queue = made(end.domain.create_shared_receive_queue(4));
  std::vector<MemoryRegion> regions(limits.tags - 1);
  for (auto& region : regions) region = made(end.domain.register_memory(end.memory, kLocal));
  std::vector<QueuePair> queue_pairs(limits.queue_pairs - 1);
  for (auto& queue_pair : queue_pairs) queue_pair = end.another(plain());
  CHECK(refusal(end.context.create_completion_channel()) == Status::no_resources);
  CHECK(refusal(end.context.create_completion_queue(4)) == Status::no_resources);
  CHECK(refusal(end.domain.create_shared_receive_queue(4)) == Status::no_resources);
  CHECK(refusal(end.domain.register_memory(end.memory, kLocal)) == Status::no_resources);
  CHECK(refusal(end.domain.allocate_region(1)) == Status::no_resources);
  CHECK(refusal(end.domain.allocate_window(WindowType::type_1)) == Status::no_resources);
  CHECK(refusal(end.domain.register_bridge_memory(end.path, 0, 64, kLocal)) == Status::no_resources);
  QueuePairOptions shape = plain();
  shape.send_completions = shape.receive_completions = &end.completions;
  CHECK(refusal(end.domain.create_queue_pair(shape)) == Status::no_resources);
}

}  // namespace

TEST_CASE("verbs: handles go in any order, in the midst of work", "[fabric][verbs]") {
  SeededRandom random(3);
  std::array<std::size_t, kHandles> order;
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto shuffle = [&] {
    for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  };
  // 400 of the 362 880 orders: every pair of handles goes in both orders many times, with 0 to 2 polls of work done.
  for (int round = 0; round < 400; ++round) {
    shuffle();
    Bridges bridges;
    Everything one(bridges, 0);
    Everything other(bridges, 1);
    Time now{};
    const auto run = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        now += milliseconds(1);
        bridges.sim().advance(now);
        one.context.poll(now);
        other.context.poll(now);
      }
    };
    while (!(one.path.up() && other.path.up())) run(1);
    REQUIRE(one.queue_pair.connect(other.queue_pair.address()) == Status::ok);
    REQUIRE(other.queue_pair.connect(one.queue_pair.address()) == Status::ok);
    one.be_busy();
    other.be_busy();
    run(static_cast<int>(random.below(3)));
    for (const std::size_t which : order) {
      one.let_go(which);
      one.use();
      run(1);
    }
    other.use();
  }
}

TEST_CASE("verbs: what is let go of makes room", "[fabric][verbs]") {
  Pair pair;
  for (int round = 0; round < 3; ++round) fill_up(pair.a);
  for (int i = 0; i < 1000; ++i) static_cast<void>(made(pair.a.context.allocate_domain()));
}

TEST_CASE("verbs: a handle that is assigned to lets go of what it had, and is itself after self-assignment",
          "[fabric][verbs]") {
  Pair pair;
  const Stag before = pair.a.region.tag();
  MemoryRegion& same = pair.a.region;
  pair.a.region = std::move(same);
  REQUIRE(pair.a.region);
  CHECK(pair.a.region.tag() == before);
  const RemoteKey key = pair.b.region.remote_key();
  pair.b.region = made(pair.b.domain.register_memory(pair.b.memory, kEverything));
  CHECK(pair.write(key.at()) == remote_access_error);
  CHECK(pair.write(pair.b.region.remote_key().at()) == success);
  MemoryRegion moved = std::move(pair.b.region);
  CHECK(pair.write(moved.remote_key().at()) == success);
}

TEST_CASE("verbs: a queue's completions outlive the queue pair, whose requests are flushed", "[fabric][verbs]") {
  Pair pair;
  REQUIRE(pair.a.queue_pair.post_receive(receive(1, pair.a.region.segment(0, 8))) == Status::ok);
  REQUIRE(pair.a.queue_pair.post_send(delay(2, milliseconds(10))) == Status::ok);
  pair.a.queue_pair = QueuePair();
  const auto ends = pair.a.take();
  REQUIRE(ends.size() == 2);
  for (const Completion& end : ends) CHECK(end.status == flushed);
}

TEST_CASE("verbs: a new epoch fails every queue pair and voids the bridge's regions; other keys stay good",
          "[fabric][verbs]") {
  Pair pair;
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_1));
  MemoryRegion bridge = made(pair.b.domain.register_bridge_memory(pair.b.path, 0, 4096, kEverything));
  MemoryWindow on_bridge = made(pair.b.domain.allocate_window(WindowType::type_1));
  SharedReceiveQueue shared = made(pair.b.domain.create_shared_receive_queue(4));
  Binding binding;
  binding.bytes = 64;
  binding.rights = binding.rights | Right::remote_write;
  bound(pair, pair.b, window, binding);
  const RemoteKey key = pair.b.region.remote_key();
  const RemoteKey window_key = window.remote_key();
  const RemoteKey bridge_key = bridge.remote_key();
  REQUIRE(pair.a.queue_pair.post_send(delay(1, milliseconds(500))) == Status::ok);
  REQUIRE(pair.a.queue_pair.post_send(send(2, {pair.a.region.segment(0, 8)})) == Status::ok);
  std::array<std::byte, 8> word{};
  REQUIRE(bridge.load(0, word) == Status::ok);
  pair.next_epoch();

  for (End* end : {&pair.a, &pair.b}) {
    bool reported = false;
    for (const AsyncEvent& event : end->events()) reported = reported || event.kind == AsyncEventKind::path_down;
    CHECK(reported);
    CHECK(end->queue_pair.state() == QueuePairState::error);
    CHECK(end->region.valid());
    CHECK(end->queue_pair.post_send(send(1, {})) == Status::bad_state);
  }
  const auto ends = pair.a.take();
  REQUIRE(ends.size() == 2);
  for (const Completion& end : ends) CHECK(end.status != success);
  pair.b.take();
  CHECK(window.valid());
  CHECK(pair.b.region.remote_key().tag == key.tag);
  CHECK(shared.post_receive(receive(1, pair.b.region.segment(0, 8))) == Status::ok);
  CHECK_FALSE(bridge.valid());
  CHECK(bridge.tag() == Stag{});
  CHECK(bridge.size() == 0);
  CHECK(bridge.load(0, word) == Status::bad_tag);
  CHECK(bridge.store(0, word) == Status::bad_tag);
  CHECK(refusal(bridge.remote_key(0, 8)) == Status::bad_tag);

  pair.mend();
  CHECK(pair.b.queue_pair.post_bind(on_bridge, bridge, binding) == Status::bad_tag);
  CHECK(pair.write(key.at()) == success);
  CHECK(pair.write(window_key.at()) == success);
  CHECK(pair.write(bridge_key.at()) == remote_access_error);
  // The index becomes another's: the void handle neither opens nor ends what is its heir's.
  MemoryRegion heir;
  for (int i = 0; i < 100'000 && (!heir || heir.tag().index() != bridge_key.tag.index()); ++i) {
    heir = made(pair.b.domain.register_memory(pair.b.memory, kEverything));
  }
  REQUIRE(heir.tag().index() == bridge_key.tag.index());
  CHECK_FALSE(bridge.valid());
  CHECK(bridge.load(0, word) == Status::bad_tag);
  CHECK(bridge.tag() == Stag{});
  CHECK(bridge.deregister() == Status::ok);
  CHECK(heir.valid());
  CHECK(pair.write(heir.remote_key().at()) == success);
}

TEST_CASE("verbs: a context alone at its bridge waits, and its objects are made all the same", "[fabric][verbs]") {
  Bridges bridges;
  End end(bridges, 0, plain(), DomainRules::verbs);
  CHECK_FALSE(end.path.up());
  CHECK(end.path.bridge_bytes() == 0);
  CHECK(end.region.valid());
  CHECK(end.queue_pair.connect({PortAddress{1}, QpNumber{99}, 0, 0}) == Status::link_down);
  CHECK(end.queue_pair.post_send(send(1, {})) == Status::bad_state);
  CHECK(end.queue_pair.post_receive(receive(1, end.region.segment(0, 8))) == Status::ok);
  CHECK(refusal(end.domain.register_bridge_memory(end.path, 0, 64, kLocal)) == Status::link_down);
  CHECK(end.context.next_deadline(Time{}) < kNever);
}

}  // namespace splitnic::verbs::test::verbs_lifetime_test
