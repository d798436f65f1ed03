#include <limits>

#include "adapter_requests.h"

/// Inline data, delays, solicited events, shared receive queues, completion channels, asynchronous events, limits.
namespace splitnic::fabric::test::adapter_queues_test {
namespace {

using Names = std::vector<std::string>;

constexpr std::uint32_t kPsn = ScriptedPeer::kPsn;
constexpr std::uint32_t kOwnPsn = ScriptedPeer::kOwnPsn;

/// A queue pair at each end, connected.
struct Connection {
  Connection(TwoEndpoints& two, const QueuePairAttributes& first, const QueuePairAttributes& second)
      : near(two.end(0).make_queue_pair(first)), far(two.end(1).make_queue_pair(second)) {
    REQUIRE(two.end(0).adapter.connect(near, {far, 100, 200}) == Status::ok);
    REQUIRE(two.end(1).adapter.connect(far, {near, 200, 100}) == Status::ok);
  }
  QpNumber near;
  QpNumber far;
};

QueuePairAttributes inline_up_to(std::size_t bytes) { return {.max_inline_bytes = bytes}; }

WorkRequest delay_of(std::uint64_t id, Duration delay) {
  return {.id = id, .operation = Operation::delay, .delay = delay};
}

}  // namespace

TEST_CASE("inline data is what was said at the post, also in a retry, and needs no region", "[fabric][adapter]") {
  ScriptedPeer peer(test::small_cells(), inline_up_to(300));
  auto data = pattern(300, 1);
  const auto said = data;
  WorkRequest request = send_request(1, {data.data(), 100, Stag{}});
  request.segments[1] = {data.data() + 100, 200, Stag{}};
  request.segment_count = 2;
  request.inline_data = true;
  REQUIRE(post(peer.host, request) == Status::ok);
  request.operation = Operation::rdma_write_with_immediate;
  request.segment_count = 1;
  REQUIRE(post(peer.host, request) == Status::ok);
  std::ranges::fill(data, std::byte{});
  for (int round = 0; round < 2; ++round) {
    const auto cells = peer.poll_and_take();
    REQUIRE(cells.size() == 3);
    CHECK(std::ranges::equal(cells[0].payload, std::span(said).first(256)));
    CHECK(std::ranges::equal(cells[1].payload, std::span(said).last(44)));
    CHECK(std::ranges::equal(cells[2].payload, std::span(said).first(100)));
    peer.acknowledge(round == 0 ? Syndrome::sequence_error : Syndrome::ok, kOwnPsn + static_cast<std::uint32_t>(round));
  }
  peer.poll();
  CHECK(how(peer.host.take()) == Names{"success", "success"});
}

TEST_CASE("inline data has a limit, and is for what is said, not for what is fetched", "[fabric][adapter]") {
  ScriptedPeer peer(test::small_cells(), inline_up_to(64));
  auto data = pattern(100, 1);
  WorkRequest request = send_request(1, {data.data(), 64, Stag{}});
  request.inline_data = true;
  CHECK(post(peer.host, request) == Status::ok);
  request.segments[0].bytes = 65;
  CHECK(post(peer.host, request) == Status::bad_length);
  request.segments[0] = {nullptr, 10, Stag{}};
  CHECK(post(peer.host, request) == Status::bad_argument);
  request = read_request(peer.host, 1, 0, 8, {5, Stag{6}});
  request.inline_data = true;
  CHECK(post(peer.host, request) == Status::bad_argument);
  CHECK(peer.poll_and_take().size() == 1);
}

TEST_CASE("a delay holds what comes behind it for its time, and nothing else", "[fabric][adapter][delay]") {
  ScriptedPeer peer;
  REQUIRE(peer.host.send(1, 0, 8) == Status::ok);
  REQUIRE(post(peer.host, delay_of(2, milliseconds(5))) == Status::ok);
  REQUIRE(peer.host.send(3, 0, 8) == Status::ok);
  CHECK(peer.poll_and_take().size() == 1);
  peer.acknowledge(Syndrome::ok, kOwnPsn);
  peer.poll();
  CHECK(peer.host.take().size() == 1);
  const Time due = peer.host.adapter.next_deadline();
  CHECK(due <= peer.pair.now() + milliseconds(5));
  CHECK(due > peer.pair.now() + milliseconds(4));
  CHECK(peer.poll_and_take(due - peer.pair.now() - microseconds(2)).empty());
  CHECK(peer.host.take().empty());
  CHECK(peer.poll_and_take(microseconds(2)).size() == 1);
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].operation == Operation::delay);
  CHECK(ends[0].status == CompletionStatus::success);
}

