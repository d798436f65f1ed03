#include "fabric/memory/local_protection.h"
#include "mapped_memory.h"
#include "verbs_fixture.h"

// Again last, as in the fixture.
#include <catch2/catch.hpp>

namespace splitnic::verbs::test::verbs_window_test {

using enum CompletionStatus;

namespace {

constexpr Rights kReadWrite = Right::remote_read | Right::remote_write;

Binding binding(std::uint64_t offset, std::uint64_t bytes, Rights rights = kReadWrite) {
  Binding made;
  made.offset = offset;
  made.bytes = bytes;
  made.rights = rights;
  return made;
}

}  // namespace

TEST_CASE("verbs: a type 1 window opens a part of its region, under a new tag with each bind", "[fabric][verbs]") {
  Pair pair;
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_1));
  CHECK_FALSE(window.valid());
  CHECK(window.remote_key().bytes == 0);

  const Stag first = bound(pair, pair.b, window, binding(101, 50));
  CHECK(window.valid());
  const RemoteKey key = window.remote_key();
  CHECK(key.tag == first);
  CHECK(key.bytes == 50);
  pair.a.fill(0, pattern(50, 1));
  CHECK(pair.write(key.at(), 50) == success);
  CHECK(pair.b.holds(101, pattern(50, 1)));
  CHECK(pair.write(key.at(43), 8) == remote_access_error);
  CHECK(pair.write(RemoteAddress{key.address - 1, key.tag}, 8) == remote_access_error);
  CHECK(pair.read(key.at(42), 8) == success);

  const Stag second = bound(pair, pair.b, window, binding(200, 8, Rights{} | Right::remote_read));
  CHECK(second != first);
  CHECK(second.index() == first.index());
  CHECK(pair.read(key.at()) == remote_access_error);
  CHECK(pair.read(window.remote_key().at()) == success);
  CHECK(pair.write(window.remote_key().at()) == remote_access_error);

  REQUIRE(pair.b.queue_pair.post_unbind(window) == Status::ok);
  const RemoteKey closed = window.remote_key();
  CHECK(closed.bytes == 0);
  CHECK(pair.one(pair.b).status == success);
  CHECK_FALSE(window.valid());
  CHECK(pair.read({key.address, closed.tag}) == remote_access_error);
  CHECK(pair.read({key.address, second}) == remote_access_error);
}

TEST_CASE("verbs: a type 2 window belongs to the queue pair that bound it, under the key that it chose",
          "[fabric][verbs]") {
  Pair pair;
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_2));
  QueuePair from = pair.a.another(plain());
  QueuePair to = pair.b.another(plain());
  Pair::connect(from, to);
  Binding zero = binding(1000, 64);
  zero.key = 0x5a;
  zero.zero_based = true;
  const Stag tag = bound(pair, pair.b, window, zero);
  CHECK(tag.instance() == 0x5a);
  CHECK(window.remote_key() == RemoteKey{0, tag, 64});
  pair.a.fill(0, pattern(8, 2));
  CHECK(pair.write({56, tag}) == success);
  CHECK(pair.b.holds(1056, pattern(8, 2)));
  CHECK(pair.write({57, tag}) == remote_access_error);

  // By another queue pair of the same domain.
  REQUIRE(from.post_send(rdma_write(7, {pair.a.region.segment(0, 8)}, {0, tag})) == Status::ok);
  CHECK(pair.one(pair.a).status == remote_access_error);
  CHECK(window.valid());

  // Bound already: it has to be ended first, here by its owner.
  REQUIRE(pair.b.queue_pair.post_bind(window, pair.b.region, zero) == Status::ok);
  CHECK(pair.one(pair.b).status == memory_request_error);
  CHECK(pair.b.queue_pair.state() == QueuePairState::sq_error);
  REQUIRE(pair.b.queue_pair.modify(QueuePairState::ready_to_send) == Status::ok);
  CHECK(window.remote_key() == RemoteKey{0, tag, 64});
  REQUIRE(pair.b.queue_pair.post_send(local_invalidate(1, tag)) == Status::ok);
  CHECK(pair.one(pair.b).status == success);
  CHECK_FALSE(window.valid());
  CHECK(pair.write({0, tag}) == remote_access_error);
  zero.key = 0x5b;
  CHECK(bound(pair, pair.b, window, zero).instance() == 0x5b);
}

