#include <catch2/catch.hpp>

#include "fabric/verbs/objects.h"
#include "mapped_memory.h"
#include "verbs_fixture.h"

// Again last, as in the fixture.

namespace splitnic::verbs::test::verbs_memory_test {

using enum CompletionStatus;
using fabric::MappedMemory;
using fabric::page_bytes;

namespace {

Registration registration(std::span<std::byte* const> pages, std::uint8_t key) {
  Registration made;
  made.pages.pages = pages;
  made.pages.page_bytes = page_bytes();
  made.pages.end_offset = page_bytes();
  made.rights = kEverything;
  made.key = key;
  made.base = 0x1000;
  return made;
}

/// A list of two whole pages, the second one of the memory before the first, and options with every right.
struct TwoPages {
  MappedMemory memory{2 * page_bytes()};
  std::array<std::byte*, 2> pages{memory.at(page_bytes()), memory.at(0)};
  PageList list;
  RegionOptions options;

  TwoPages() {
    list.pages = pages;
    list.page_bytes = page_bytes();
    list.end_offset = page_bytes();
    options.rights = kEverything;
    options.base = 0;
  }
};

}  // namespace

TEST_CASE("verbs: a region registered through the send queue is used by what is posted after it at once",
          "[fabric][verbs]") {
  Pair pair;
  MappedMemory memory(3 * page_bytes());
  // Backwards, so that it is the pages that count.
  const std::array<std::byte*, 2> pages{memory.at(2 * page_bytes()), memory.at(0)};
  MemoryRegion region = made(pair.a.domain.allocate_region(2));
  CHECK_FALSE(region.valid());
  CHECK(region.size() == 0);

  for (const bool behind_a_delay : {false, true}) {
    const auto key = static_cast<std::uint8_t>(behind_a_delay ? 2 : 1);
    const auto bytes = pattern(100, key);
    std::ranges::copy(std::span(bytes).first(60), memory.at(3 * page_bytes() - 60));
    std::ranges::copy(std::span(bytes).last(40), memory.at(0));
    if (behind_a_delay) {
      REQUIRE(pair.a.queue_pair.post_send(delay(1, milliseconds(1))) == Status::ok);
    }
    REQUIRE(pair.b.queue_pair.post_receive(receive(1, pair.b.region.segment(0, 100))) == Status::ok);
    REQUIRE(pair.a.queue_pair.post_register(region, registration(pages, key), {2, true, false}) == Status::ok);
    CHECK(region.valid() == !behind_a_delay);
    CHECK(region.size() == 2 * page_bytes());
    CHECK(region.tag().instance() == key);
    REQUIRE(pair.a.queue_pair.post_send(send(3, {region.segment(page_bytes() - 60, 100)})) == Status::ok);
    REQUIRE(pair.a.queue_pair.post_send(rdma_read(4, {region.segment(200, 100)}, pair.b.region.remote_key().at(0))) ==
            Status::ok);
    pair.run(400);
    const auto ends = pair.a.take();
    REQUIRE(ends.size() >= 2);
    for (const Completion& end : ends) CHECK(end.status == success);
    REQUIRE(pair.b.take().size() == 1);
    CHECK(pair.b.holds(0, bytes));
    CHECK(std::ranges::equal(bytes, std::span(memory.at(2 * page_bytes() + 200), 100)));
    CHECK(region.valid());
    std::vector<std::byte> seen(100);
    CHECK(region.load(page_bytes() - 60, seen) == Status::ok);
    CHECK(seen == bytes);
    REQUIRE(pair.a.queue_pair.post_send(local_invalidate(5, region.tag())) == Status::ok);
    CHECK(pair.one(pair.a).status == success);
    CHECK_FALSE(region.valid());
    CHECK(region.load(0, seen) == Status::bad_tag);
    CHECK(region.store(0, seen) == Status::bad_tag);
  }
}

TEST_CASE("verbs: a post of pages that were mapped before the queue pair was opened asks the kernel nothing",
          "[fabric][verbs]") {
  Pair pair;
  const MappedMemory memory(page_bytes());
  const std::array<std::byte*, 1> pages{memory.data()};
  MemoryRegion region = made(pair.a.domain.allocate_region(1));
  memory.protect(PROT_NONE);  // from now on the kernel would say no
  CHECK(pair.a.queue_pair.post_register(region, registration(pages, 1)) == Status::bad_argument);
  memory.protect(PROT_READ | PROT_WRITE);
  QueuePair later = pair.a.another(plain());
  QueuePair other = pair.b.another(plain());
  Pair::connect(later, other);
  memory.protect(PROT_NONE);
  CHECK(later.post_register(region, registration(pages, 1)) == Status::ok);
  CHECK(pair.one(pair.a).status == success);
}

TEST_CASE("verbs: register-and-send gives the peer a key that is good when it arrives", "[fabric][verbs]") {
  Pair pair;
  MappedMemory memory(page_bytes());
  const std::array<std::byte*, 1> pages{memory.data()};
  MemoryRegion region = made(pair.a.domain.allocate_region(1));
  REQUIRE(pair.b.queue_pair.post_receive(receive(1, pair.b.region.segment(0, 64))) == Status::ok);
  // What it sends is in the very memory that it registers.
  Registration opened = registration(pages, 0x77);
  const RemoteKey key{opened.base, Stag::from(region.tag().index(), 0x77), 4096};
  std::ranges::copy(encode(key), memory.data());
  opened.invalidatable = true;
  WorkRequest told = send(2, {LocalSegment::at(opened.base, 16, key.tag)});
  told.solicited = true;
  REQUIRE(pair.a.queue_pair.post_register_and_send(region, opened, told) == Status::ok);
  const Completion sent = pair.one(pair.a);
  CHECK(sent.id == 2);
  CHECK(sent.status == success);
  CHECK(sent.tag == region.tag());
  const auto received = pair.b.take();
  REQUIRE(received.size() == 1);
  CHECK(received[0].solicited);
  CHECK(decode_remote_key(std::span(pair.b.memory).first(16)) == region.remote_key(0, 4096).value());

  // The peer uses it, and ends it with its answer.
  pair.b.fill(100, pattern(8, 5));
  REQUIRE(pair.b.queue_pair.post_send(rdma_write(3, {pair.b.region.segment(100, 8)}, key.at(8))) == Status::ok);
  REQUIRE(pair.a.queue_pair.post_receive(receive(4, pair.a.region.segment(0, 8))) == Status::ok);
  REQUIRE(pair.b.queue_pair.post_send(send_with_invalidate(5, {}, key.tag)) == Status::ok);
  const Completion done = pair.one(pair.a);
  CHECK(done.has_invalidated);
  CHECK(done.tag == key.tag);
  CHECK(std::ranges::equal(pattern(8, 5), std::span(memory.at(8), 8)));
  CHECK_FALSE(region.valid());
}

TEST_CASE("verbs: a refused registration ends the sends, or with the other option the connection", "[fabric][verbs]") {
  for (const auto option : {MemoryRequestFailure::fail_sends, MemoryRequestFailure::fail}) {
    QueuePairOptions shape = plain();
    shape.on_memory_request_failure = option;
    Pair pair(shape);
    MappedMemory memory(2 * page_bytes());
    const std::array<std::byte*, 2> pages{memory.at(0), memory.at(page_bytes())};
    MemoryRegion region = made(pair.a.domain.allocate_region(1));  // one page too few
    REQUIRE(pair.a.queue_pair.post_send(delay(1, milliseconds(1))) == Status::ok);
    REQUIRE(pair.a.queue_pair.post_register(region, registration(pages, 1)) == Status::ok);
    REQUIRE(pair.a.queue_pair.post_send(send(3, {region.segment(0, 8)})) == Status::ok);
    pair.run(300);
    const auto ends = pair.a.take();
    REQUIRE(ends.size() == 3);
    CHECK(ends[1].status == memory_request_error);
    CHECK(ends[2].status == flushed);
    CHECK_FALSE(region.valid());
    CHECK(region.size() == 0);
    const bool resumable = option == MemoryRequestFailure::fail_sends;
    CHECK(pair.a.queue_pair.state() == (resumable ? QueuePairState::sq_error : QueuePairState::error));
    CHECK(pair.b.queue_pair.state() == (resumable ? QueuePairState::ready_to_send : QueuePairState::error));
    if (!resumable) continue;
    REQUIRE(pair.a.queue_pair.modify(QueuePairState::ready_to_send) == Status::ok);
    REQUIRE(pair.a.queue_pair.post_register(region, registration(std::span(pages).first(1), 1)) == Status::ok);
    CHECK(pair.one(pair.a).status == success);
  }
}

TEST_CASE("verbs: a region is registered anew: other memory, rights, domain; the old tag opens nothing",
          "[fabric][verbs]") {
  Pair pair;
  std::vector<std::byte> first(64);
  std::vector<std::byte> second(128);
  MemoryRegion region = made(pair.b.domain.register_memory(first, kEverything));
  const RemoteKey before = region.remote_key();
  CHECK(pair.write(before.at()) == success);

  REQUIRE(region.reregister({.memory = second}) == Status::ok);
  CHECK(region.size() == 128);
  CHECK(pair.write(before.at()) == remote_access_error);
  pair.a.fill(0, pattern(8, 1));
  CHECK(pair.write(region.remote_key().at(120)) == success);
  CHECK(std::ranges::equal(std::span(second).last(8), pattern(8, 1)));

  REQUIRE(region.reregister({.rights = Right::local_read | Right::remote_read}) == Status::ok);
  CHECK(pair.write(region.remote_key().at()) == remote_access_error);
  CHECK(pair.read(region.remote_key().at(), 128) == success);

  const ProtectionDomain other = made(pair.b.context.allocate_domain());
  REQUIRE(region.reregister({.domain = &other}) == Status::ok);
  CHECK(pair.read(region.remote_key().at(), 128) == remote_access_error);
  CHECK(pair.b.queue_pair.post_send(send(1, {region.segment(0, 8)})) == Status::bad_tag);
  CHECK(region.reregister({.rights = Rights{} | Right::remote_write}) == Status::bad_argument);
  CHECK(region.valid());
}

TEST_CASE("verbs: pages have peers' addresses alone, and are read and written by offset", "[fabric][verbs]") {
  Pair pair;
  TwoPages two;
  two.list.first_offset = 100;
  two.list.end_offset = 50;
  MemoryRegion region = made(pair.b.domain.register_pages(two.list, two.options));
  CHECK(region.size() == page_bytes() - 50);
  CHECK(region.remote_key().address == 0);
  const auto bytes = pattern(60, 1);
  pair.a.fill(0, bytes);
  CHECK(pair.write({page_bytes() - 130, region.tag()}, 60) == success);
  std::vector<std::byte> seen(60);
  REQUIRE(region.load(page_bytes() - 130, seen) == Status::ok);
  CHECK(seen == bytes);
  CHECK(std::ranges::equal(std::span(bytes).last(30), std::span(two.memory.at(0), 30)));
  CHECK(region.load(page_bytes() - 50, std::span(seen).first(1)) == Status::bad_length);
  REQUIRE(region.store(0, bytes) == Status::ok);
  CHECK(pair.read({0, region.tag()}, 60) == success);
  CHECK(pair.a.holds(0, bytes));
  REQUIRE(pair.a.queue_pair.post_receive(receive(1, pair.a.region.segment(1000, 60))) == Status::ok);
  REQUIRE(pair.b.queue_pair.post_send(send(2, {region.segment(0, 60)})) == Status::ok);
  pair.run();
  CHECK(pair.a.holds(1000, bytes));
}

TEST_CASE("verbs: two regions share one list of pages, each with rights and a life of its own", "[fabric][verbs]") {
  Pair pair;
  TwoPages two;
  MemoryRegion whole = made(pair.b.domain.register_pages(two.list, two.options));
  RegionOptions reading;
  reading.rights = Right::local_read | Right::remote_read;
  reading.base = 7000;
  MemoryRegion readable = made(pair.b.domain.register_shared(whole, reading));
  CHECK(readable.size() == whole.size());
  CHECK(readable.tag() != whole.tag());
  const auto& table = pair.b.context.object()->adapter.table();
  CHECK(table.find(readable.tag())->memory.sharers() == 2);

  // What is written through the one is read through the other, which takes no writes.
  const auto bytes = pattern(60, 1);
  pair.a.fill(0, bytes);
  CHECK(pair.write({page_bytes() - 30, whole.tag()}, 60) == success);
  CHECK(pair.read({7000 + page_bytes() - 30, readable.tag()}, 60) == success);
  CHECK(pair.a.holds(0, bytes));
  CHECK(refusal(pair.b.domain.register_shared(readable, two.options)) == Status::bad_argument);  // writes

  // The pages last as long as either of them.
  REQUIRE(whole.deregister() == Status::ok);
  CHECK(table.find(readable.tag())->memory.sharers() == 1);
  CHECK(pair.read({7000 + page_bytes() - 30, readable.tag()}, 60) == success);
  CHECK(pair.a.holds(0, bytes));
  CHECK(pair.write({7000, readable.tag()}, 60) == remote_access_error);
}

TEST_CASE("verbs: what can't be shared is refused, and says why", "[fabric][verbs]") {
  Pair pair;
  RegionOptions options;
  options.rights = kEverything;
  const MemoryRegion of_bridge = made(pair.b.domain.register_bridge_memory(pair.b.path, 0, 4096, kEverything));
  CHECK(refusal(pair.b.domain.register_shared(of_bridge, options)) == Status::not_permitted);
  const MemoryRegion later = made(pair.b.domain.allocate_region(2));
  CHECK(refusal(pair.b.domain.register_shared(later, options)) == Status::not_permitted);
  CHECK(refusal(pair.a.domain.register_shared(pair.b.region, options)) == Status::bad_argument);  // another context's
  const MemoryRegion again = made(pair.b.domain.register_shared(pair.b.region, options));
  CHECK(again.size() == pair.b.region.size());
  REQUIRE(pair.b.queue_pair.post_send(send(2, {again.segment(0, 8)})) == Status::ok);  // named by pointer, too
}

TEST_CASE("verbs: bridge memory is written directly or in cells, and rests until direct writes are over",
          "[fabric][verbs]") {
  Pair pair;
  const std::size_t all = pair.b.path.bridge_bytes();
  REQUIRE(all > 65536);
  for (const auto access : {BridgeAccess::segmented, BridgeAccess::direct}) {
    MemoryRegion region =
        made(pair.b.domain.register_bridge_memory(pair.b.path, all - 4096, 4096, kEverything, access));
    const auto bytes = pattern(4000, 1);
    pair.a.fill(0, bytes);
    CHECK(pair.write(region.remote_key().at(96), 4000) == success);
    std::vector<std::byte> seen(4000);
    REQUIRE(region.load(96, seen) == Status::ok);
    CHECK(seen == bytes);
    REQUIRE(region.store(0, std::span(bytes).first(96)) == Status::ok);
    CHECK(pair.read(region.remote_key().at(0), 96) == success);
    CHECK(pair.a.holds(0, std::span(bytes).first(96)));
    const Stag tag = region.tag();
    REQUIRE(region.deregister() == Status::ok);
    CHECK_FALSE(region);
    if (access == BridgeAccess::segmented) continue;
    const auto again = [&] { return pair.b.domain.register_bridge_memory(pair.b.path, all - 64, 64, kEverything); };
    CHECK(refusal(again()) == Status::in_use);
    pair.run();
    const auto events = pair.b.events();
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == AsyncEventKind::memory_drained);
    CHECK(events[0].tag == tag);
    CHECK(again().has_value());
  }
}