TEST_CASE("a delay behind a fence begins with the answer to the read before it, and nobody spins until then",
          "[fabric][adapter][delay]") {
  ScriptedPeer peer;
  REQUIRE(post(peer.host, read_request(peer.host, 1, 0, 8, {0x1000, Stag{7}})) == Status::ok);
  WorkRequest fenced = delay_of(2, milliseconds(5));
  fenced.fence = true;
  REQUIRE(post(peer.host, fenced) == Status::ok);
  CHECK(peer.poll_and_take().size() == 1);
  CHECK(peer.poll_and_take(milliseconds(6)).empty());
  CHECK(peer.host.adapter.next_deadline() > peer.pair.now() + milliseconds(5));
  peer.put(peer.cell(Opcode::read_response_only, kOwnPsn), pattern(8, 1));
  peer.poll();
  CHECK(peer.host.take().size() == 1);
  peer.poll();
  CHECK(peer.host.adapter.next_deadline() > peer.pair.now() + milliseconds(4));
  peer.poll(milliseconds(4));
  CHECK(peer.host.take().empty());
  peer.poll(milliseconds(1));
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].operation == Operation::delay);
}

TEST_CASE("a delay may last from nothing to a minute", "[fabric][adapter][delay]") {
  ScriptedPeer peer;
  const Duration longest = peer.host.adapter.limits().delay;
  CHECK(post(peer.host, delay_of(1, Duration::zero())) == Status::ok);
  CHECK(post(peer.host, delay_of(2, longest)) == Status::ok);
  CHECK(post(peer.host, delay_of(3, longest + Duration(1))) == Status::bad_argument);
  CHECK(post(peer.host, delay_of(4, Duration(-1))) == Status::bad_argument);
  WorkRequest odd = delay_of(5, milliseconds(1));
  odd.segment_count = 1;
  CHECK(post(peer.host, odd) == Status::bad_length);
}