TEST_CASE("verbs: windows open bridge memory, pages and what was registered through the queue, too",
          "[fabric][verbs]") {
  Pair pair;
  alignas(fabric::kSmallestPage) static std::array<std::byte, 2 * fabric::kSmallestPage> memory;
  const std::array<std::byte*, 2> pages{memory.data() + fabric::kSmallestPage, memory.data()};
  RegionOptions options;
  options.rights = kEverything;
  Registration registration;
  registration.pages.pages = pages;
  registration.rights = kEverything;
  registration.base = 0x7000;
  MemoryRegion through_queue = made(pair.b.domain.allocate_region(2));
  const MemoryRegion scattered = made(pair.b.domain.register_pages(registration.pages, options));
  const MemoryRegion direct =
      made(pair.b.domain.register_bridge_memory(pair.b.path, 0, 2 * fabric::kSmallestPage, kEverything));
  auto windows = made(pair.b.domain.allocate_windows(WindowType::type_2, 3));
  REQUIRE(windows.size() == 3);
  REQUIRE(pair.b.queue_pair.post_register(through_queue, registration) == Status::ok);
  std::size_t next = 0;
  for (const MemoryRegion* region : std::initializer_list<const MemoryRegion*>{&through_queue, &scattered, &direct}) {
    MemoryWindow& window = windows[next++];
    // Across the border of both pages.
    REQUIRE(pair.b.queue_pair.post_bind(window, *region, binding(fabric::kSmallestPage - 10, 30)) == Status::ok);
    pair.run();
    const auto ends = pair.b.take();
    REQUIRE_FALSE(ends.empty());
    for (const Completion& end : ends) CHECK(end.status == success);
    const auto bytes = pattern(30, next);
    pair.a.fill(0, bytes);
    CHECK(pair.write(window.remote_key().at(), 30) == success);
    std::vector<std::byte> seen(30);
    REQUIRE(region->load(fabric::kSmallestPage - 10, seen) == Status::ok);
    CHECK(seen == bytes);
    CHECK(pair.write(window.remote_key().at(1), 30) == remote_access_error);
  }
}

TEST_CASE("verbs: a window is bound and its key sent on the same queue, without a wait between", "[fabric][verbs]") {
  Pair pair;
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_2));
  Binding opened = binding(0, 128);
  opened.key = 9;
  // Behind a delay neither is carried out at the post.
  REQUIRE(pair.b.queue_pair.post_send(delay(1, milliseconds(1))) == Status::ok);
  REQUIRE(pair.b.queue_pair.post_bind(window, pair.b.region, opened, {2, false, false}) == Status::ok);
  CHECK_FALSE(window.valid());
  const auto key = encode(window.remote_key());
  WorkRequest tell = send(3, {LocalSegment{const_cast<std::byte*>(key.data()), key.size(), Stag{}}});
  tell.inline_data = true;
  REQUIRE(pair.b.queue_pair.post_send(tell) == Status::ok);
  REQUIRE(pair.a.queue_pair.post_receive(receive(1, pair.a.region.segment(512, 16))) == Status::ok);
  pair.run(300);
  REQUIRE(pair.a.take().size() == 1);
  const auto told = decode_remote_key(std::span(pair.a.memory).subspan(512, 16));
  REQUIRE(told.has_value());
  CHECK(told->bytes == 128);
  CHECK(pair.write(told->at(120)) == success);
}

TEST_CASE("verbs: a send with invalidate ends the peer's window, and says so", "[fabric][verbs]") {
  Pair pair;
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_2));
  const Stag tag = bound(pair, pair.b, window, binding(0, 100));
  REQUIRE(pair.b.queue_pair.post_receive(receive(5, pair.b.region.segment(4096, 100))) == Status::ok);
  CHECK(pair.outcome(send_with_invalidate(1, {pair.a.region.segment(0, 10)}, tag)) == success);
  const auto received = pair.b.take();
  REQUIRE(received.size() == 1);
  CHECK(received[0].has_invalidated);
  CHECK(received[0].tag == tag);
  CHECK(received[0].bytes == 10);
  CHECK_FALSE(window.valid());
  CHECK(pair.write({0, tag}) == remote_access_error);
}

TEST_CASE("verbs: what is not opened to invalidation stays, and the asker's connection ends", "[fabric][verbs]") {
  Pair pair;
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_2));
  Binding kept = binding(0, 100);
  kept.invalidatable = false;
  const Stag tag = bound(pair, pair.b, window, kept);
  for (const Stag target : {tag, pair.b.region.tag(), Stag{0xffffffff}, Stag{}}) {
    REQUIRE(pair.b.queue_pair.post_receive(receive(5, pair.b.region.segment(4096, 100))) == Status::ok);
    CHECK(pair.outcome(send_with_invalidate(1, {pair.a.region.segment(0, 10)}, target)) != success);
    CHECK(window.valid());
    CHECK(pair.b.region.valid());
  }
}