TEST_CASE("verbs: memory that the process may not access is not registered", "[fabric][verbs]") {
  Pair pair;
  MappedMemory memory(4 * page_bytes());
  memory.protect(page_bytes(), page_bytes(), PROT_NONE);
  memory.protect(2 * page_bytes(), page_bytes(), PROT_READ);
  memory.unmap(3 * page_bytes(), page_bytes());
  const auto page = [&](std::size_t number) { return std::span(memory.at(number * page_bytes()), page_bytes()); };
  const Rights read_only = Right::local_read | Right::remote_read;
  auto& domain = pair.a.domain;
  CHECK(domain.register_memory(page(0), kEverything).has_value());
  CHECK(domain.register_memory(page(2), read_only).has_value());
  CHECK(refusal(domain.register_memory(page(1), read_only)) == Status::bad_argument);
  CHECK(refusal(domain.register_memory(page(2), kEverything)) == Status::bad_argument);
  CHECK(refusal(domain.register_memory({memory.data(), page_bytes() + 1}, read_only)) == Status::bad_argument);
  CHECK(refusal(domain.register_memory({memory.data(), SIZE_MAX / 2}, read_only)) == Status::bad_argument);
  std::byte* const null = nullptr;
  CHECK(refusal(domain.register_memory({null, 64}, read_only)) == Status::bad_argument);

  RegionOptions options;
  options.rights = kEverything;
  for (const std::size_t bad : {1U, 2U}) {
    const std::array<std::byte*, 2> pages{memory.at(0), memory.at(bad * page_bytes())};
    const Registration asked = registration(pages, 1);
    CHECK(refusal(domain.register_pages(asked.pages, options)) == Status::bad_argument);
    MemoryRegion region = made(domain.allocate_region(2));
    CHECK(pair.a.queue_pair.post_register(region, asked) == Status::bad_argument);
    CHECK(pair.a.queue_pair.post_register_and_send(region, asked, send(1, {})) == Status::bad_argument);
  }
  MemoryRegion region = made(domain.register_memory(page(0), kEverything));
  CHECK(region.reregister({.memory = page(1)}) == Status::bad_argument);
  CHECK(region.reregister({.memory = page(2)}) == Status::bad_argument);
  CHECK(region.valid());
}

