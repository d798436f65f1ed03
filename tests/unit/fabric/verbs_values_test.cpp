#include "verbs_misuse.h"

#include <catch2/catch.hpp>

#include "fabric/memory/protection_table.h"

// Again last, as in the fixture.

namespace splitnic::verbs::test::verbs_values_test {

TEST_CASE("verbs, misuse: values that are none, or that contradict each other", "[fabric][verbs][misuse]") {
  Pair pair;
  End& a = pair.a;
  Objects objects(a);
  Page page;
  const auto beyond = []<class T>(T last) { return static_cast<T>(static_cast<unsigned>(last) + 1); };
  const Rights unknown{64};
  const auto region_with = [&](Rights rights, TouchControl touch, bool invalidatable,
                               std::optional<std::uint64_t> base) {
    return refusal(a.domain.register_memory(a.memory, {rights, touch, invalidatable, base}));
  };
  const Rights writable_alone = Rights{} | Right::remote_write;
  const Rights atomic_alone = Rights{} | Right::remote_atomic;
  const TouchControl no_touch = beyond(TouchControl::one_shot);
  check({
      {"allocate_domain", refusal(a.context.allocate_domain(beyond(DomainRules::strict))), kBad},
      {"allocate_window", refusal(a.domain.allocate_window(beyond(WindowType::type_2))), kBad},
      {"allocate_windows", refusal(a.domain.allocate_windows(beyond(WindowType::type_2), 2)), kBad},
      {"arm", objects.queue.arm(beyond(Arm::solicited)), kBad},
      {"arm without a channel", a.completions.arm(Arm::next), kBad},
      {"bridge access", refusal(a.domain.register_bridge_memory(a.path, 0, 64, kLocal, beyond(BridgeAccess::direct))),
       kBad},
      {"bridge, unknown right", refusal(a.domain.register_bridge_memory(a.path, 0, 64, unknown)), kBad},
      {"unknown right", region_with(unknown, {}, false, {}), kBad},
      {"remote write without local", region_with(writable_alone, {}, false, {}), kBad},
      {"remote atomic without local write", region_with(atomic_alone, {}, false, {}), kBad},
      {"unknown touch", region_with(kLocal, no_touch, false, {}), kBad},
      {"touch with binding", region_with(kEverything, TouchControl::one_touch, false, {}), kBad},
      {"base beyond 2^64", region_with(kLocal, {}, false, UINT64_MAX - End::kBytes + 2), kBad},
      {"base up to 2^64", region_with(kLocal, {}, false, UINT64_MAX - End::kBytes + 1), Status::ok},
      {"reregister, unknown right", a.region.reregister({.rights = unknown}), kBad},
      {"modify", a.queue_pair.modify(beyond(QueuePairState::error)), kBad},
  });
  QueuePairOptions shape = plain();
  shape.send_completions = shape.receive_completions = &a.completions;
  const auto with = [&](auto change) {
    QueuePairOptions changed = shape;
    change(changed);
    return refusal(a.domain.create_queue_pair(changed));
  };
  check({
      {"lane", with([&](auto& o) { o.lane = beyond(VirtualLane::data); }), kBad},
      {"error option", with([&](auto& o) { o.on_memory_request_failure = beyond(MemoryRequestFailure::fail); }), kBad},
      {"number 1", with([](auto& o) { o.number = QpNumber{1}; }), kBad},
      {"number 16", with([](auto& o) { o.number = QpNumber{16}; }), kBad},
      {"number 2^31", with([](auto& o) { o.number = QpNumber{1U << 31U}; }), kBad},
      {"number 15", with([](auto& o) { o.number = QpNumber{15}; }), Status::ok},
  });
  const QueuePair fifteen = [&] {
    shape.number = QpNumber{15};
    return made(a.domain.create_queue_pair(shape));
  }();
  check({{"number taken", with([](auto&) {}), Status::no_resources}});

  const auto bind_with = [&](MemoryWindow& window, auto change) {
    Binding changed = small_binding();
    change(changed);
    return a.queue_pair.post_bind(window, a.region, changed);
  };
  check({
      {"bind, local rights", bind_with(objects.type_1, [](Binding& b) { b.rights = kLocal; }), kBad},
      {"bind, unknown right", bind_with(objects.type_1, [&](Binding& b) { b.rights = unknown; }), kBad},
      {"bind, unknown touch", bind_with(objects.type_1, [&](Binding& b) { b.touch = no_touch; }), kBad},
      {"bind, type 1 zero-based", bind_with(objects.type_1, [](Binding& b) { b.zero_based = true; }), kBad},
      {"bind, no bytes", bind_with(objects.type_1, [](Binding& b) { b.bytes = 0; }), Status::bad_length},
  });
  const auto register_with = [&](auto change) {
    Registration changed = page.registration();
    change(changed);
    const Status alone = a.queue_pair.post_register(objects.through_queue, changed);
    CHECK(a.queue_pair.post_register_and_send(objects.through_queue, changed, send(1, {})) == alone);
    RegionOptions options;
    options.rights = changed.rights;
    options.touch = changed.touch;
    CHECK(refusal(a.domain.register_pages(changed.pages, options)) == alone);
    return alone;
  };
  std::array<std::byte*, 1> bad_page{page.memory.at(1)};
  std::array<std::byte*, 1> null_page{nullptr};
  check({
      {"register, unknown right", register_with([&](auto& r) { r.rights = unknown; }), kBad},
      {"register, remote write alone", register_with([&](auto& r) { r.rights = writable_alone; }), kBad},
      {"register, unknown touch", register_with([&](auto& r) { r.touch = no_touch; }), kBad},
      {"register, no page", register_with([](auto& r) { r.pages.pages = {}; }), kBad},
      {"register, page size 0", register_with([](auto& r) { r.pages.page_bytes = 0; }), kBad},
      {"register, page size no power", register_with([](auto& r) { r.pages.page_bytes = 5000; }), kBad},
      {"register, page size 2^29", register_with([](auto& r) { r.pages.page_bytes = 1U << 29U; }), kBad},
      {"register, page not aligned", register_with([&](auto& r) { r.pages.pages = bad_page; }), kBad},
      {"register, null page", register_with([&](auto& r) { r.pages.pages = null_page; }), kBad},
      {"register, end before start", register_with([](auto& r) { r.pages.first_offset = r.pages.end_offset = 9; }),
       kBad},
      {"register, end 0", register_with([](auto& r) { r.pages.end_offset = 0; }), kBad},
      {"register, end beyond", register_with([](auto& r) { r.pages.end_offset = 4097; }), kBad},
      {"register, start beyond", register_with([](auto& r) { r.pages.first_offset = 4096; }), kBad},
  });
  CHECK(a.take().empty());
  still_works(pair);
}

TEST_CASE("verbs, misuse: work requests that are none", "[fabric][verbs][misuse]") {
  Pair pair;
  End& a = pair.a;
  const LocalSegment word = a.region.segment(0, 8);
  const RemoteAddress there = pair.b.region.remote_key().at();
  const auto with = [&](WorkRequest request, auto change) {
    change(request);
    return a.queue_pair.post_send(request);
  };
  const auto operation = [&](Operation which) {
    return with(send(1, {word}), [&](WorkRequest& r) { r.operation = which; });
  };
  const fabric::MemoryRequest memory = fabric::Bind{};
  LocalSegment null{nullptr, 8, Stag{}};
  const auto negative = delay(1, -Duration(1));
  check({
      {"unknown operation", operation(static_cast<Operation>(12)), kBad},
      {"operation 255", operation(static_cast<Operation>(255)), kBad},
      {"bind_window without its own post", operation(Operation::bind_window), kBad},
      {"register_memory likewise", operation(Operation::register_memory), kBad},
      {"a memory request put in by hand", with(send(1, {}), [&](auto& r) { r.memory = &memory; }), kBad},
      {"bytes said to be placed", with(rdma_write(1, {}, there), [](auto& r) { r.placed_bytes = 8; }), kBad},
      {"inline bytes that are not there", with(send(1, {null}), [](auto& r) { r.inline_data = true; }), kBad},
      {"an inline read", with(rdma_read(1, {word}, there), [](auto& r) { r.inline_data = true; }), kBad},
      {"atomic of 4 bytes", a.queue_pair.post_send(fetch_add(1, a.region.segment(0, 4), there, 1)), Status::bad_length},
      {"atomic of 2 segments",
       with(fetch_add(1, word, there, 1), [&](auto& r) { r.segments[r.segment_count++] = word; }), Status::bad_length},
      {"delay with segments", operation(Operation::delay), Status::bad_length},
      {"negative delay", a.queue_pair.post_send(negative), kBad},
      {"invalidate with segments", operation(Operation::local_invalidate), Status::bad_length},
      {"register_and_send of a write",
       [&] {
         MemoryRegion region = made(a.domain.allocate_region(1));
         return a.queue_pair.post_register_and_send(region, Page{}.registration(), rdma_write(1, {word}, there));
       }(),
       kBad},
  });
  // Where others' keys lead is for their owner to say: it refuses, and the connection ends.
  for (const RemoteAddress nowhere : {RemoteAddress{}, RemoteAddress{there.address, Stag{0xffffffff}},
                                      RemoteAddress{UINT64_MAX - 3, there.tag}, RemoteAddress{0, there.tag}}) {
    for (const WorkRequest& request : {rdma_write(1, {word}, nowhere), rdma_read(1, {word}, nowhere),
                                       compare_swap(1, word, nowhere, 0, 0), fetch_add(1, word, nowhere, 1)}) {
      CHECK(pair.outcome(request) == CompletionStatus::remote_access_error);
    }
  }
  CHECK(pair.outcome(fetch_add(1, word, pair.b.region.remote_key().at(4), 1)) != CompletionStatus::success);
  still_works(pair);
}

TEST_CASE("verbs, misuse: queue pairs that were not made for it", "[fabric][verbs][misuse]") {
  QueuePairOptions bare;
  bare.reads_out = 0;
  Pair pair(bare);
  End& a = pair.a;
  Objects objects(a);
  Page page;
  const LocalSegment word = a.region.segment(0, 8);
  const RemoteAddress there = pair.b.region.remote_key().at();
  WorkRequest inlined = send(1, {word});
  inlined.inline_data = true;
  QueuePairOptions shape = bare;
  shape.shared_receives = &objects.shared;
  QueuePair sharing = a.another(shape);
  QueuePairOptions unconnected = bare;
  unconnected.acknowledged = false;
  unconnected.datagram = true;
  QueuePair datagrams = a.another(unconnected);
  REQUIRE(datagrams.start() == Status::ok);
  check({
      {"bind of a datagram queue pair", datagrams.post_bind(objects.type_1, a.region, small_binding()),
       Status::not_permitted},
      {"invalidate of a datagram queue pair", datagrams.post_send(local_invalidate(1, Stag{})), Status::not_permitted},
      {"register", a.queue_pair.post_register(objects.through_queue, page.registration()), Status::not_permitted},
      {"register and send",
       a.queue_pair.post_register_and_send(objects.through_queue, page.registration(), send(1, {})),
       Status::not_permitted},
      {"read", a.queue_pair.post_send(rdma_read(1, {word}, there)), Status::not_permitted},
      {"atomic", a.queue_pair.post_send(fetch_add(1, word, there, 1)), Status::not_permitted},
      {"inline", a.queue_pair.post_send(inlined), Status::bad_length},
      {"receive beside a shared queue", sharing.post_receive(receive(1, word)), Status::not_permitted},
  });
  QueuePairOptions unacknowledged = plain();
  unacknowledged.acknowledged = false;
  Pair lossy(unacknowledged);
  check({
      {"unacknowledged read",
       lossy.a.queue_pair.post_send(rdma_read(1, {lossy.a.region.segment(0, 8)}, lossy.b.region.remote_key().at())),
       Status::not_permitted},
      {"unacknowledged atomic",
       lossy.a.queue_pair.post_send(fetch_add(1, lossy.a.region.segment(0, 8), lossy.b.region.remote_key().at(), 1)),
       Status::not_permitted},
  });
  still_works(pair);
}

TEST_CASE("verbs, misuse: every verb of a queue pair in every state", "[fabric][verbs][misuse]") {
  constexpr std::array kEvents{
      fabric::QueuePairEvent::reset,
      fabric::QueuePairEvent::initialize,
      fabric::QueuePairEvent::ready_to_receive,
      fabric::QueuePairEvent::ready_to_send,
      fabric::QueuePairEvent::drain_sends,
      fabric::QueuePairEvent::fail_sends,
      fabric::QueuePairEvent::fail,
  };
  using enum QueuePairState;
  const auto bring = [](QueuePair& queue_pair, QueuePairState to, const QueuePairAddress& peer) {
    REQUIRE(queue_pair.modify(reset) == Status::ok);
    if (to == reset) return;
    REQUIRE(queue_pair.modify(init) == Status::ok);
    if (to == init) return;
    REQUIRE(queue_pair.modify(ready_to_receive, &peer) == Status::ok);
    if (to == ready_to_receive) return;
    REQUIRE(queue_pair.modify(ready_to_send) == Status::ok);
    if (to == ready_to_send) return;
    REQUIRE(queue_pair.modify(to) == Status::ok);
  };
  Pair pair;
  Page page;
  Objects objects(pair.a);
  QueuePair& queue_pair = pair.a.queue_pair;
  const QueuePairAddress peer = pair.b.queue_pair.address();
  const LocalSegment word = pair.a.region.segment(0, 8);
  for (const auto state : {reset, init, ready_to_receive, ready_to_send, sq_drained, sq_error, error}) {
    INFO(to_string(state));
    const auto& rules = fabric::queue_pair_rules(state);
    const Status sends = rules.post_send ? Status::ok : Status::bad_state;
    bring(queue_pair, state, peer);
    CHECK(queue_pair.state() == state);
    CHECK((queue_pair.send_room() != 0) == rules.post_send);
    check({
        {"post_send", queue_pair.post_send(send(1, {word})), sends},
        {"post_receive", queue_pair.post_receive(receive(1, word)),
         rules.post_receive ? Status::ok : Status::bad_state},
        {"post_bind", queue_pair.post_bind(objects.type_1, pair.a.region, small_binding()), sends},
        {"post_unbind", queue_pair.post_unbind(objects.type_1), sends},
        {"post_register", queue_pair.post_register(objects.through_queue, page.registration()), sends},
        {"post_register_and_send",
         queue_pair.post_register_and_send(objects.through_queue, page.registration(), send(1, {})), sends},
    });
    for (const auto to : {reset, init, ready_to_receive, ready_to_send, sq_drained, sq_error, error}) {
      bring(queue_pair, state, peer);
      const bool legal = fabric::queue_pair_move(state, kEvents[static_cast<std::size_t>(to)]).legal;
      INFO("to " << to_string(to));
      CHECK(queue_pair.modify(to, &peer) == (legal ? Status::ok : Status::bad_state));
      CHECK(queue_pair.state() == (legal ? to : state));
    }
    bring(queue_pair, state, peer);
    const bool connects = fabric::queue_pair_move(state, fabric::QueuePairEvent::connect).legal;
    CHECK(queue_pair.connect(peer) == (connects ? Status::ok : Status::bad_state));
  }
  bring(queue_pair, init, peer);
  CHECK(queue_pair.modify(ready_to_receive) == kBad);  // no peer
  QueuePairAddress nobody = peer;
  nobody.port.value ^= 1U;
  QueuePairAddress number_0 = peer;
  number_0.queue_pair = {};
  QueuePairAddress number_beyond = peer;
  number_beyond.queue_pair = QpNumber{1U << 24U};
  for (const QueuePairAddress& bad : {nobody, number_0, number_beyond, queue_pair.address(), QueuePairAddress{}}) {
    CHECK(queue_pair.modify(ready_to_receive, &bad) == kBad);
    CHECK(queue_pair.connect(bad) == kBad);
    CHECK(queue_pair.state() == init);
  }
  REQUIRE(queue_pair.modify(error) == Status::ok);
  still_works(pair);
}

}  // namespace splitnic::verbs::test::verbs_values_test