TEST_CASE("a solicited event wakes a peer who sleeps through all else", "[fabric][adapter][events]") {
  TwoEndpoints two;
  Endpoint& end = two.end(1);
  int wakes = 0;
  const ChannelNumber channel = end.adapter.create_completion_channel([&wakes] { ++wakes; }).value();
  const CqNumber queue = end.adapter.make_completion_queue(16, channel).value();
  QueuePairAttributes options;
  options.domain = end.domain;
  options.send_completions = options.receive_completions = queue;
  const QpNumber far = end.adapter.create_queue_pair(options).value();
  const QpNumber near = two.end(0).make_queue_pair({});
  REQUIRE(two.end(0).adapter.connect(near, {far, 1, 2}) == Status::ok);
  REQUIRE(end.adapter.connect(far, {near, 2, 1}) == Status::ok);
  for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(end.adapter.post_receive(far, {i, end.segment(0, 64)}) == Status::ok);
  REQUIRE(end.adapter.arm(queue, Arm::solicited) == Status::ok);

  const auto send = [&](bool solicited) {
    WorkRequest request = send_request(1, two.end(0).segment(0, 8));
    request.solicited = solicited;
    REQUIRE(two.end(0).adapter.post_send(near, request) == Status::ok);
    REQUIRE(two.settle());
  };
  send(false);
  CHECK(wakes == 0);
  CHECK_FALSE(end.adapter.take_notification(channel).has_value());
  send(true);
  CHECK(wakes == 1);
  CHECK(end.adapter.take_notification(channel) == queue);
  CHECK_FALSE(end.adapter.take_notification(channel).has_value());
  send(true);  // not armed any more
  CHECK(wakes == 1);
  std::array<Completion, 8> out;
  REQUIRE(end.adapter.poll_completions(queue, out) == 3);
  CHECK_FALSE(out[0].solicited);
  CHECK(out[1].solicited);

  SECTION("armed for the next, any completion wakes, and being armed for less after that changes nothing") {
    REQUIRE(end.adapter.arm(queue, Arm::next) == Status::ok);
    REQUIRE(end.adapter.arm(queue, Arm::solicited) == Status::ok);
    send(false);
    CHECK(wakes == 2);
  }
  SECTION("a failure always wakes") {
    REQUIRE(end.adapter.arm(queue, Arm::solicited) == Status::ok);
    REQUIRE(end.adapter.modify(far, QueuePairEvent::fail) == Status::ok);
    CHECK(wakes == 2);
  }
  SECTION("a wake-up for each time that it was armed, also before the last notification was taken") {
    REQUIRE(end.adapter.arm(queue, Arm::next) == Status::ok);
    send(false);
    REQUIRE(end.adapter.arm(queue, Arm::next) == Status::ok);
    REQUIRE(end.adapter.modify(far, QueuePairEvent::fail) == Status::ok);
    CHECK(wakes == 3);
    CHECK(end.adapter.take_notification(channel) == queue);
    CHECK(end.adapter.has_notification(channel));
    CHECK(end.adapter.take_notification(channel) == queue);
    CHECK_FALSE(end.adapter.take_notification(channel).has_value());
  }
  SECTION("a wake-up for each of several queues, which are taken one after the other") {
    const CqNumber second = end.adapter.make_completion_queue(16, channel).value();
    QueuePairAttributes other = options;
    other.send_completions = other.receive_completions = second;
    const QpNumber another = end.adapter.create_queue_pair(other).value();
    REQUIRE(end.adapter.post_receive(another, {1, {}}) == Status::ok);
    REQUIRE(end.adapter.arm(queue, Arm::next) == Status::ok);
    REQUIRE(end.adapter.arm(second, Arm::next) == Status::ok);
    REQUIRE(end.adapter.modify(far, QueuePairEvent::fail) == Status::ok);
    REQUIRE(end.adapter.modify(another, QueuePairEvent::fail) == Status::ok);
    CHECK(wakes == 3);
    CHECK(end.adapter.take_notification(channel) == queue);
    CHECK(end.adapter.take_notification(channel) == second);
    CHECK_FALSE(end.adapter.take_notification(channel).has_value());
    // A queue that is no more notifies nobody.
    REQUIRE(end.adapter.post_receive(another, {1, {}}) == Status::bad_state);
    REQUIRE(end.adapter.destroy_queue_pair(another) == Status::ok);
    REQUIRE(end.adapter.destroy_completion_queue(second) == Status::ok);
  }
}

TEST_CASE("a solicited message of many cells says so in its last", "[fabric][adapter][events]") {
  ScriptedPeer peer;
  WorkRequest request = send_request(1, peer.host.segment(0, 600));
  request.solicited = true;
  REQUIRE(post(peer.host, request) == Status::ok);
  const auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 3);
  CHECK_FALSE(cells[0].solicited);
  CHECK_FALSE(cells[1].solicited);
  CHECK(cells[2].solicited);
}