TEST_CASE("verbs: one-touch windows end with the first message written, one-shot ones with the first operation",
          "[fabric][verbs]") {
  Pair pair;
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_1));
  Binding once = binding(0, 4096);
  once.touch = TouchControl::one_touch;
  bound(pair, pair.b, window, once);
  pair.a.fill(0, pattern(3000, 3));
  CHECK(pair.read(window.remote_key().at(), 3000) == success);  // reads do not touch
  CHECK(window.valid());
  pair.a.fill(0, pattern(3000, 3));
  CHECK(pair.write(window.remote_key().at(), 3000) == success);
  CHECK(pair.b.holds(0, pattern(3000, 3)));
  CHECK_FALSE(window.valid());
  CHECK(pair.write(window.remote_key().at()) == remote_access_error);

  once.touch = TouchControl::one_shot;
  bound(pair, pair.b, window, once);
  CHECK(pair.read(window.remote_key().at(), 3000) == success);
  CHECK(pair.read(window.remote_key().at()) == remote_access_error);

  RegionOptions shot;
  shot.rights = Right::local_write | Right::remote_write;
  shot.touch = TouchControl::one_shot;
  const MemoryRegion region = made(pair.b.domain.register_memory(std::span(pair.b.memory).first(64), shot));
  CHECK(pair.write(region.remote_key().at(), 64) == success);
  CHECK_FALSE(region.valid());
  CHECK(pair.write(region.remote_key().at()) == remote_access_error);
}

TEST_CASE("verbs: in strict domains regions are local and windows remote", "[fabric][verbs]") {
  Pair pair(plain(), DomainRules::strict);
  CHECK(pair.write(pair.b.region.remote_key().at()) == remote_access_error);
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_1));
  bound(pair, pair.b, window, binding(0, 64));
  CHECK(pair.write(window.remote_key().at()) == success);
  // The sink of a read is written by the peer's data: a window here, too.
  CHECK(pair.a.queue_pair.post_send(rdma_read(1, {pair.a.region.segment(0, 8)}, window.remote_key().at())) ==
        Status::bad_tag);
  MemoryWindow sink = made(pair.a.domain.allocate_window(WindowType::type_1));
  bound(pair, pair.a, sink, binding(128, 64));
  pair.b.fill(0, pattern(64, 4));
  CHECK(pair.outcome(rdma_read(1, {sink.segment(0, 64)}, window.remote_key().at())) == success);
  CHECK(pair.a.holds(128, pattern(64, 4)));
}

TEST_CASE("verbs: a refused bind ends the sends, or with the other option the connection with one terminate",
          "[fabric][verbs]") {
  for (const auto option : {MemoryRequestFailure::fail_sends, MemoryRequestFailure::fail}) {
    QueuePairOptions shape = plain();
    shape.on_memory_request_failure = option;
    Pair pair(shape);
    MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_1));
    const Stag before = window.tag();
    REQUIRE(pair.b.queue_pair.post_receive(receive(9, pair.b.region.segment(0, 100))) == Status::ok);
    // Behind a delay, so that what follows is posted before the table refuses.
    REQUIRE(pair.b.queue_pair.post_send(delay(1, milliseconds(1))) == Status::ok);
    REQUIRE(pair.b.queue_pair.post_bind(window, pair.b.region, binding(End::kBytes - 4, 5), {2, true, false}) ==
            Status::ok);
    REQUIRE(pair.b.queue_pair.post_send(send(3, {pair.b.region.segment(0, 8)})) == Status::ok);
    pair.run(300);
    const auto ends = pair.b.take();
    CHECK(window.tag() == before);
    CHECK(window.remote_key().bytes == 0);
    if (option == MemoryRequestFailure::fail_sends) {
      REQUIRE(ends.size() == 3);
      CHECK(ends[0].status == success);
      CHECK(ends[1].status == memory_request_error);
      CHECK(ends[2].status == flushed);
      CHECK(pair.b.queue_pair.state() == QueuePairState::sq_error);
      CHECK(pair.a.queue_pair.state() == QueuePairState::ready_to_send);
      // Receiving went on, and sends resume.
      REQUIRE(pair.a.queue_pair.post_send(send(4, {pair.a.region.segment(0, 8)})) == Status::ok);
      CHECK(pair.one(pair.b).status == success);
      CHECK(pair.a.take().size() == 1);
      REQUIRE(pair.b.queue_pair.modify(QueuePairState::ready_to_send) == Status::ok);
      bound(pair, pair.b, window, binding(0, 8));
      CHECK(pair.b.events().empty());
      CHECK(pair.a.events().empty());
    } else {
      REQUIRE(ends.size() == 4);
      CHECK(ends[1].status == memory_request_error);
      CHECK(ends[2].status == flushed);
      CHECK(ends[3].receive);
      CHECK(ends[3].status == flushed);
      CHECK(pair.b.queue_pair.state() == QueuePairState::error);
      CHECK(pair.a.queue_pair.state() == QueuePairState::error);
      const auto told = pair.a.events();
      REQUIRE(told.size() == 1);
      CHECK(told[0].kind == AsyncEventKind::queue_pair_fatal);
      CHECK(told[0].from_peer);
    }
  }
}

