#include "verbs_fixture.h"

// Again last, as in the fixture.
#include <catch2/catch.hpp>

namespace splitnic::verbs::test::verbs_transfer_test {

TEST_CASE("verbs: a message goes there and back", "[fabric][verbs]") {
  Pair pair;
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    const auto bytes = pattern(1 + turn * 1500, turn);
    pair.a.fill(0, bytes);
    REQUIRE(pair.b.queue_pair.post_receive(receive(100 + turn, pair.b.region.segment(0, End::kBytes))) == Status::ok);
    REQUIRE(pair.a.queue_pair.post_send(send(turn, {pair.a.region.segment(0, bytes.size())})) == Status::ok);
    const Completion sent = pair.one(pair.a);
    CHECK(sent.id == turn);
    CHECK(sent.status == CompletionStatus::success);
    CHECK(sent.queue_pair == pair.a.queue_pair.address().queue_pair);
    const Completion received = pair.one(pair.b);
    CHECK(received.id == 100 + turn);
    CHECK(received.receive);
    CHECK(received.bytes == bytes.size());
    CHECK(pair.b.holds(0, bytes));

    REQUIRE(pair.a.queue_pair.post_receive(receive(200, pair.a.region.segment(32768, 32768))) == Status::ok);
    REQUIRE(pair.b.queue_pair.post_send(send(300, {pair.b.region.segment(0, bytes.size())})) == Status::ok);
    CHECK(pair.one(pair.b).id == 300);
    CHECK(pair.one(pair.a).id == 200);
    CHECK(pair.a.holds(32768, bytes));
  }
}