TEST_CASE("verbs: memory that goes missing is an event and a failed request, never a fault", "[fabric][verbs]") {
  Pair pair;
  MappedMemory lost(page_bytes());
  MemoryRegion region = made(pair.a.domain.register_memory({lost.data(), lost.size()}, kEverything));
  const RemoteKey key = region.remote_key();
  const auto bytes = pattern(8, 1);
  lost.protect(PROT_NONE);  // gone, but nobody else maps something there

  const auto expect_event = [&] {
    bool told = false;
    for (const AsyncEvent& event : pair.a.events()) {
      told = told || (event.kind == AsyncEventKind::memory_gone && event.tag == region.tag());
    }
    CHECK(told);
  };
  CHECK(region.load(0, std::span(pair.a.memory).first(8)) == Status::bad_argument);
  CHECK(region.store(0, bytes) == Status::bad_argument);

  SECTION("as what a send gathers") {
    REQUIRE(pair.b.queue_pair.post_receive(receive(1, pair.b.region.segment(0, 8))) == Status::ok);
    REQUIRE(pair.a.queue_pair.post_send(send(1, {region.segment(0, 8)})) == Status::ok);
    pair.run();
    const auto ends = pair.a.take();
    REQUIRE(ends.size() == 1);
    CHECK(ends[0].status == local_protection_error);
    expect_event();
  }
  SECTION("as inline data, which is looked at by the post") {
    WorkRequest hello = send(1, {region.segment(0, 8)});
    hello.inline_data = true;
    CHECK(pair.a.queue_pair.post_send(hello) == Status::bad_argument);
  }
  SECTION("as where a receive scatters") {
    REQUIRE(pair.a.queue_pair.post_receive(receive(1, region.segment(0, 8))) == Status::ok);
    REQUIRE(pair.b.queue_pair.post_send(send(2, {pair.b.region.segment(0, 8)})) == Status::ok);
    pair.run();
    const auto ends = pair.a.take();
    REQUIRE(ends.size() == 1);
    CHECK(ends[0].status == local_protection_error);
    REQUIRE(pair.b.take().size() == 1);
    expect_event();
  }
  SECTION("as where a read's data goes") {
    REQUIRE(pair.a.queue_pair.post_send(rdma_read(1, {region.segment(0, 8)}, pair.b.region.remote_key().at())) ==
            Status::ok);
    pair.run();
    const auto ends = pair.a.take();
    REQUIRE(ends.size() == 1);
    CHECK(ends[0].status == local_protection_error);
    expect_event();
  }
  SECTION("as what the peer writes, reads or changes") {
    const LocalSegment word = pair.b.region.segment(0, 8);
    for (const WorkRequest& request :
         {rdma_write(1, {word}, key.at()), rdma_read(1, {word}, key.at()), fetch_add(1, word, key.at(), 1)}) {
      REQUIRE(pair.b.queue_pair.post_send(request) == Status::ok);
      pair.run();
      const auto ends = pair.b.take();
      REQUIRE(ends.size() == 1);
      CHECK(ends[0].status != success);
      expect_event();
      pair.mend();
    }
  }
}

