#include "verbs_misuse.h"

#include <sys/mman.h>

// Again last, as in the fixture.
#include <catch2/catch.hpp>

namespace splitnic::verbs::test::verbs_limits_test {

TEST_CASE("verbs, misuse: at each limit, and one beyond", "[fabric][verbs][misuse]") {
  Pair pair;
  End& a = pair.a;
  const AdapterLimits limits = a.context.limits();
  QueuePairOptions shape = plain();
  shape.send_completions = shape.receive_completions = &a.completions;
  const auto with = [&](auto change) {
    QueuePairOptions changed = shape;
    change(changed);
    return refusal(a.domain.create_queue_pair(changed));
  };
  const Status over = Status::bad_length;
  const auto windows = [&](std::size_t count) { return refusal(a.domain.allocate_windows(WindowType::type_1, count)); };
  check({{"windows", windows(limits.tags - 1), Status::ok}});
  check({{"windows + 1", windows(limits.tags), Status::no_resources}});
  check({{"windows, beyond the table", windows(SIZE_MAX), Status::no_resources}});
  check({{"no windows", windows(0), over}});
  check({
      {"completions", refusal(a.context.create_completion_queue(limits.completion_depth)), Status::ok},
      {"completions + 1", refusal(a.context.create_completion_queue(limits.completion_depth + 1)), over},
      {"no completions", refusal(a.context.create_completion_queue(0)), over},
      {"completions, all", refusal(a.context.create_completion_queue(SIZE_MAX)), over},
      {"shared", refusal(a.domain.create_shared_receive_queue(limits.queue_depth)), Status::ok},
      {"shared + 1", refusal(a.domain.create_shared_receive_queue(limits.queue_depth + 1)), over},
      {"no shared", refusal(a.domain.create_shared_receive_queue(0)), over},
      {"pages", refusal(a.domain.allocate_region(std::size_t{1} << 20U)), Status::ok},
      {"pages + 1", refusal(a.domain.allocate_region((std::size_t{1} << 20U) + 1)), over},
      {"no pages", refusal(a.domain.allocate_region(0)), over},
      {"no memory", refusal(a.domain.register_memory({}, kLocal)), over},
      {"bridge", refusal(a.domain.register_bridge_memory(a.path, 0, a.path.bridge_bytes(), kLocal)), Status::ok},
      {"send depth", with([&](auto& o) { o.send_depth = limits.queue_depth; }), Status::ok},
      {"send depth + 1", with([&](auto& o) { o.send_depth = limits.queue_depth + 1; }), over},
      {"send depth 0", with([&](auto& o) { o.send_depth = 0; }), over},
      {"receive depth", with([&](auto& o) { o.receive_depth = limits.queue_depth; }), Status::ok},
      {"receive depth + 1", with([&](auto& o) { o.receive_depth = limits.queue_depth + 1; }), over},
      {"receive depth 0", with([&](auto& o) { o.receive_depth = 0; }), Status::ok},
      {"inline", with([&](auto& o) { o.max_inline_bytes = limits.inline_bytes; }), Status::ok},
      {"inline + 1", with([&](auto& o) { o.max_inline_bytes = limits.inline_bytes + 1; }), over},
      {"reads in", with([&](auto& o) { o.reads_in = limits.reads_in; }), Status::ok},
      {"reads in + 1", with([&](auto& o) { o.reads_in = limits.reads_in + 1; }), over},
      {"reads out", with([&](auto& o) { o.reads_out = limits.reads_out; }), Status::ok},
      {"reads out + 1", with([&](auto& o) { o.reads_out = limits.reads_out + 1; }), over},
      {"delay", a.queue_pair.post_send(delay(1, limits.delay)), Status::ok},
      {"delay + 1", a.queue_pair.post_send(delay(1, limits.delay + Duration(1))), kBad},
  });
  REQUIRE(a.queue_pair.modify(QueuePairState::error) == Status::ok);
  pair.mend();
  a.take();
  const std::size_t all = a.path.bridge_bytes();
  check({
      {"bridge + 1", refusal(a.domain.register_bridge_memory(a.path, 0, all + 1, kLocal)), over},
      {"bridge, end + 1", refusal(a.domain.register_bridge_memory(a.path, 1, all, kLocal)), over},
      {"bridge, at the end", refusal(a.domain.register_bridge_memory(a.path, all, 1, kLocal)), over},
      {"bridge, wrapping", refusal(a.domain.register_bridge_memory(a.path, SIZE_MAX, 2, kLocal)), over},
      {"bridge, nothing", refusal(a.domain.register_bridge_memory(a.path, 0, 0, kLocal)), over},
  });
  still_works(pair);
}

TEST_CASE("verbs, misuse: lengths at the limit, and one byte or segment beyond", "[fabric][verbs][misuse]") {
  Pair pair;
  End& a = pair.a;
  const AdapterLimits limits = a.context.limits();
  const Status over = Status::bad_length;
  std::vector<std::byte> large(limits.message_bytes + 1);
  const MemoryRegion region = made(a.domain.register_memory(large, kLocal));
  QueuePair waiting = a.another(plain());
  QueuePair other = pair.b.another(plain());
  Pair::connect(waiting, other);
  const RemoteAddress there = pair.b.region.remote_key().at();
  const LocalSegment word = region.segment(0, 8);
  WorkRequest inlined = send(1, {region.segment(0, 64)});
  inlined.inline_data = true;
  WorkRequest inlined_more = send(1, {region.segment(0, 64), region.segment(0, 1)});
  inlined_more.inline_data = true;
  WorkRequest counted = send(1, {word});
  counted.segment_count = SIZE_MAX;
  WorkRequest most = send(1, {});
  most.segments.fill(word);
  most.segment_count = limits.segments;
  REQUIRE(limits.segments == most.segments.size());
  WorkRequest one_more = most;
  ++one_more.segment_count;
  check({
      {"message", waiting.post_send(rdma_write(1, {region.segment(0, limits.message_bytes)}, there)), Status::ok},
      {"message + 1", waiting.post_send(rdma_write(1, {region.segment(0, large.size())}, there)), over},
      {"message + 1 in two",
       waiting.post_send(send(1, {region.segment(0, 1), region.segment(0, limits.message_bytes)})), over},
      {"read + 1", waiting.post_send(rdma_read(1, {region.segment(0, large.size())}, there)), over},
      {"a segment beyond 32 bits", waiting.post_send(send(1, {region.segment(0, std::size_t{1} << 40U)})), over},
      {"segments", waiting.post_send(most), Status::ok},
      {"segments + 1", waiting.post_send(one_more), over},
      {"segments, all", waiting.post_send(counted), over},
      {"no segment", waiting.post_send(send(1, {})), Status::ok},
      {"inline", waiting.post_send(inlined), Status::ok},
      {"inline + 1", waiting.post_send(inlined_more), over},
  });
  const std::vector<LocalSegment> more(limits.segments, word);
  ReceiveRequest scattered = receive(1, word);
  scattered.more = std::span(more).first(limits.segments - 1);
  CHECK(waiting.post_receive(scattered) == Status::ok);
  scattered.more = more;
  CHECK(waiting.post_receive(scattered) == over);

  SharedReceiveQueue shared = made(a.domain.create_shared_receive_queue(4));
  CHECK(shared.post_receive(scattered) == over);
  CHECK(shared.arm_limit(4) == Status::ok);
  CHECK(shared.arm_limit(5) == kBad);

  std::array<std::byte, 8> bytes{};
  MemoryRegion& own = a.region;
  check({
      {"key", refusal(own.remote_key(0, End::kBytes)), Status::ok},
      {"key + 1", refusal(own.remote_key(0, End::kBytes + 1)), over},
      {"key at the end", refusal(own.remote_key(End::kBytes, 0)), Status::ok},
      {"key beyond the end", refusal(own.remote_key(End::kBytes + 1, 0)), over},
      {"key, wrapping", refusal(own.remote_key(SIZE_MAX, 2)), over},
      {"load", own.load(End::kBytes - 8, bytes), Status::ok},
      {"load + 1", own.load(End::kBytes - 7, bytes), over},
      {"load, wrapping", own.load(SIZE_MAX - 3, bytes), over},
      {"store", own.store(End::kBytes - 8, bytes), Status::ok},
      {"store + 1", own.store(End::kBytes - 7, bytes), over},
  });
}

TEST_CASE("verbs, misuse: a key says 32 bits of length, the rest takes a second key", "[fabric][verbs][misuse]") {
  Pair pair;
  constexpr std::size_t kBytes = (std::size_t{1} << 32U) + fabric::kSmallestPage;
  void* const mapped = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  {
    MemoryRegion region = made(pair.b.domain.register_memory({static_cast<std::byte*>(mapped), kBytes},
                                                             Right::local_read | Right::remote_read));
    CHECK(region.size() == kBytes);
    CHECK(region.remote_key().bytes == UINT32_MAX);
    CHECK(region.remote_key(0, UINT32_MAX).has_value());
    CHECK(refusal(region.remote_key(0, std::size_t{1} << 32U)) == Status::bad_length);
    const RemoteKey rest = made(region.remote_key(std::size_t{1} << 32U, fabric::kSmallestPage));
    CHECK(pair.read(rest.at(), fabric::kSmallestPage) == CompletionStatus::success);
    CHECK(pair.read(rest.at(1), fabric::kSmallestPage) == CompletionStatus::remote_access_error);
  }
  munmap(mapped, kBytes);
}

TEST_CASE("verbs, misuse: full queues", "[fabric][verbs][misuse]") {
  Pair pair;
  End& a = pair.a;
  Page page;
  Objects objects(a);
  QueuePairOptions shape = plain();
  shape.send_depth = shape.receive_depth = 2;
  QueuePair small = a.another(shape);
  QueuePair peer = pair.b.another(plain());
  Pair::connect(small, peer);
  const LocalSegment word = a.region.segment(0, 8);
  const Status full = Status::queue_full;
  CHECK(small.send_room() == 2);
  check({
      {"first", small.post_send(delay(1, milliseconds(1))), Status::ok},
      {"second", small.post_send(send(1, {word})), Status::ok},
      {"third", small.post_send(send(1, {word})), full},
      {"bind", small.post_bind(objects.type_1, a.region, small_binding()), full},
      {"unbind", small.post_unbind(objects.type_1), full},
      {"register", small.post_register(objects.through_queue, page.registration()), full},
      {"register and send", small.post_register_and_send(objects.through_queue, page.registration(), send(1, {})),
       full},
      {"first receive", small.post_receive(receive(1, word)), Status::ok},
      {"second receive", small.post_receive(receive(1, word)), Status::ok},
      {"third receive", small.post_receive(receive(1, word)), full},
  });
  CHECK(small.send_room() == 0);
  CHECK(objects.type_1.remote_key().bytes == 0);
  CHECK(objects.through_queue.size() == 0);
  for (int i = 0; i < 4; ++i) CHECK(objects.shared.post_receive(receive(1, word)) == Status::ok);
  CHECK(objects.shared.post_receive(receive(1, word)) == full);

  // A completion queue that can't promise a place.
  CompletionQueue one = made(a.context.create_completion_queue(1));
  shape = plain();
  shape.send_completions = shape.receive_completions = &one;
  QueuePair narrow = made(a.domain.create_queue_pair(shape));
  QueuePair wide = pair.b.another(plain());
  Pair::connect(narrow, wide);
  REQUIRE(wide.post_receive(receive(1, pair.b.region.segment(0, 8))) == Status::ok);
  CHECK(narrow.post_send(send(1, {word})) == Status::ok);
  CHECK(narrow.post_send(send(1, {word})) == full);
  CHECK(narrow.post_receive(receive(1, word)) == full);
  CHECK(narrow.send_room() == 0);
  pair.run();
  CHECK(narrow.post_send(send(1, {word})) == full);  // the completion is not taken yet
  std::array<Completion, 2> taken;
  CHECK(one.poll(taken) == 1);
  CHECK(narrow.post_receive(receive(1, word)) == Status::ok);
}

TEST_CASE("verbs, misuse: contexts with impossible options", "[fabric][verbs][misuse]") {
  Bridges bridges;
  const auto with = [&](auto change) {
    ContextOptions options;
    options.random = &bridges.random();
    change(options);
    return refusal(Context::open(options));
  };
  ContextOptions own_port;
  own_port.random = &bridges.random();
  own_port.port_address = PortAddress{5};
  Context context = made(Context::open(own_port));
  const auto path_with = [&](auto change) {
    fabric::LinkOptions options;
    change(options);
    return refusal(context.add_path(bridges.end(0), options));
  };
  check({
      {"defaults", with([](auto&) {}), Status::ok},
      {"port address of 49 bits", with([](auto& o) { o.port_address.value = std::uint64_t{1} << 48U; }), kBad},
      {"slot ring of 0", path_with([](auto& o) { o.slot_bytes[0] = 0; }), kBad},
      {"slot ring of no power", path_with([](auto& o) { o.slot_bytes[1] = 5000; }), kBad},
      {"slot ring too small", path_with([](auto& o) { o.slot_bytes[1] = 256; }), kBad},
      {"slot ring too large", path_with([](auto& o) { o.slot_bytes[1] = 4U << 20U; }), kBad},
      {"payload ring of 0", path_with([](auto& o) { o.payload_bytes[0] = 0; }), kBad},
      {"payload ring of no power", path_with([](auto& o) { o.payload_bytes[1] = 5000; }), kBad},
      {"payload ring too small", path_with([](auto& o) { o.payload_bytes[0] = 256; }), kBad},
      {"payload ring too large", path_with([](auto& o) { o.payload_bytes[1] = std::size_t{1} << 63U; }), kBad},
      {"no published table", path_with([](auto& o) { o.mpt_entries = 0; }), kBad},
      {"published table too large", path_with([](auto& o) { o.mpt_entries = SIZE_MAX; }), kBad},
      {"another port address", path_with([](auto& o) { o.port_address = PortAddress{6}; }), kBad},
      {"the context's port address", path_with([](auto& o) { o.port_address = PortAddress{5}; }), Status::ok},
      {"queue pairs", with([](auto& o) { o.adapter.max_queue_pairs = SIZE_MAX; }), kBad},
      {"tags", with([](auto& o) { o.adapter.max_regions = SIZE_MAX; }), kBad},
      {"no events", with([](auto& o) { o.adapter.max_events = 0; }), kBad},
      {"events", with([](auto& o) { o.adapter.max_events = SIZE_MAX; }), kBad},
      {"no timeout", with([](auto& o) { o.adapter.ack_timeout = Duration::zero(); }), kBad},
      {"timeout", with([](auto& o) { o.adapter.ack_timeout = Duration::max(); }), kBad},
      {"negative wait", with([](auto& o) { o.adapter.receiver_not_ready_delay = -Duration(1); }), kBad},
      {"nothing at all", with([](auto& o) {
         o.adapter.max_queue_pairs = o.adapter.max_regions = o.adapter.max_completion_queues = 0;
         o.adapter.max_shared_receive_queues = o.adapter.max_completion_channels = 0;
       }),
       Status::ok},
  });
}

TEST_CASE("verbs: a peer that does not poll is waited for as long as the options say", "[fabric][verbs]") {
  const ContextOptions defaults;
  const Duration patience = (defaults.adapter.retry_count + 1) * defaults.adapter.ack_timeout;
  CHECK(patience == milliseconds(1600));
  constexpr Duration kStep = milliseconds(1);
  Pair pair;
  const auto only_a = [&](Duration time) {
    for (const Time until = pair.now + time; pair.now < until;) {
      pair.now += kStep;
      pair.bridges.sim().advance(pair.now);
      pair.a.context.poll(pair.now);
    }
  };
  const WorkRequest write = rdma_write(1, {pair.a.region.segment(0, 8)}, pair.b.region.remote_key().at());

  REQUIRE(pair.a.queue_pair.post_send(write) == Status::ok);
  only_a(patience);  // the clock starts with the first of these polls
  CHECK(pair.a.take().empty());
  CHECK(pair.one(pair.a).status == CompletionStatus::success);

  REQUIRE(pair.a.queue_pair.post_send(write) == Status::ok);
  only_a(patience + kStep);
  const auto ended = pair.a.take();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].status == CompletionStatus::retry_exceeded);
  CHECK(pair.a.queue_pair.state() == QueuePairState::error);
}

}  // namespace splitnic::verbs::test::verbs_limits_test
