#include <functional>
#include <vector>

#include "adapter_fixtures.h"
#include "fabric/adapter/transport_faults.h"

/// What an adapter does with the faults that are injected below its queue pairs: the same as with real ones.
namespace splitnic::fabric::adapter_injected_faults_test {
namespace {

using test::Endpoint;
using test::microseconds;
using test::milliseconds;
using test::TwoEndpoints;

/// Faults as a test says; none unless it says so.
struct ScriptedFaults final : TransportFaults {
  RequestTurn turn(const SendingRequest& request) override { return at_turn ? at_turn(request) : RequestTurn{}; }
  bool loses(const SendingRequest& request, std::uint16_t cell) override { return lose && lose(request, cell); }
  bool damages(const ArrivingMessage& message) override { return damage && damage(message); }
  bool not_ready(const ArrivingMessage& message, std::uint64_t receive) override {
    return refuse && refuse(message, receive);
  }

  std::function<RequestTurn(const SendingRequest&)> at_turn;
  std::function<bool(const SendingRequest&, std::uint16_t)> lose;
  std::function<bool(const ArrivingMessage&)> damage;
  std::function<bool(const ArrivingMessage&, std::uint64_t)> refuse;
};

/// The same faults at both ends, which only one of them meets: end 0 sends, end 1 receives.
struct FaultyEndpoints {
  explicit FaultyEndpoints(bool acknowledged = true) : two(options(), attributes(acknowledged)) {
    two.end(0).fill(0, test::pattern(kBytes, 1));
  }
  AdapterOptions options() {
    AdapterOptions made = test::small_cells();
    made.faults = &faults;
    made.ack_timeout = milliseconds(1);
    made.retry_count = 3;
    made.receiver_not_ready_retries = 2;
    made.receiver_not_ready_delay = microseconds(100);
    return made;
  }
  static QueuePairAttributes attributes(bool acknowledged) {
    QueuePairAttributes made;
    made.acknowledged = acknowledged;
    return made;
  }
  /// Two messages of four cells and one of one cell, each with a receive.
  void send_three() {
    for (std::uint64_t id = 0; id < 3; ++id) {
      REQUIRE(two.end(1).receive(10 + id, id * kBytes, kBytes) == Status::ok);
      REQUIRE(two.end(0).send(id, 0, id == 2 ? 8 : kBytes) == Status::ok);
    }
  }
  void expect_three_arrive() {
    REQUIRE(two.settle());
    const auto sent = two.end(0).take();
    const auto received = two.end(1).take();
    REQUIRE(sent.size() == 3);
    REQUIRE(received.size() == 3);
    for (std::uint64_t id = 0; id < 3; ++id) {
      CHECK(sent[id].status == CompletionStatus::success);
      CHECK(sent[id].id == id);
      CHECK(received[id].status == CompletionStatus::success);
      CHECK(received[id].id == 10 + id);
      CHECK(two.end(1).holds(id * kBytes, test::pattern(id == 2 ? 8 : kBytes, 1)));
    }
  }
  /// The first request ends with this status, the others are flushed.
  void expect_failure(CompletionStatus status) {
    two.run(milliseconds(50));
    const auto sent = two.end(0).take();
    REQUIRE(sent.size() == 3);
    CHECK(sent[0].status == status);
    CHECK(sent[1].status == CompletionStatus::flushed);
    CHECK(sent[2].status == CompletionStatus::flushed);
    CHECK(two.end(0).adapter.in_error(two.end(0).number));
  }