TEST_CASE("queue pairs share a receive queue, in the order in which messages come", "[fabric][adapter][shared]") {
  TwoEndpoints two;
  Endpoint& end = two.end(1);
  const SrqNumber shared = end.adapter.create_shared_receive_queue(end.domain, 8).value();
  QueuePairAttributes options;
  options.shared_receives = shared;
  const Connection one(two, {}, options);
  const Connection other(two, {}, options);
  CHECK(end.adapter.post_receive(one.far, {1, end.segment(0, 8)}) == Status::not_permitted);
  for (std::uint64_t i = 0; i < 8; ++i) {
    REQUIRE(end.adapter.post_shared_receive(shared, {i, end.segment(i * 100, 100)}) == Status::ok);
  }
  CHECK(end.adapter.post_shared_receive(shared, {8, end.segment(0, 8)}) == Status::queue_full);
  REQUIRE(end.adapter.arm_limit(shared, 3) == Status::ok);
  for (std::uint64_t i = 0; i < 6; ++i) {
    two.end(0).fill(0, pattern(50, i));
    WorkRequest request = send_request(i, two.end(0).segment(0, 50));
    REQUIRE(two.end(0).adapter.post_send(i % 2 == 0 ? one.near : other.near, request) == Status::ok);
    REQUIRE(two.settle());
    const auto got = end.take();
    REQUIRE(got.size() == 1);
    CHECK(got[0].id == i);
    CHECK(got[0].queue_pair == (i % 2 == 0 ? one.far : other.far));
    CHECK(end.holds(i * 100, pattern(50, i)));
    const auto events = take_events(end);
    REQUIRE(events.size() == (i == 5 ? 1 : 0));  // two are left: fewer than three
    if (i != 5) continue;
    CHECK(events[0].kind == AsyncEventKind::shared_receive_limit);
    CHECK(events[0].shared_receives == shared);
  }
  REQUIRE(two.end(0).adapter.post_send(one.near, send_request(6, two.end(0).segment(0, 50))) == Status::ok);
  REQUIRE(two.settle());
  CHECK(take_events(end).empty());  // told once

  // One queue pair's end takes nothing from the others.
  REQUIRE(end.adapter.destroy_queue_pair(one.far) == Status::ok);
  CHECK(end.adapter.destroy_shared_receive_queue(shared) == Status::in_use);
  static_cast<void>(two.end(0).take());
  static_cast<void>(end.take());
  REQUIRE(two.end(0).adapter.post_send(other.near, send_request(7, two.end(0).segment(0, 50))) == Status::ok);
  two.run(milliseconds(1));
  CHECK(end.take().at(0).id == 7);
  // Empty: the sender is told to wait, as with a queue of one's own.
  REQUIRE(two.end(0).adapter.post_send(other.near, send_request(8, two.end(0).segment(0, 50))) == Status::ok);
  two.run(microseconds(100));
  REQUIRE(end.adapter.post_shared_receive(shared, {9, end.segment(0, 64)}) == Status::ok);
  two.run(milliseconds(3));
  CHECK(end.take().at(0).id == 9);
}

TEST_CASE("a message that is coming in keeps the receive it took out of a shared queue", "[fabric][adapter][shared]") {
  LinkedPair pair;
  ScriptedPeer peer;
  Endpoint& host = peer.host;
  const SrqNumber shared = host.adapter.create_shared_receive_queue(host.domain, 4).value();
  QueuePairAttributes options;
  options.shared_receives = shared;
  const QpNumber first = host.make_queue_pair(options);
  const QpNumber second = host.make_queue_pair(options);
  for (const QpNumber number : {first, second}) {
    REQUIRE(host.adapter.connect(number, {ScriptedPeer::kNumber, kOwnPsn, kPsn}) == Status::ok);
  }
  for (std::uint64_t i = 1; i <= 2; ++i) {
    REQUIRE(host.adapter.post_shared_receive(shared, {i, host.segment(i * 1000, 1000)}) == Status::ok);
  }
  const auto put = [&peer](QpNumber to, Opcode opcode, std::uint16_t sequence, std::uint64_t seed) {
    Cell cell = peer.cell(opcode, kPsn, sequence);
    cell.destination_queue_pair = to;
    peer.put(cell, pattern(100, seed));
    peer.poll();
  };
  put(first, Opcode::send_first, 0, 1);
  put(second, Opcode::send_only, 0, 2);
  CHECK(host.holds(2000, pattern(100, 2)));
  // It starts again after a loss, into the same receive.
  put(first, Opcode::send_only, 0, 3);
  CHECK(host.holds(1000, pattern(100, 3)));
  const auto ends = host.take();
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].id == 2);
  CHECK(ends[1].id == 1);
}

TEST_CASE("a completion queue that has no room for a shared receive is overrun: event, terminate, flush",
          "[fabric][adapter][shared]") {
  TwoEndpoints two;
  Endpoint& end = two.end(1);
  const SrqNumber shared = end.adapter.create_shared_receive_queue(end.domain, 8).value();
  const CqNumber small = end.adapter.create_completion_queue(2);
  QueuePairAttributes options;
  options.domain = end.domain;
  options.send_completions = end.completions;
  options.receive_completions = small;
  options.shared_receives = shared;
  const QpNumber far = end.adapter.create_queue_pair(options).value();
  const QpNumber near = two.end(0).make_queue_pair({});
  REQUIRE(two.end(0).adapter.connect(near, {far, 1, 2}) == Status::ok);
  REQUIRE(end.adapter.connect(far, {near, 2, 1}) == Status::ok);
  for (std::uint64_t i = 0; i < 4; ++i) {
    REQUIRE(end.adapter.post_shared_receive(shared, {i, end.segment(0, 64)}) == Status::ok);
    REQUIRE(two.end(0).adapter.post_send(near, send_request(i, two.end(0).segment(0, 8))) == Status::ok);
  }
  two.run(milliseconds(1));
  CHECK(how(two.end(0).take()) == Names{"success", "success", "remote_operation_error", "flushed"});
  const auto events = take_events(end);
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == AsyncEventKind::completion_queue_overrun);
  CHECK(events[0].completions == small);
  CHECK(events[1].kind == AsyncEventKind::queue_pair_fatal);
  CHECK(end.adapter.counters().terminates_sent == 1);
  std::array<Completion, 8> out;
  CHECK(end.adapter.poll_completions(small, out) == 2);
}

