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

  bool duplicates(const SendingRequest& request, std::uint16_t cell) override { return copy && copy(request, cell); }
  bool loses_answer(const SendingRequest& request) override { return mute && mute(request); }

  std::function<RequestTurn(const SendingRequest&)> at_turn;
  std::function<bool(const SendingRequest&, std::uint16_t)> lose;
  std::function<bool(const SendingRequest&, std::uint16_t)> copy;
  std::function<bool(const SendingRequest&)> mute;
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
  const std::uint64_t victim = GENERATE(0U, 1U, 2U);
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
  const bool answers = GENERATE(false, true);
  if (answers) {
    faulty.faults.mute = [&](const SendingRequest&) { return lost < 4 && ++lost % 2 == 1; };
  } else {
    faulty.faults.lose = [&](const SendingRequest&, std::uint16_t) { return lost < 4 && ++lost % 2 == 1; };
  }
  faulty.faults.copy = [](const SendingRequest&, std::uint16_t) { return true; };
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

TEST_CASE("cells that arrive twice change nothing, whichever they are", "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  unsigned copies = 0;
  faulty.faults.copy = [&](const SendingRequest&, std::uint16_t) { return ++copies != 0; };
  faulty.send_three();
  faulty.expect_three_arrive();
  CHECK(copies == 9);
  CHECK(faulty.two.end(0).adapter.counters().cells_sent >= 18);
  CHECK(faulty.two.end(0).adapter.counters().retransmissions == 0);
  CHECK(faulty.two.end(1).adapter.counters().dropped_duplicate > 0);
}

TEST_CASE("an unacknowledged message whose cells arrive twice is taken once, or is missing",
          "[fabric][adapter][faults]") {
  FaultyEndpoints faulty(false);
  faulty.faults.copy = [](const SendingRequest&, std::uint16_t) { return true; };
  faulty.send_three();
  REQUIRE(faulty.two.settle());
  CHECK(faulty.two.end(0).take().size() == 3);
  CHECK(faulty.two.end(1).take().size() == 1);  // as with hardware: only a cell that comes next goes on with a message
  CHECK(faulty.two.end(1).adapter.counters().dropped_duplicate > 0);
}

TEST_CASE("a request whose acknowledgement is lost is sent again after its timeout, and taken once",
          "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  const std::uint64_t victim = GENERATE(0U, 2U);
  // One acknowledgement is for all requests before it, too.
  unsigned left = victim == 2 ? GENERATE(1U, 3U) : 1;
  faulty.faults.mute = [&](const SendingRequest& request) {
    return request.position == victim && left != 0 && left-- != 0;
  };
  faulty.send_three();
  const Time began = faulty.two.pair.now();
  faulty.expect_three_arrive();
  CHECK(left == 0);
  CHECK(faulty.two.pair.now() - began >= milliseconds(1));
  CHECK(faulty.two.end(0).adapter.counters().timeouts > 0);
  CHECK(faulty.two.end(1).adapter.counters().dropped_duplicate > 0);
}