  static constexpr std::size_t kBytes = 1000;
  ScriptedFaults faults;
  TwoEndpoints two;
};

}  // namespace

TEST_CASE("an injected loss is repaired by retransmission, whichever cell it hits", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  const std::uint64_t victim = GENERATE(0, 1, 2);
  const std::uint16_t cell = victim == 2 ? std::uint16_t{0} : static_cast<std::uint16_t>(GENERATE(0, 2, 3));
  unsigned left = GENERATE(1U, 3U);
  faulty.faults.lose = [&](const SendingRequest& request, std::uint16_t at) {
    CHECK(request.queue_pair == faulty.two.end(0).number);
    CHECK(request.id == request.position);
    CHECK(request.operation == Operation::send);
    if (request.position != victim || at != cell || left == 0) return false;
    --left;
    return true;
  };
  faulty.send_three();
  faulty.expect_three_arrive();
  CHECK(left == 0);
  CHECK(faulty.two.end(0).adapter.counters().retransmissions > 0);
}

TEST_CASE("a request whose cells are always lost ends as retry exceeded, within its timeouts",
          "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  faulty.faults.lose = [](const SendingRequest&, std::uint16_t) { return true; };
  faulty.send_three();
  faulty.two.run(microseconds(3900));
  CHECK(faulty.two.end(0).take().empty());
  faulty.expect_failure(CompletionStatus::retry_exceeded);
  CHECK(faulty.two.end(1).take().empty());
}

TEST_CASE("lost reads and atomics are asked again, and executed once", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  Endpoint& asking = faulty.two.end(0);
  Endpoint& owner = faulty.two.end(1);
  const Stag tag = owner.adapter
                       .register_memory(owner.domain, std::span(owner.buffer).first(64),
                                        test::kAllRights | Right::remote_read | Right::remote_atomic)
                       .value();
  owner.fill(0, test::pattern(64, 5));
  std::uint64_t before = 0;
  std::memcpy(&before, owner.buffer.data(), sizeof before);
  unsigned lost = 0;
  faulty.faults.lose = [&](const SendingRequest&, std::uint16_t) { return lost < 4 && ++lost % 2 == 1; };
  WorkRequest request;
  request.operation = Operation::fetch_add;
  request.remote = {owner.adapter.region_address(tag), tag};
  request.swap_or_add = 1;
  request.segments[0] = asking.segment(0, 8);
  request.segment_count = 1;
  REQUIRE(asking.adapter.post_send(asking.number, request) == Status::ok);
  request.operation = Operation::rdma_read;
  request.segments[0] = asking.segment(64, 64);
  REQUIRE(asking.adapter.post_send(asking.number, request) == Status::ok);
  REQUIRE(faulty.two.settle());
  const auto done = asking.take();
  REQUIRE(done.size() == 2);
  CHECK(done[0].status == CompletionStatus::success);
  CHECK(done[1].status == CompletionStatus::success);
  CHECK(lost == 4);
  CHECK(owner.adapter.counters().atomics == 1);
  std::uint64_t after = 0;
  std::memcpy(&after, owner.buffer.data(), sizeof after);
  CHECK(after == before + 1);
  CHECK(asking.holds(64, std::span(owner.buffer).first(64)));
}

TEST_CASE("an injected loss on an unacknowledged queue pair is not repaired, and completes",
          "[fabric][adapter][faults]") {
  FaultyEndpoints faulty(false);
  faulty.faults.lose = [](const SendingRequest& request, std::uint16_t cell) {
    return request.position == 1 && cell == 1;
  };
  faulty.send_three();
  REQUIRE(faulty.two.settle());
  const auto sent = faulty.two.end(0).take();
  REQUIRE(sent.size() == 3);
  for (const Completion& one : sent) CHECK(one.status == CompletionStatus::success);
  CHECK(faulty.two.end(1).take().size() == 2);
  CHECK(faulty.two.end(1).adapter.counters().dropped_unacknowledged == 1);
}

TEST_CASE("injected damage is answered at once, counted, and repaired without a timeout", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  unsigned left = 3;
  std::vector<std::uint32_t> psns;
  faulty.faults.damage = [&](const ArrivingMessage& message) {
    CHECK(message.queue_pair == faulty.two.end(1).number);
    CHECK(message.kind == MessageKind::send);
    psns.push_back(message.psn);
    return left != 0 && left-- != 0;
  };
  faulty.send_three();
  const Time began = faulty.two.pair.now();
  faulty.expect_three_arrive();
  CHECK(faulty.two.pair.now() - began < milliseconds(1));
  CHECK(faulty.two.end(1).adapter.counters().dropped_bad_cell == 3);
  // It is asked for each message in order, and for each copy of a damaged one.
  REQUIRE(psns.size() == 6);
  CHECK(std::count(psns.begin(), psns.end(), psns[0]) == 4);
  CHECK(psns[5] == psns[0] + 2);
}

TEST_CASE("a message that always comes in damaged ends as retry exceeded", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  faulty.faults.damage = [](const ArrivingMessage&) { return true; };
  faulty.send_three();
  faulty.expect_failure(CompletionStatus::retry_exceeded);
  CHECK(faulty.two.end(1).adapter.counters().dropped_bad_cell == 4);
}

TEST_CASE("a receiver that is made not ready delays the sender, and keeps its receive", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  unsigned left = 2;
  std::vector<std::uint64_t> receives;
  faulty.faults.refuse = [&](const ArrivingMessage&, std::uint64_t receive) {
    receives.push_back(receive);
    return left != 0 && left-- != 0;
  };
  faulty.send_three();
  const Time began = faulty.two.pair.now();
  faulty.expect_three_arrive();
  CHECK(faulty.two.pair.now() - began >= microseconds(200));
  CHECK(receives == std::vector<std::uint64_t>{10, 10, 10, 11, 12});
}

TEST_CASE("a receiver that is never ready ends the request after its retries", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  unsigned asked = 0;
  faulty.faults.refuse = [&](const ArrivingMessage&, std::uint64_t) { return ++asked != 0; };
  faulty.send_three();
  faulty.expect_failure(CompletionStatus::receiver_not_ready);
  CHECK(asked == 3);
}

TEST_CASE("a write with immediate meets a receiver that is not ready at its end, one without never does",
          "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  unsigned asked = 0;
  faulty.faults.refuse = [&](const ArrivingMessage& message, std::uint64_t receive) {
    CHECK(message.kind == MessageKind::write);
    CHECK(receive == 5);
    return ++asked == 1;
  };
  REQUIRE(faulty.two.end(1).receive(5, 0, 0) == Status::ok);
  REQUIRE(faulty.two.end(0).write(1, 0, 1000, faulty.two.end(1).remote(4096)) == Status::ok);
  REQUIRE(faulty.two.end(0).write(2, 0, 1000, faulty.two.end(1).remote(8192), 77) == Status::ok);
  REQUIRE(faulty.two.settle());
  CHECK(asked == 2);
  CHECK(faulty.two.end(0).take().size() == 2);
  const auto received = faulty.two.end(1).take();
  REQUIRE(received.size() == 1);
  CHECK(received[0].immediate == 77);
  CHECK(faulty.two.end(1).holds(8192, test::pattern(1000, 1)));
}

TEST_CASE("an unacknowledged queue pair is never made not ready, as it could not say so", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty(false);
  faulty.faults.refuse = [](const ArrivingMessage&, std::uint64_t) { return true; };
  faulty.send_three();
  faulty.expect_three_arrive();
}

TEST_CASE("a held request and those behind it leave when its time has come", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  Endpoint& sender = faulty.two.end(0);
  unsigned asked = 0;
  const Time until = faulty.two.pair.now() + microseconds(700);
  faulty.faults.at_turn = [&](const SendingRequest& request) {
    const bool first = request.position == 1 && asked++ == 0;
    return first ? RequestTurn{.what = RequestTurn::What::hold, .until = until} : RequestTurn{};
  };
  faulty.send_three();
  while (faulty.two.pair.now() < until - microseconds(10)) {
    faulty.two.step();
    CHECK(sender.adapter.next_deadline() == until);
  }
  const auto before = sender.take();
  REQUIRE(before.size() == 1);
  CHECK(before[0].id == 0);
  CHECK(faulty.two.end(1).take().size() == 1);
  REQUIRE(faulty.two.settle());
  CHECK(sender.take().size() == 2);
  CHECK(faulty.two.end(1).take().size() == 2);
  CHECK(asked == 2);
}

TEST_CASE("a request that is made to fail ends in its turn with that status", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  faulty.faults.at_turn = [](const SendingRequest& request) {
    return request.position == 1
               ? RequestTurn{.what = RequestTurn::What::fail, .status = CompletionStatus::remote_access_error}
               : RequestTurn{};
  };
  faulty.send_three();
  faulty.two.run(milliseconds(5));
  const auto sent = faulty.two.end(0).take();
  REQUIRE(sent.size() == 3);
  CHECK(sent[0].status == CompletionStatus::success);
  CHECK(sent[1].status == CompletionStatus::remote_access_error);
  CHECK(sent[2].status == CompletionStatus::flushed);
  const auto received = faulty.two.end(1).take();
  REQUIRE(received.size() == 3);
  CHECK(received[0].status == CompletionStatus::success);
  CHECK(received[1].status == CompletionStatus::flushed);
  CHECK(faulty.two.end(1).adapter.in_error(faulty.two.end(1).number));
}

TEST_CASE("datagrams meet no injected faults", "[fabric][adapter][faults]") {
  ScriptedFaults faults;
  bool asked = false;
  faults.at_turn = [&](const SendingRequest&) {
    asked = true;
    return RequestTurn{};
  };
  faults.lose = [&](const SendingRequest&, std::uint16_t) { return asked = true; };
  AdapterOptions options = test::small_cells();
  options.faults = &faults;
  QueuePairAttributes datagram;
  datagram.acknowledged = false;
  datagram.datagram = true;
  test::LinkedPair pair;
  Endpoint sender(pair.link(0), options, pair.random(), datagram);
  REQUIRE(sender.adapter.modify(sender.number, QueuePairEvent::initialize) == Status::ok);
  REQUIRE(sender.adapter.modify(sender.number, QueuePairEvent::ready_to_receive) == Status::ok);
  REQUIRE(sender.adapter.modify(sender.number, QueuePairEvent::ready_to_send) == Status::ok);
  AddressHandleOptions to;
  to.path = PathNumber{1};
  WorkRequest request;
  request.segments[0] = sender.segment(0, 8);
  request.segment_count = 1;
  request.datagram = {sender.adapter.create_address_handle(to).value(), QpNumber{77}, 0};
  REQUIRE(sender.adapter.post_send(sender.number, request) == Status::ok);
  for (int i = 0; i < 10; ++i) {
    pair.advance(microseconds(10));
    sender.adapter.poll(pair.now());
  }
  CHECK(sender.take().size() == 1);
  CHECK(sender.adapter.counters().datagrams_sent == 1);
  CHECK_FALSE(asked);
}

}  // namespace splitnic::fabric::adapter_injected_faults_test