TEST_CASE("an epoch's end is an event, and events that find no room are counted", "[fabric][adapter][events]") {
  AdapterOptions options = test::small_cells();
  options.max_events = 2;
  TwoEndpoints two(options);
  for (int i = 0; i < 3; ++i) {
    const Connection more(two, {}, {});
  }
  two.pair.link(1).restart();
  two.pair.come_up();
  two.step();
  const auto events = take_events(two.end(0));
  REQUIRE(events.size() == 2);  // four queue pairs and the path itself: three are lost
  CHECK(events[0].kind == AsyncEventKind::queue_pair_fatal);
  CHECK(two.end(0).adapter.counters().dropped_events == 3);
  two.pair.link(1).restart();
  two.pair.come_up();
  two.step();
  const auto more = take_events(two.end(0));
  REQUIRE(more.size() == 1);  // the queue pairs had ended already
  CHECK(more[0].kind == AsyncEventKind::path_down);
}

TEST_CASE("every event has a name", "[fabric][adapter][events]") {
  for (int kind = 0; kind <= static_cast<int>(AsyncEventKind::queue_pair_drained); ++kind) {
    CHECK(to_string(static_cast<AsyncEventKind>(kind)) != std::string("?"));
  }
}

TEST_CASE("an adapter's limits hold: each is reached, and none passed", "[fabric][adapter][limits]") {
  AdapterOptions small;
  small.max_queue_pairs = 3;
  small.max_regions = 4;
  small.max_completion_queues = 2;
  small.max_shared_receive_queues = 2;
  small.max_completion_channels = 2;
  small.max_message_bytes = 1000;
  LinkedPair pair;
  ChannelAdapter adapter(pair.link(0), small, pair.random());
  const AdapterLimits limits = adapter.limits();
  const ProtectionDomain domain = adapter.allocate_domain();
  std::vector<std::byte> memory(4096);

  CHECK_FALSE(adapter.make_completion_queue(limits.completion_depth + 1).has_value());
  const CqNumber largest = adapter.make_completion_queue(limits.completion_depth).value();
  CHECK(adapter.destroy_completion_queue(largest) == Status::ok);
  const CqNumber queue = adapter.make_completion_queue(16).value();
  for (std::size_t i = 1; i < limits.completion_queues; ++i) CHECK(adapter.make_completion_queue(1).has_value());
  CHECK_FALSE(adapter.make_completion_queue(1).has_value());
  for (std::size_t i = 0; i < limits.completion_channels; ++i) CHECK(adapter.create_completion_channel({}).has_value());
  CHECK_FALSE(adapter.create_completion_channel({}).has_value());
  CHECK_FALSE(adapter.create_shared_receive_queue(domain, limits.queue_depth + 1).has_value());
  CHECK_FALSE(adapter.create_shared_receive_queue(domain, 0).has_value());
  CHECK(adapter.create_shared_receive_queue(domain, limits.queue_depth).has_value());
  for (std::size_t i = 1; i < limits.shared_receive_queues; ++i) {
    CHECK(adapter.create_shared_receive_queue(domain, 1).has_value());
  }
  CHECK_FALSE(adapter.create_shared_receive_queue(domain, 1).has_value());
  for (std::size_t i = 0; i < limits.tags; ++i) CHECK(adapter.register_memory(domain, memory, kAllRights).has_value());
  CHECK_FALSE(adapter.register_memory(domain, memory, kAllRights).has_value());

  QueuePairAttributes options;
  options.domain = domain;
  options.send_completions = options.receive_completions = queue;
  const auto too_much = [&](auto QueuePairAttributes::*member, std::size_t limit) {
    QueuePairAttributes more = options;
    more.*member = limit + 1;
    CHECK_FALSE(adapter.create_queue_pair(more).has_value());
    more.*member = limit;
    const auto made = adapter.create_queue_pair(more);
    REQUIRE(made.has_value());
    CHECK(adapter.destroy_queue_pair(*made) == Status::ok);
  };
  too_much(&QueuePairAttributes::send_depth, limits.queue_depth);
  too_much(&QueuePairAttributes::receive_depth, limits.queue_depth);
  too_much(&QueuePairAttributes::max_inline_bytes, limits.inline_bytes);
  too_much(&QueuePairAttributes::reads_in, limits.reads_in);
  too_much(&QueuePairAttributes::reads_out, limits.reads_out);
  for (std::size_t i = 0; i < limits.queue_pairs; ++i) CHECK(adapter.create_queue_pair(options).has_value());
  CHECK_FALSE(adapter.create_queue_pair(options).has_value());
}