TEST_CASE("verbs: memory that was unmapped is missed when a posted send comes to it", "[fabric][verbs]") {
  Pair pair;
  MappedMemory lost(64 * page_bytes());
  const MemoryRegion region = made(pair.a.domain.register_memory({lost.data(), lost.size()}, kEverything));
  REQUIRE(pair.b.queue_pair.post_receive(receive(1, pair.b.region.segment(0, End::kBytes))) == Status::ok);
  REQUIRE(pair.a.queue_pair.post_send(delay(1, milliseconds(1))) == Status::ok);
  // More than a cell, so that it is in the midst of the message that the memory ends.
  REQUIRE(pair.a.queue_pair.post_send(send(2, {region.segment(page_bytes(), 8 * page_bytes())})) == Status::ok);
  // Nothing allocates from here to the end of the run: the hole stays one.
  lost.unmap(4 * page_bytes(), page_bytes());
  pair.run(500);
  const auto ends = pair.a.take();
  REQUIRE(ends.size() == 2);
  CHECK(ends[1].status == local_protection_error);
  const auto events = pair.a.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == AsyncEventKind::memory_gone);
  CHECK(events[0].tag == region.tag());
  CHECK(events[0].queue_pair == pair.a.queue_pair.address().queue_pair);
  CHECK(events[1].kind == AsyncEventKind::queue_pair_fatal);
}

TEST_CASE("verbs: a region whose memory was unmapped is let go of without a fault", "[fabric][verbs]") {
  Pair pair;
  MappedMemory lost(2 * page_bytes());
  MemoryRegion region = made(pair.a.domain.register_memory({lost.data(), lost.size()}, kEverything));
  REQUIRE(pair.a.queue_pair.post_receive(receive(1, region.segment(0, lost.size()))) == Status::ok);
  lost.unmap();
  CHECK(region.valid());
  CHECK(region.deregister() == Status::ok);
}

}  // namespace splitnic::verbs::test::verbs_memory_test
