// Registration through the send queue: alone, combined with a send, and refused with either option.
#include "tests/two_processes/end.h"

namespace splitnic::verbs::two_processes {
namespace {

using enum CompletionStatus;

constexpr std::uint64_t kBase = 0x10000;

Registration registration(std::span<std::byte* const> pages, std::uint8_t key) {
  Registration made;
  made.pages = PageList{pages, kPage, 0, kPage};
  made.rights = kEverything;
  made.key = key;
  made.base = kBase;
  return made;
}

/// The initiator writes into the memory of a key that it is offered, and reads it back.
RemoteKey use_offer(End& end, std::uint64_t seed) {
  const RemoteKey key = end.take_offer();
  end.fill(0, pattern(key.bytes, seed));
  end.carry_out(rdma_write(2, {end.region.segment(0, key.bytes)}, key.at()));
  end.carry_out(rdma_read(3, {end.region.segment(4 * kPage, key.bytes)}, key.at()));
  REQUIRE(end.holds(4 * kPage, pattern(key.bytes, seed)));
  return key;
}

}  // namespace

TEST_CASE("a region registered through the send queue serves the other process until it is invalidated",
          "[two_processes]") {
  const auto bytes = pattern(2 * kPage, 1);
  const auto owner = [&](End& end) {
    // Backwards, so that it is the pages that count.
    const std::array<std::byte*, 2> pages{end.page(3), end.page(1)};
    MemoryRegion fast = made(end.domain.allocate_region(2));
    REQUIRE(end.queue_pair.post_register(fast, registration(pages, 7), {5}) == Status::ok);
    const RemoteKey key = fast.remote_key();
    REQUIRE(key.bytes == 2 * kPage);
    REQUIRE(end.expect(5, success).tag == key.tag);
    end.offer(key);
    end.meet();  // the initiator has used it
    REQUIRE(end.holds(3 * kPage, std::span(bytes).first(kPage)));
    REQUIRE(end.holds(kPage, std::span(bytes).last(kPage)));
    end.carry_out(local_invalidate(6, key.tag));
    REQUIRE_FALSE(fast.valid());
    end.meet();
    end.expect_refusal(1, kInvalidTagOfWrite);
    REQUIRE(end.holds(3 * kPage, std::span(bytes).first(kPage)));
  };
  const auto initiator = [](End& end) {
    const RemoteKey key = use_offer(end, 1);
    end.meet();
    end.meet();
    end.fill(0, pattern(8, 2));
    end.expect_refused(rdma_write(4, {end.region.segment(0, 8)}, key.at()), kInvalidTagOfWrite);
  };
  run({}, owner, initiator);
}

TEST_CASE("one request registers a region and sends its key, which serves until the other process ends it",
          "[two_processes]") {
  const auto owner = [](End& end) {
    const std::array<std::byte*, 1> pages{end.page(2)};
    MemoryRegion fast = made(end.domain.allocate_region(1));
    Registration opened = registration(pages, 0x77);
    opened.invalidatable = true;
    // The key that is sent lies in the memory that the request registers.
    const RemoteKey key{kBase, Stag::from(fast.tag().index(), 0x77), kPage};
    end.fill(2 * kPage, encode(key));
    const WorkRequest told = send(5, {LocalSegment::at(kBase, kRemoteKeyBytes, key.tag)});
    REQUIRE(end.queue_pair.post_register_and_send(fast, opened, told) == Status::ok);
    const Completion sent = end.expect(5, success);
    REQUIRE(sent.operation == Operation::send);
    REQUIRE(sent.tag == key.tag);
    // The one completion was for both; the next is of the initiator's answer.
    const Completion answer = end.expect(End::kReceive, success);
    REQUIRE(answer.has_invalidated);
    REQUIRE(answer.tag == key.tag);
    REQUIRE(answer.bytes == 100);
    REQUIRE_FALSE(fast.valid());
    REQUIRE(end.holds(2 * kPage, pattern(kPage, 1)));
    REQUIRE(end.holds(End::kInbox, pattern(100, 1)));
    end.post_receive();
    end.meet();
    end.expect_refusal(1, kInvalidTagOfRead);
  };
  const auto initiator = [](End& end) {
    const RemoteKey key = end.take_offer();
    end.fill(0, pattern(kPage, 1));
    end.carry_out(rdma_write(2, {end.region.segment(0, kPage)}, key.at()));
    end.carry_out(send_with_invalidate(3, {end.region.segment(0, 100)}, key.tag));
    end.meet();
    end.expect_refused(rdma_read(4, {end.region.segment(kPage, 8)}, key.at()), kInvalidTagOfRead);
    REQUIRE(end.holds(kPage, std::vector<std::byte>(8)));
  };
  run({}, owner, initiator);
}

TEST_CASE("a refused registration, first option: only the owner's sends end, and they can be resumed",
          "[two_processes]") {
  const bool combined = GENERATE(false, true);
  CAPTURE(combined);
  const auto owner = [&](End& end) {
    const std::array<std::byte*, 2> pages{end.page(1), end.page(2)};
    MemoryRegion fast = made(end.domain.allocate_region(1));  // one page too few
    // Behind a delay, so that what follows is posted before the table refuses.
    REQUIRE(end.queue_pair.post_send(delay(5, std::chrono::milliseconds(1))) == Status::ok);
    const Registration asked = registration(pages, 7);
    REQUIRE((combined ? end.queue_pair.post_register_and_send(fast, asked, send(6, {}))
                      : end.queue_pair.post_register(fast, asked, {6})) == Status::ok);
    REQUIRE(end.queue_pair.post_send(send(7, {end.region.segment(0, 8)})) == Status::ok);
    end.expect(5, success);
    end.expect(6, memory_request_error);
    end.expect(7, flushed);
    REQUIRE(end.queue_pair.state() == QueuePairState::sq_error);
    REQUIRE_FALSE(fast.valid());
    REQUIRE(end.queue_pair.post_send(send(8, {})) == Status::bad_state);
    end.meet();
    // Receiving goes on.
    REQUIRE(end.expect(End::kReceive, success).bytes == 1000);
    REQUIRE(end.holds(End::kInbox, pattern(1000, 3)));
    REQUIRE(end.queue_pair.state() == QueuePairState::sq_error);
    end.post_receive();
    // Sends are resumed, and the memory is registered after all.
    REQUIRE(end.queue_pair.modify(QueuePairState::ready_to_send) == Status::ok);
    const Registration less = registration(std::span(pages).first(1), 8);
    REQUIRE(end.queue_pair.post_register(fast, less, {9}) == Status::ok);
    end.expect(9, success);
    end.offer(fast.remote_key());
    end.meet();
    REQUIRE(end.holds(kPage, pattern(kPage, 4)));
    REQUIRE(end.no_events());
    REQUIRE(end.context.counters().terminates_sent == 0);
  };
  const auto initiator = [](End& end) {
    end.meet();  // the owner's sends have failed
    REQUIRE(end.queue_pair.state() == QueuePairState::ready_to_send);
    end.fill(0, pattern(1000, 3));
    end.carry_out(send(1, {end.region.segment(0, 1000)}));
    static_cast<void>(use_offer(end, 4));  // nothing has arrived before it
    end.meet();
    REQUIRE(end.no_events());
    REQUIRE(end.context.counters().terminates_sent == 0);
  };
  run({}, owner, initiator);
}

TEST_CASE("a refused registration, second option: the connection ends at both processes, with one terminate message",
          "[two_processes]") {
  const bool combined = GENERATE(false, true);
  CAPTURE(combined);
  const auto owner = [&](End& end) {
    const std::array<std::byte*, 2> pages{end.page(1), end.page(2)};
    MemoryRegion fast = made(end.domain.allocate_region(1));
    REQUIRE(end.queue_pair.post_send(delay(5, std::chrono::milliseconds(1))) == Status::ok);
    const Registration asked = registration(pages, 7);
    REQUIRE((combined ? end.queue_pair.post_register_and_send(fast, asked, send(6, {}))
                      : end.queue_pair.post_register(fast, asked, {6})) == Status::ok);
    REQUIRE(end.queue_pair.post_send(send(7, {end.region.segment(0, 8)})) == Status::ok);
    end.expect(5, success);
    end.expect(6, memory_request_error);
    end.expect(7, flushed);
    end.expect_end(kLocalCatastrophe, false);
    end.meet();
    REQUIRE(end.context.counters().terminates_sent == 1);
    REQUIRE(end.context.counters().access_refused == 0);  // this counts a peer's requests
    // Both reset, the processes go on.
    end.connect();
    const Registration less = registration(std::span(pages).first(1), 8);
    REQUIRE(end.queue_pair.post_register(fast, less, {9}) == Status::ok);
    end.expect(9, success);
    end.offer(fast.remote_key());
    end.meet();
    REQUIRE(end.holds(kPage, pattern(kPage, 4)));
  };
  const auto initiator = [&](End& end) {
    end.expect_end(kLocalCatastrophe, true);
    REQUIRE(end.queue_pair.post_send(send(1, {})) == Status::bad_state);
    end.meet();
    REQUIRE(end.context.counters().terminates_sent == 0);
    end.connect();
    static_cast<void>(use_offer(end, 4));
    end.meet();
  };
  run({.on_failure = MemoryRequestFailure::fail}, owner, initiator);
}

}  // namespace splitnic::verbs::two_processes