TEST_CASE("verbs: windows go with their region, and type 2 windows with their queue pair", "[fabric][verbs]") {
  Pair pair;
  MemoryRegion region = made(pair.b.domain.register_memory(pair.b.memory, kEverything));
  MemoryWindow first = made(pair.b.domain.allocate_window(WindowType::type_1));
  MemoryWindow second = made(pair.b.domain.allocate_window(WindowType::type_2));
  REQUIRE(pair.b.queue_pair.post_bind(first, region, binding(0, 8)) == Status::ok);
  REQUIRE(pair.b.queue_pair.post_bind(second, region, binding(0, 8)) == Status::ok);
  pair.run();
  REQUIRE(pair.b.take().size() == 2);
  CHECK(region.deregister() == Status::in_use);
  CHECK(region.reregister({.rights = kLocal}) == Status::in_use);
  const RemoteKey key = first.remote_key();
  region = MemoryRegion();
  CHECK_FALSE(first.valid());
  CHECK_FALSE(second.valid());
  CHECK(first.remote_key().bytes == 0);
  CHECK(pair.write(key.at()) == remote_access_error);
  bound(pair, pair.b, first, binding(0, 8));

  QueuePairOptions shape = plain();
  shape.number = QpNumber{7};
  QueuePair owner = pair.b.another(shape);
  QueuePair peer = pair.a.another(plain());
  Pair::connect(peer, owner);
  REQUIRE(owner.post_bind(second, pair.b.region, binding(0, 8)) == Status::ok);
  CHECK(pair.one(pair.b).status == success);
  owner = QueuePair();
  CHECK_FALSE(second.valid());
  CHECK(first.valid());
  // The next queue pair of this number does not inherit it.
  owner = pair.b.another(shape);
  QueuePair next = pair.a.another(plain());
  Pair::connect(next, owner);
  pair.a.take();
  REQUIRE(next.post_send(rdma_write(1, {pair.a.region.segment(0, 8)}, {key.address, second.tag()})) == Status::ok);
  CHECK(pair.one(pair.a).status == remote_access_error);
}

TEST_CASE("verbs: a bind asks the kernel nothing, wherever the memory was mapped before its registration",
          "[fabric][verbs]") {
  using fabric::LocalProtection;
  for (const std::size_t bytes :
       {fabric::page_bytes(), LocalProtection::kExactBytesMax, LocalProtection::kFillBytesMax}) {
    CAPTURE(bytes);
    Pair pair;
    const fabric::MappedMemory memory(bytes);  // the record of the queue pair's opening does not have it
    const MemoryRegion region = made(pair.b.domain.register_memory({memory.data(), bytes}, kEverything));
    MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_1));
    memory.protect(PROT_NONE);  // from now on the kernel would say no
    REQUIRE(pair.b.queue_pair.post_bind(window, region, binding(8, bytes - 8)) == Status::ok);
    CHECK(pair.one(pair.b).status == success);
    CHECK(pair.write(window.remote_key().at()) == remote_operation_error);
  }
}

TEST_CASE("verbs: a region that ends leaves alone where its window is to be bound next", "[fabric][verbs]") {
  Pair pair;
  MemoryRegion old = made(pair.b.domain.register_memory(pair.b.memory, kEverything));
  MemoryWindow window = made(pair.b.domain.allocate_window(WindowType::type_1));
  REQUIRE(pair.b.queue_pair.post_bind(window, old, binding(0, 8)) == Status::ok);
  pair.run();
  REQUIRE(pair.b.take().size() == 1);
  const RemoteKey before = window.remote_key();
  // Behind a delay, the next bind waits in the send queue.
  REQUIRE(pair.b.queue_pair.post_send(delay(1, milliseconds(1))) == Status::ok);
  REQUIRE(pair.b.queue_pair.post_bind(window, pair.b.region, binding(0, 8)) == Status::ok);
  const RemoteKey next = window.remote_key();
  REQUIRE(window.valid());
  old = MemoryRegion();
  CHECK_FALSE(window.valid());
  CHECK(window.remote_key().tag == next.tag);
  for (int i = 0; i < 1000 && !window.valid(); ++i) pair.run();
  for (const Completion& end : pair.b.take()) CHECK(end.status == success);
  REQUIRE(window.valid());
  CHECK(window.tag() == next.tag);
  CHECK(pair.write(next.at()) == success);
  CHECK(pair.write(before.at()) == remote_access_error);
}

}  // namespace splitnic::verbs::test::verbs_window_test