TEST_CASE("a message of more cells than a path can number is refused when it is posted", "[fabric][adapter][limits]") {
  AdapterOptions options;
  options.cell_payload_bytes = kMinCellPayload;
  options.max_message_bytes = 8U << 20U;
  ScriptedPeer peer(options);
  constexpr std::uint32_t kMost = 65535 * kMinCellPayload;
  std::vector<std::byte> memory(kMost + 1);
  const Stag tag = peer.host.adapter.register_memory(peer.host.domain, memory, kAllRights).value();
  const auto segment = [&](std::uint32_t bytes) { return LocalSegment{memory.data(), bytes, tag}; };
  CHECK(post(peer.host, send_request(1, segment(kMost + 1))) == Status::bad_length);
  CHECK(post(peer.host, write_request(1, segment(kMost + 1), {})) == Status::bad_length);
  WorkRequest read = read_request(peer.host, 1, 0, 0, {});
  read.segments[0] = segment(kMost + 1);
  CHECK(post(peer.host, read) == Status::bad_length);
  CHECK(post(peer.host, send_request(1, segment(kMost))) == Status::ok);
}

TEST_CASE("lists and messages have limits: each is reached, and none passed", "[fabric][adapter][limits]") {
  AdapterOptions small;
  small.max_message_bytes = 1000;
  ScriptedPeer peer(small);
  const AdapterLimits limits = peer.host.adapter.limits();
  CHECK(limits.message_bytes == 1000);
  CHECK(peer.host.send(1, 0, limits.message_bytes) == Status::ok);
  CHECK(peer.host.send(1, 0, limits.message_bytes + 1) == Status::bad_length);
  CHECK(post(peer.host, read_request(peer.host, 1, 0, limits.message_bytes, {})) == Status::ok);
  CHECK(post(peer.host, read_request(peer.host, 1, 0, limits.message_bytes + 1, {})) == Status::bad_length);
  WorkRequest many = send_request(2, peer.host.segment(0, 8));
  many.segments.fill(peer.host.segment(0, 8));
  many.segment_count = limits.segments;
  CHECK(post(peer.host, many) == Status::ok);
  many.segment_count = limits.segments + 1;
  CHECK(post(peer.host, many) == Status::bad_length);
  const std::vector<LocalSegment> list(limits.segments, peer.host.segment(0, 8));
  ReceiveRequest receive{3, list[0], std::span(list).first(limits.segments - 1)};
  CHECK(peer.host.adapter.post_receive(peer.host.number, receive) == Status::ok);
  receive.more = list;
  CHECK(peer.host.adapter.post_receive(peer.host.number, receive) == Status::bad_length);
}

TEST_CASE("a message is scattered over a receive's list", "[fabric][adapter]") {
  TwoEndpoints two;
  two.end(0).fill(0, pattern(1000, 4));
  const std::array<LocalSegment, 2> more{two.end(1).segment(5000, 300), two.end(1).segment(9000, 1000)};
  REQUIRE(two.end(1).adapter.post_receive(two.end(1).number, {1, two.end(1).segment(0, 100), more}) == Status::ok);
  REQUIRE(two.end(0).send(1, 0, 1000) == Status::ok);
  REQUIRE(two.settle());
  CHECK(two.end(1).take().at(0).bytes == 1000);
  const auto data = pattern(1000, 4);
  CHECK(two.end(1).holds(0, std::span(data).first(100)));
  CHECK(two.end(1).holds(5000, std::span(data).subspan(100, 300)));
  CHECK(two.end(1).holds(9000, std::span(data).subspan(400)));
}

