#include "verbs_misuse.h"

#include <catch2/catch.hpp>

#include "fabric/verbs/wait.h"

// Again last, as in the fixture.

namespace splitnic::verbs::test::verbs_misuse_test {

namespace {

/// All verbs of handles that are null.
void check_null(Context& context, ProtectionDomain& domain, CompletionChannel& channel, CompletionQueue& queue,
                SharedReceiveQueue& shared, MemoryRegion& region, MemoryWindow& window, QueuePair& queue_pair,
                End& good, Objects& objects) {
  Page page;
  std::array<std::byte, 8> word{};
  std::array<Completion, 1> completion;
  std::array<AsyncEvent, 1> event;
  Bridges bridges;
  const QueuePairAddress address = good.queue_pair.address();
  QueuePairOptions shape = plain();
  shape.send_completions = shape.receive_completions = &good.completions;
  check({
      {"allocate_domain", refusal(context.allocate_domain()), kBad},
      {"create_completion_channel", refusal(context.create_completion_channel()), kBad},
      {"create_completion_queue", refusal(context.create_completion_queue(4)), kBad},
      {"wait", wait(context, Time{}, Time{}), kBad},
      {"add_path", refusal(context.add_path(bridges.end(0))), kBad},
      {"add_path of a link", refusal(context.add_path(std::shared_ptr<fabric::CellLink>{})), kBad},
      {"add_loopback", refusal(context.add_loopback()), kBad},
      {"add_group_member", context.add_group_member(Gid{{0xff}}, good.path), kBad},
      {"register_memory", refusal(domain.register_memory(good.memory, kLocal)), kBad},
      {"register_pages", refusal(domain.register_pages(page.registration().pages, {})), kBad},
      {"register_shared", refusal(domain.register_shared(MemoryRegion(), {})), kBad},
      {"register_bridge_memory", refusal(domain.register_bridge_memory(good.path, 0, 64, kLocal)), kBad},
      {"allocate_region", refusal(domain.allocate_region(1)), kBad},
      {"allocate_window", refusal(domain.allocate_window(WindowType::type_1)), kBad},
      {"allocate_windows", refusal(domain.allocate_windows(WindowType::type_2, 3)), kBad},
      {"create_shared_receive_queue", refusal(domain.create_shared_receive_queue(4)), kBad},
      {"create_queue_pair", refusal(domain.create_queue_pair(shape)), kBad},
      {"create_address_handle", refusal(domain.create_address_handle(good.path)), kBad},
      {"CompletionQueue::arm", queue.arm(Arm::next), kBad},
      {"SharedReceiveQueue::post_receive", shared.post_receive({}), kBad},
      {"SharedReceiveQueue::arm_limit", shared.arm_limit(0), kBad},
      {"MemoryRegion::remote_key", refusal(region.remote_key(0, 0)), kBad},
      {"load", region.load(0, word), kBad},
      {"store", region.store(0, word), kBad},
      {"reregister", region.reregister({}), kBad},
      {"deregister", region.deregister(), kBad},
      {"modify", queue_pair.modify(QueuePairState::init), kBad},
      {"connect", queue_pair.connect(address), kBad},
      {"modify by a handle", queue_pair.modify(QueuePairState::ready_to_receive, AddressHandle(), address), kBad},
      {"modify over a path", queue_pair.modify(QueuePairState::ready_to_receive, good.path, address), kBad},
      {"connect over a path", queue_pair.connect(good.path, address), kBad},
      {"connect by a handle", queue_pair.connect(AddressHandle(), address), kBad},
      {"connect, null handle", good.queue_pair.connect(AddressHandle(), address), kBad},
      {"post_send", queue_pair.post_send(send(1, {})), kBad},
      {"post_receive", queue_pair.post_receive({}), kBad},
      {"post_bind", queue_pair.post_bind(objects.type_1, good.region, small_binding()), kBad},
      {"post_unbind", queue_pair.post_unbind(objects.type_1), kBad},
      {"post_register", queue_pair.post_register(objects.through_queue, page.registration()), kBad},
      {"post_register_and_send",
       queue_pair.post_register_and_send(objects.through_queue, page.registration(), send(1, {})), kBad},
  });
  CHECK(context.poll(Time{}) == 0);
  CHECK(context.next_deadline(Time{}) == kNever);
  CHECK_FALSE(context.prepare_sleep());
  CHECK(context.port_address() == PortAddress{});
  CHECK(context.descriptor() == -1);
  context.disarm();
  CHECK(context.poll_events(event) == 0);
  CHECK(context.limits().queue_pairs == 0);
  CHECK(context.counters().cells_sent == 0);
  CHECK_FALSE(channel.take().has_value());
  CHECK(queue.poll(completion) == 0);
  CHECK(queue.number() == CqNumber{});
  CHECK(shared.number() == SrqNumber{});
  CHECK_FALSE((region.valid() || window.valid()));
  CHECK((region.size() == 0 && region.tag() == Stag{} && window.tag() == Stag{}));
  CHECK((region.remote_key() == RemoteKey{} && window.remote_key() == RemoteKey{}));
  CHECK(window.type() == WindowType::type_1);
  CHECK(queue_pair.address() == QueuePairAddress{});
  CHECK(queue_pair.state() == QueuePairState::error);
  CHECK(queue_pair.send_room() == 0);
  CHECK_FALSE(AddressHandle().valid());
  CHECK(AddressHandle().port() == PortAddress{});
  check({
      {"a segment of a null region", good.queue_pair.post_send(send(1, {region.segment(0, 8)})), Status::bad_tag},
      {"a segment of a null window", good.queue_pair.post_send(send(1, {window.segment(0, 8)})), Status::bad_tag},
      {"post_bind, null window", good.queue_pair.post_bind(window, good.region, small_binding()), kBad},
      {"post_bind, null region", good.queue_pair.post_bind(objects.type_1, region, small_binding()), kBad},
      {"post_unbind, null window", good.queue_pair.post_unbind(window), kBad},
      {"post_register, null region", good.queue_pair.post_register(region, page.registration()), kBad},
      {"post_register_and_send, null region",
       good.queue_pair.post_register_and_send(region, page.registration(), send(1, {})), kBad},
      {"create_completion_queue, null channel", refusal(good.context.create_completion_queue(4, &channel)), kBad},
      {"reregister, null domain", good.region.reregister({.domain = &domain}), kBad},
  });
  QueuePairOptions without = shape;
  without.send_completions = &queue;
  check({{"create_queue_pair, null queue", refusal(good.domain.create_queue_pair(without)), kBad}});
  without.send_completions = nullptr;
  check({{"create_queue_pair, no queue", refusal(good.domain.create_queue_pair(without)), kBad}});
  without = shape;
  without.receive_completions = &queue;
  check({{"create_queue_pair, null receive queue", refusal(good.domain.create_queue_pair(without)), kBad}});
  without = shape;
  without.shared_receives = &shared;
  check({{"create_queue_pair, null shared queue", refusal(good.domain.create_queue_pair(without)), kBad}});
}

}  // namespace

TEST_CASE("verbs, misuse: null handles", "[fabric][verbs][misuse]") {
  Pair pair;
  Objects objects(pair.a);
  Context context;
  ProtectionDomain domain;
  CompletionChannel channel;
  CompletionQueue queue;
  SharedReceiveQueue shared;
  MemoryRegion region;
  MemoryWindow window;
  QueuePair queue_pair;
  check_null(context, domain, channel, queue, shared, region, window, queue_pair, pair.a, objects);
  const Path path;
  CHECK_FALSE(path.up());
  CHECK((path.number() == PathNumber{} && path.peer_port() == PortAddress{} && path.bridge_bytes() == 0));
  check({
      {"add_path without a bridge", refusal(pair.a.context.add_path(std::shared_ptr<fabric::Bridge>{})), kBad},
      {"add_path without a link", refusal(pair.a.context.add_path(std::shared_ptr<fabric::CellLink>{})), kBad},
      {"register_bridge_memory, null path", refusal(pair.a.domain.register_bridge_memory(path, 0, 64, kLocal)), kBad},
      {"create_address_handle, null path", refusal(pair.a.domain.create_address_handle(path)), kBad},
      {"add_group_member, null path", pair.a.context.add_group_member(Gid{{0xff}}, path), kBad},
      {"connect, null path", pair.a.queue_pair.connect(path, pair.b.queue_pair.address()), kBad},
  });
  still_works(pair);
}

TEST_CASE("verbs, misuse: handles that were moved from", "[fabric][verbs][misuse]") {
  Pair pair;
  Objects objects(pair.a);
  Bridges others;
  End from(others, 0, plain(), DomainRules::verbs);
  Objects more(from);
  const Context context = std::move(from.context);
  const ProtectionDomain domain = std::move(from.domain);
  const CompletionChannel channel = std::move(more.channel);
  const CompletionQueue queue = std::move(more.queue);
  const SharedReceiveQueue shared = std::move(more.shared);
  const MemoryRegion region = std::move(from.region);
  const MemoryWindow window = std::move(more.type_1);
  const QueuePair queue_pair = std::move(from.queue_pair);
  // NOLINTNEXTLINE(bugprone-use-after-move): what this is about
  check_null(from.context, from.domain, more.channel, more.queue, more.shared, from.region, more.type_1,
             from.queue_pair, pair.a, objects);
  still_works(pair);
}

TEST_CASE("verbs, misuse: objects of another context, domain or kind", "[fabric][verbs][misuse]") {
  Pair pair;
  End& a = pair.a;
  Objects own(a);
  Objects foreign(pair.b);
  Page page;
  QueuePair& queue_pair = a.queue_pair;
  QueuePairOptions shape = plain();
  shape.send_completions = shape.receive_completions = &a.completions;
  QueuePairOptions send_queue = shape;
  send_queue.send_completions = &pair.b.completions;
  QueuePairOptions receive_queue = shape;
  receive_queue.receive_completions = &foreign.queue;
  QueuePairOptions shared_queue = shape;
  shared_queue.shared_receives = &foreign.shared;
  const ProtectionDomain other = made(a.context.allocate_domain());
  ProtectionDomain another = made(a.context.allocate_domain());
  QueuePairOptions other_domain = shape;
  other_domain.shared_receives = &own.shared;
  MemoryWindow other_window = made(another.allocate_window(WindowType::type_1));
  MemoryRegion other_region = made(another.register_memory(a.memory, kEverything));
  MemoryRegion other_queue_region = made(another.allocate_region(1));
  const Stag foreign_tag = pair.b.region.tag();
  std::byte* const memory = a.memory.data();
  check({
      {"create_completion_queue", refusal(a.context.create_completion_queue(4, &foreign.channel)), kBad},
      {"create_queue_pair, sends", refusal(a.domain.create_queue_pair(send_queue)), kBad},
      {"create_queue_pair, receives", refusal(a.domain.create_queue_pair(receive_queue)), kBad},
      {"create_queue_pair, shared", refusal(a.domain.create_queue_pair(shared_queue)), kBad},
      {"create_queue_pair, shared of a domain", refusal(another.create_queue_pair(other_domain)), kBad},
      {"reregister", a.region.reregister({.domain = &pair.b.domain}), kBad},
      {"post_bind, window", queue_pair.post_bind(foreign.type_1, a.region, small_binding()), kBad},
      {"post_bind, region", queue_pair.post_bind(own.type_1, pair.b.region, small_binding()), kBad},
      {"post_bind, both", queue_pair.post_bind(foreign.type_1, pair.b.region, small_binding()), kBad},
      {"post_bind, window of a domain", queue_pair.post_bind(other_window, a.region, small_binding()), kBad},
      {"post_bind, region of a domain", queue_pair.post_bind(own.type_1, other_region, small_binding()), kBad},
      {"post_unbind", queue_pair.post_unbind(foreign.type_2), kBad},
      {"post_unbind of a domain", queue_pair.post_unbind(other_window), kBad},
      {"post_register", queue_pair.post_register(foreign.through_queue, page.registration()), kBad},
      {"post_register of a domain", queue_pair.post_register(other_queue_region, page.registration()), kBad},
      {"post_register of another kind", queue_pair.post_register(a.region, page.registration()), kBad},
      {"post_register_and_send",
       queue_pair.post_register_and_send(foreign.through_queue, page.registration(), send(1, {})), kBad},
      {"reregister of another kind", own.through_queue.reregister({}), Status::not_permitted},
  });
  const auto as_segment = [&](const LocalSegment& segment, Status answer = Status::bad_tag) {
    ReceiveRequest scattered = receive(1, a.region.segment(0, 8));
    const std::array more{segment};
    scattered.more = more;
    const RemoteAddress there = pair.b.region.remote_key().at();
    check({
        {"send", queue_pair.post_send(send(1, {segment})), answer},
        {"second of a send", queue_pair.post_send(send(1, {a.region.segment(0, 8), segment})), answer},
        {"rdma_write", queue_pair.post_send(rdma_write(1, {segment}, there)), answer},
        {"rdma_read", queue_pair.post_send(rdma_read(1, {segment}, there)), answer},
        {"compare_swap", queue_pair.post_send(compare_swap(1, segment, there, 0, 0)), answer},
        {"fetch_add", queue_pair.post_send(fetch_add(1, segment, there, 0)), answer},
        {"receive", queue_pair.post_receive(receive(1, segment)), answer},
        {"second of a receive", queue_pair.post_receive(scattered), answer},
        {"shared receive", own.shared.post_receive(receive(1, segment)), answer},
        {"second of a shared receive", own.shared.post_receive(scattered), answer},
    });
  };
  as_segment(pair.b.region.segment(0, 8));                                    // of the peer
  as_segment({memory, 8, foreign_tag});                                       // the peer's tag for own memory
  as_segment({pair.b.memory.data(), 8, a.region.tag()}, Status::bad_length);  // memory that is not the tag's
  as_segment(other_region.segment(0, 8));                                     // another domain
  as_segment({memory, 8, own.type_1.tag()});                                  // a window that is not bound
  as_segment(own.through_queue.segment(0, 8));                                // a region that is not registered
  as_segment({memory, 8, Stag{}});                                            // no tag
  as_segment({memory, 8, Stag{0xffffffff}});                                  // beyond the table
  as_segment({memory, 8, Stag{a.region.tag().value ^ 1U}});                   // another instance
  as_segment({nullptr, 8, a.region.tag()}, Status::bad_length);
  as_segment(a.region.segment(End::kBytes - 7, 8), Status::bad_length);
  as_segment(a.region.segment(End::kBytes + 1, 8), Status::bad_length);
  as_segment(a.region.segment(SIZE_MAX, 8), Status::bad_length);
  bound(pair, a, own.type_1, small_binding());
  as_segment(own.type_1.segment(0, 8));  // a bound window where a region is wanted
  const MemoryRegion unreadable = made(a.domain.register_memory(a.memory, Rights{}));
  as_segment(unreadable.segment(0, 8));  // no right at all
  static_cast<void>(other);
  still_works(pair);
}

TEST_CASE("verbs, misuse: tags that local requests may not end", "[fabric][verbs][misuse]") {
  Pair pair;
  Objects own(pair.a);
  Objects foreign(pair.b);
  bound(pair, pair.a, own.type_1, small_binding());
  for (const Stag tag : {Stag{}, Stag{0xffffffff}, pair.a.region.tag(), own.type_1.tag(), own.type_2.tag(),
                         own.through_queue.tag(), pair.b.region.tag(), foreign.type_2.tag()}) {
    REQUIRE(pair.a.queue_pair.post_send(local_invalidate(1, tag)) == Status::ok);
    CHECK(pair.one(pair.a).status == CompletionStatus::memory_request_error);
    CHECK(pair.a.queue_pair.state() == QueuePairState::sq_error);
    REQUIRE(pair.a.queue_pair.modify(QueuePairState::ready_to_send) == Status::ok);
    CHECK((pair.a.region.valid() && own.type_1.valid()));
  }
  still_works(pair);
}

TEST_CASE("verbs, misuse: parents that are gone", "[fabric][verbs][misuse]") {
  Pair pair;
  Objects objects(pair.a);
  Page page;
  pair.a.domain = ProtectionDomain();
  objects.channel = CompletionChannel();
  QueuePair& queue_pair = pair.a.queue_pair;
  check({
      {"post_send", queue_pair.post_send(send(1, {pair.a.region.segment(0, 8)})), Status::ok},
      {"post_bind", queue_pair.post_bind(objects.type_1, pair.a.region, small_binding()), Status::ok},
      {"post_register", queue_pair.post_register(objects.through_queue, page.registration()), Status::ok},
      {"shared post_receive", objects.shared.post_receive(receive(1, pair.a.region.segment(0, 8))), Status::ok},
      {"arm", objects.queue.arm(Arm::next), Status::ok},
      {"reregister, windows bound", pair.a.region.reregister({}), Status::in_use},
  });
  pair.a.completions = CompletionQueue();  // with the context's last handle: whatever is left answers, and does no more
  pair.a.context = Context();
  check({
      {"post_send", queue_pair.post_send(send(1, {pair.a.region.segment(0, 8)})), Status::ok},
      {"post_receive", queue_pair.post_receive(receive(1, pair.a.region.segment(0, 8))), Status::ok},
      {"post_unbind", queue_pair.post_unbind(objects.type_1), Status::ok},
      {"modify", queue_pair.modify(QueuePairState::reset), Status::ok},
      {"deregister", pair.a.region.deregister(), Status::ok},
      {"arm", objects.queue.arm(Arm::next), Status::ok},
      {"arm_limit", objects.shared.arm_limit(1), Status::ok},
  });
}

}  // namespace splitnic::verbs::test::verbs_misuse_test