TEST_CASE("verbs: write, write with immediate, read, by a key that went over the wire", "[fabric][verbs]") {
  Pair pair;
  const auto key = decode_remote_key(encode(pair.b.region.remote_key()));
  REQUIRE(key.has_value());
  CHECK(*key == pair.b.region.remote_key());
  CHECK(key->bytes == End::kBytes);
  const auto bytes = pattern(5000, 7);
  pair.a.fill(100, bytes);

  REQUIRE(pair.a.queue_pair.post_send(rdma_write(
              1, {pair.a.region.segment(100, 2000), pair.a.region.segment(2100, 3000)}, key->at(50))) == Status::ok);
  CHECK(pair.one(pair.a).status == CompletionStatus::success);
  CHECK(pair.b.holds(50, bytes));
  CHECK(pair.b.take().empty());

  REQUIRE(pair.b.queue_pair.post_receive(receive(9, {})) == Status::ok);
  REQUIRE(pair.a.queue_pair.post_send(
              rdma_write_with_immediate(2, {pair.a.region.segment(100, 10)}, key->at(20'000), 77)) == Status::ok);
  CHECK(pair.one(pair.a).id == 2);
  const Completion told = pair.one(pair.b);
  CHECK(told.id == 9);
  CHECK(told.has_immediate);
  CHECK(told.immediate == 77);
  CHECK(pair.b.holds(20'000, std::span(bytes).first(10)));

  REQUIRE(pair.a.queue_pair.post_send(rdma_read(3, {pair.a.region.segment(30'000, 5000)}, key->at(50))) == Status::ok);
  CHECK(pair.one(pair.a).status == CompletionStatus::success);
  CHECK(pair.a.holds(30'000, bytes));
}

TEST_CASE("verbs: compare-and-swap and fetch-and-add answer what was there", "[fabric][verbs]") {
  Pair pair;
  pair.b.word(64) = 40;
  const RemoteAddress counter = pair.b.region.remote_key().at(64);
  const LocalSegment before = pair.a.region.segment(0, 8);

  REQUIRE(pair.a.queue_pair.post_send(fetch_add(1, before, counter, 2)) == Status::ok);
  CHECK(pair.one(pair.a).status == CompletionStatus::success);
  CHECK(pair.a.word(0) == 40);
  CHECK(pair.b.word(64) == 42);

  REQUIRE(pair.a.queue_pair.post_send(compare_swap(2, before, counter, 41, 1)) == Status::ok);
  CHECK(pair.one(pair.a).status == CompletionStatus::success);
  CHECK(pair.a.word(0) == 42);
  CHECK(pair.b.word(64) == 42);

  REQUIRE(pair.a.queue_pair.post_send(compare_swap(3, before, counter, 42, 1)) == Status::ok);
  CHECK(pair.one(pair.a).status == CompletionStatus::success);
  CHECK(pair.a.word(0) == 42);
  CHECK(pair.b.word(64) == 1);
}

TEST_CASE("verbs: inline data needs no region, and a delay comes before what follows it", "[fabric][verbs]") {
  Pair pair;
  REQUIRE(pair.b.queue_pair.post_receive(receive(1, pair.b.region.segment(0, 100))) == Status::ok);
  WorkRequest waits = delay(1, milliseconds(50));
  waits.signalled = false;
  REQUIRE(pair.a.queue_pair.post_send(waits) == Status::ok);
  {
    auto word = pattern(12, 3);
    WorkRequest hello = send(2, {LocalSegment{word.data(), 12, Stag{}}});
    hello.inline_data = true;
    REQUIRE(pair.a.queue_pair.post_send(hello) == Status::ok);
  }
  pair.run(100);  // one millisecond
  CHECK(pair.b.take().empty());
  for (int i = 0; i < 60; ++i) pair.step(milliseconds(1));
  CHECK(pair.one(pair.b).bytes == 12);
  CHECK(pair.b.holds(0, pattern(12, 3)));
  CHECK(pair.one(pair.a).id == 2);
}

TEST_CASE("verbs: several queue pairs take receives from one shared queue, whose limit is told once",
          "[fabric][verbs]") {
  Pair pair;
  SharedReceiveQueue shared = made(pair.b.domain.create_shared_receive_queue(16));
  QueuePairOptions shape = plain();
  shape.shared_receives = &shared;
  QueuePair first = pair.b.another(shape);
  QueuePair second = pair.b.another(shape);
  QueuePair to_first = pair.a.another(plain());
  QueuePair to_second = pair.a.another(plain());
  Pair::connect(to_first, first);
  Pair::connect(to_second, second);
  for (std::uint64_t id = 0; id < 4; ++id) {
    REQUIRE(shared.post_receive(receive(id, pair.b.region.segment(id * 100, 100))) == Status::ok);
  }
  REQUIRE(shared.arm_limit(2) == Status::ok);
  CHECK(first.post_receive(receive(9, pair.b.region.segment(0, 10))) == Status::not_permitted);

  for (QueuePair* from : {&to_first, &to_second, &to_first}) {
    REQUIRE(from->post_send(send(1, {pair.a.region.segment(0, 10)})) == Status::ok);
    pair.run();
  }
  const auto got = pair.b.take();
  REQUIRE(got.size() == 3);
  CHECK(got[0].queue_pair == first.address().queue_pair);
  CHECK(got[1].queue_pair == second.address().queue_pair);
  CHECK(got[2].id == 2);
  const auto events = pair.b.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == AsyncEventKind::shared_receive_limit);
  CHECK(events[0].shared_receives == shared.number());
}

TEST_CASE("verbs: a queue armed for solicited completions sleeps through the others", "[fabric][verbs]") {
  Pair pair;
  int woken = 0;
  CompletionChannel channel = made(pair.b.context.create_completion_channel([&] { ++woken; }));
  CompletionQueue queue = made(pair.b.context.create_completion_queue(16, &channel));
  QueuePairOptions shape = plain();
  shape.send_completions = shape.receive_completions = &queue;
  QueuePair receiver = made(pair.b.domain.create_queue_pair(shape));
  QueuePair sender = pair.a.another(plain());
  Pair::connect(sender, receiver);
  for (std::uint64_t id = 0; id < 4; ++id) {
    REQUIRE(receiver.post_receive(receive(id, pair.b.region.segment(0, 100))) == Status::ok);
  }
  REQUIRE(queue.arm(Arm::solicited) == Status::ok);
  WorkRequest message = send(1, {pair.a.region.segment(0, 10)});
  REQUIRE(sender.post_send(message) == Status::ok);
  pair.run();
  CHECK(woken == 0);
  CHECK_FALSE(channel.take().has_value());

  message.solicited = true;
  REQUIRE(sender.post_send(message) == Status::ok);
  pair.run();
  CHECK(woken == 1);
  CHECK(channel.take() == queue.number());
  CHECK_FALSE(channel.take().has_value());

  REQUIRE(queue.arm(Arm::next) == Status::ok);
  message.solicited = false;
  REQUIRE(sender.post_send(message) == Status::ok);
  pair.run();
  CHECK(woken == 2);
  // A notification that nobody took goes with its queue.
  receiver = QueuePair();
  queue = CompletionQueue();
  CHECK_FALSE(channel.take().has_value());
}

TEST_CASE("verbs: a queue pair goes through its states, and through no forbidden step", "[fabric][verbs]") {
  Pair pair;
  QueuePair one = pair.a.another(plain());
  QueuePair other = pair.b.another(plain());
  const QueuePairAddress its = other.address();
  using enum QueuePairState;
  CHECK(one.state() == reset);
  CHECK(one.modify(ready_to_send) == Status::bad_state);
  CHECK(one.modify(ready_to_receive, &its) == Status::bad_state);
  CHECK(one.modify(sq_drained) == Status::bad_state);
  REQUIRE(one.modify(init) == Status::ok);
  CHECK(one.modify(ready_to_receive) == Status::bad_argument);
  REQUIRE(one.modify(ready_to_receive, &its) == Status::ok);
  CHECK(one.post_send(send(1, {pair.a.region.segment(0, 8)})) == Status::bad_state);
  REQUIRE(one.modify(ready_to_send) == Status::ok);
  REQUIRE(other.connect(one.address()) == Status::ok);
  REQUIRE(one.modify(sq_drained) == Status::ok);
  pair.run();
  const auto events = pair.a.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == AsyncEventKind::send_queue_drained);
  REQUIRE(one.modify(ready_to_send) == Status::ok);
  REQUIRE(one.modify(sq_error) == Status::ok);
  CHECK(one.post_send(send(1, {pair.a.region.segment(0, 8)})) == Status::bad_state);
  REQUIRE(one.modify(ready_to_send) == Status::ok);
  REQUIRE(one.modify(error) == Status::ok);
  CHECK(one.modify(ready_to_send) == Status::bad_state);
  const std::uint32_t psn = one.address().first_psn;
  REQUIRE(one.modify(reset) == Status::ok);
  CHECK(one.address().first_psn != psn);
  CHECK(one.state() == reset);
}

TEST_CASE("verbs: keys and addresses have the bytes that the documentation says", "[fabric][verbs]") {
  const RemoteKey key{0x1122334455667788, Stag{0xa1b2c3d4}, 0x01020304};
  const std::array<std::uint8_t, 16> key_bytes{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
                                               0xd4, 0xc3, 0xb2, 0xa1, 0x04, 0x03, 0x02, 0x01};
  CHECK(std::ranges::equal(encode(key), std::as_bytes(std::span(key_bytes))));
  CHECK(decode_remote_key(encode(key)) == key);
  CHECK_FALSE(decode_remote_key(std::as_bytes(std::span(key_bytes)).first(15)).has_value());
  CHECK_FALSE(decode_remote_key({}).has_value());

  const QueuePairAddress address{PortAddress{0x0200000000a1}, QpNumber{0xabcdef}, 0x99aabbcc, 4};
  auto bytes = encode(address);
  const std::array<std::uint8_t, 24> address_bytes{0xa1, 0,    0,    0,    0, 2, 0, 0, 0xef, 0xcd, 0xab, 0,
                                                   0xcc, 0xbb, 0xaa, 0x99, 4, 0, 0, 0, 0,    0,    0,    0};
  CHECK(std::ranges::equal(bytes, std::as_bytes(std::span(address_bytes))));
  CHECK(decode_queue_pair_address(bytes) == address);
  for (const std::size_t reserved : {6U, 7U, 11U, 18U, 23U}) {
    auto bad = bytes;
    bad[reserved] = std::byte{1};
    CHECK_FALSE(decode_queue_pair_address(bad).has_value());
  }
  bytes[8] = bytes[9] = bytes[10] = std::byte{0};
  CHECK_FALSE(decode_queue_pair_address(bytes).has_value());
  CHECK_FALSE(decode_queue_pair_address(std::span(bytes).first(23)).has_value());
}

TEST_CASE("verbs: a list is posted up to the first request that is refused", "[fabric][verbs]") {
  Pair pair;
  const auto word = [](End& end, std::size_t index) { return end.region.segment(8 * index, 8); };
  std::size_t posted = 99;
  const std::array receives{receive(0, word(pair.b, 0)), receive(1, word(pair.b, 1)), receive(2, word(pair.b, 2)),
                            receive(3, pair.b.region.segment(End::kBytes, 1)), receive(4, word(pair.b, 4))};
  CHECK(pair.b.queue_pair.post_receive(receives, posted) == Status::bad_length);
  CHECK(posted == 3);
  const auto bytes = pattern(24, 7);
  pair.a.fill(0, bytes);
  const std::array sends{send(10, {word(pair.a, 0)}), send(11, {word(pair.a, 1)}), send(12, {word(pair.a, 2)})};
  CHECK(pair.a.queue_pair.post_send(sends, posted) == Status::ok);
  CHECK(posted == 3);
  pair.run();
  const auto got = pair.b.take();
  const auto sent = pair.a.take();
  REQUIRE((got.size() == 3 && sent.size() == 3));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(got[i].id == i);
    CHECK(sent[i].id == 10 + i);
  }
  CHECK(pair.b.holds(0, bytes));

  SharedReceiveQueue shared = made(pair.b.domain.create_shared_receive_queue(2));
  CHECK(shared.post_receive(std::span(receives).first(3), posted) == Status::queue_full);
  CHECK(posted == 2);
  CHECK(pair.a.queue_pair.post_send(std::span<const WorkRequest>{}, posted) == Status::ok);
  CHECK(posted == 0);
  posted = 99;
  CHECK(QueuePair().post_send(sends, posted) == Status::bad_argument);
  CHECK(posted == 0);
}

}  // namespace splitnic::verbs::test::verbs_transfer_test