TEST_CASE("what is in use is not destroyed, and what is unknown is no object", "[fabric][adapter][limits]") {
  LinkedPair pair;
  ChannelAdapter adapter(pair.link(0), {}, pair.random());
  const ProtectionDomain domain = adapter.allocate_domain();
  const ChannelNumber channel = adapter.create_completion_channel({}).value();
  const CqNumber queue = adapter.make_completion_queue(4, channel).value();
  const SrqNumber shared = adapter.create_shared_receive_queue(domain, 4).value();
  std::vector<std::byte> memory(64);
  const Stag tag = adapter.register_memory(domain, memory, kAllRights).value();
  QueuePairAttributes options;
  options.domain = domain;
  options.send_completions = options.receive_completions = queue;
  options.shared_receives = shared;
  const QpNumber number = adapter.create_queue_pair(options).value();

  CHECK(adapter.destroy_completion_channel(channel) == Status::in_use);
  CHECK(adapter.destroy_completion_queue(queue) == Status::in_use);
  CHECK(adapter.destroy_shared_receive_queue(shared) == Status::in_use);
  CHECK(adapter.deallocate_domain(domain) == Status::in_use);
  CHECK(adapter.destroy_queue_pair(number) == Status::ok);
  CHECK(adapter.deallocate_domain(domain) == Status::in_use);
  CHECK(adapter.destroy_shared_receive_queue(shared) == Status::ok);
  CHECK(adapter.deallocate_domain(domain) == Status::in_use);
  CHECK(adapter.deregister(tag) == Status::ok);
  CHECK(adapter.deallocate_domain(domain) == Status::ok);
  CHECK(adapter.destroy_completion_channel(channel) == Status::in_use);
  CHECK(adapter.destroy_completion_queue(queue) == Status::ok);
  CHECK(adapter.destroy_completion_channel(channel) == Status::ok);

  CHECK(adapter.destroy_queue_pair(number) == Status::bad_queue_pair);
  for (const std::uint32_t unknown : {0U, 1U, 99U, std::numeric_limits<std::uint32_t>::max()}) {
    CHECK(adapter.destroy_completion_queue(CqNumber{unknown}) == Status::bad_argument);
    CHECK(adapter.destroy_completion_channel(ChannelNumber{unknown}) == Status::bad_argument);
    CHECK(adapter.destroy_shared_receive_queue(SrqNumber{unknown}) == Status::bad_argument);
    CHECK(adapter.deallocate_domain(ProtectionDomain{unknown}) == Status::bad_argument);
    CHECK(adapter.arm(CqNumber{unknown}, Arm::next) == Status::bad_argument);
    CHECK(adapter.arm_limit(SrqNumber{unknown}, 1) == Status::bad_argument);
    CHECK(adapter.post_shared_receive(SrqNumber{unknown}, {}) == Status::bad_argument);
    CHECK_FALSE(adapter.take_notification(ChannelNumber{unknown}).has_value());
    CHECK(adapter.modify(QpNumber{unknown}, QueuePairEvent::reset) == Status::bad_queue_pair);
    CHECK_FALSE(adapter.state(QpNumber{unknown}).has_value());
    if (unknown != 0) CHECK_FALSE(adapter.make_completion_queue(1, ChannelNumber{unknown}).has_value());
  }
  // A number comes again only with a new object.
  CHECK(adapter.allocate_domain() == domain);
  const CqNumber plain = adapter.make_completion_queue(4).value();
  CHECK(plain == queue);
  CHECK(adapter.arm(plain, Arm::next) == Status::bad_argument);  // reports nowhere
  options.send_completions = options.receive_completions = plain;
  CHECK_FALSE(adapter.create_queue_pair(options).has_value());  // its shared queue is gone
  const SrqNumber foreign = adapter.create_shared_receive_queue(adapter.allocate_domain(), 4).value();
  options.shared_receives = foreign;
  CHECK_FALSE(adapter.create_queue_pair(options).has_value());  // of another domain
  CHECK(adapter.arm_limit(foreign, 4) == Status::ok);
  CHECK(adapter.arm_limit(foreign, 5) == Status::bad_argument);
}

}  // namespace splitnic::fabric::test::adapter_queues_test