TEST_CASE("a request whose acknowledgements are always lost ends as retry exceeded, though it was taken",
          "[fabric][adapter][faults]") {
  FaultyEndpoints faulty;
  faulty.faults.mute = [](const SendingRequest&) { return true; };
  faulty.send_three();
  faulty.expect_failure(CompletionStatus::retry_exceeded);
  CHECK(faulty.two.end(0).adapter.counters().retries_exceeded == 1);
  CHECK(faulty.two.end(1).take().size() == 3);
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

namespace {

/// Two datagram queue pairs; the first sends to the second.
struct FaultyDatagrams {
  FaultyDatagrams() : pair(), sender(end(0)), receiver(end(1)) {
    for (Endpoint* one : {&sender, &receiver}) {
      REQUIRE(one->adapter.modify(one->number, QueuePairEvent::initialize) == Status::ok);
      REQUIRE(one->adapter.modify(one->number, QueuePairEvent::ready_to_receive) == Status::ok);
      REQUIRE(one->adapter.modify(one->number, QueuePairEvent::ready_to_send) == Status::ok);
    }
    AddressHandleOptions to;
    to.path = PathNumber{1};
    handle = sender.adapter.create_address_handle(to).value();
  }
  Endpoint end(std::size_t which) {
    AdapterOptions options = test::small_cells();
    options.cell_payload_bytes = 512;
    options.faults = &faults;
    QueuePairAttributes datagram;
    datagram.acknowledged = false;
    datagram.datagram = true;
    return Endpoint(pair.link(which), options, pair.random(), datagram);
  }
  void run(Duration time) {
    for (const Time until = pair.now() + time; pair.now() < until;) {
      pair.advance(microseconds(10));
      sender.adapter.poll(pair.now());
      receiver.adapter.poll(pair.now());
    }
  }
  void send_three() {
    for (std::uint64_t id = 0; id < 3; ++id) {
      for (std::uint64_t copy = 0; copy < 2; ++copy) {
        REQUIRE(receiver.receive(10 + 2 * id + copy, 128 * (2 * id + copy), 128) == Status::ok);
      }
      WorkRequest request;
      request.id = id;
      request.segments[0] = sender.segment(0, 8);
      request.segment_count = 1;
      request.datagram = {handle, receiver.number, 0};
      REQUIRE(sender.adapter.post_send(sender.number, request) == Status::ok);
    }
  }

  ScriptedFaults faults;
  test::LinkedPair pair;
  Endpoint sender;
  Endpoint receiver;
  AddressHandleNumber handle{};
};

}  // namespace

TEST_CASE("datagrams that are lost, damaged, doubled and delayed complete, and arrive accordingly",
          "[fabric][adapter][faults]") {
  FaultyDatagrams faulty;
  const auto second = [](const SendingRequest& request) {
    CHECK(request.datagram);
    CHECK(request.path == PathNumber{1});
    return request.position == 1;
  };
  std::size_t arrive = 0;
  std::uint64_t messages = 0;
  SECTION("lost") {
    faulty.faults.lose = [&](const SendingRequest& request, std::uint16_t) { return second(request); };
    arrive = 2;
  }
  SECTION("damaged") {
    faulty.faults.damage = [&](const ArrivingMessage& message) {
      CHECK(message.kind == MessageKind::datagram);
      return ++messages == 2;
    };
    arrive = 2;
  }
  SECTION("doubled") {
    faulty.faults.copy = [&](const SendingRequest& request, std::uint16_t) { return second(request); };
    arrive = 4;
  }
  faulty.run(milliseconds(1));
  faulty.send_three();
  faulty.run(milliseconds(1));
  CHECK(faulty.sender.take().size() == 3);
  CHECK(faulty.receiver.take().size() == arrive);
  CHECK(faulty.sender.adapter.counters().datagrams_sent == 3);
  CHECK(faulty.receiver.adapter.counters().dropped_bad_cell == messages / 3);
}

TEST_CASE("a held datagram and those behind it leave when its time has come", "[fabric][adapter][faults]") {
  FaultyDatagrams faulty;
  faulty.run(milliseconds(1));
  const Time until = faulty.pair.now() + microseconds(700);
  bool held = false;
  faulty.faults.at_turn = [&](const SendingRequest& request) {
    if (request.position != 1 || held) return RequestTurn{};
    held = true;
    return RequestTurn{.what = RequestTurn::What::hold, .until = until};
  };
  faulty.send_three();
  faulty.run(microseconds(600));
  CHECK(faulty.sender.take().size() == 1);
  CHECK(faulty.sender.adapter.next_deadline() == until);
  faulty.run(microseconds(200));
  CHECK(faulty.sender.take().size() == 2);
  CHECK(faulty.receiver.take().size() == 3);
}

}  // namespace splitnic::fabric::adapter_injected_faults_test
