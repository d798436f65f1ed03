#include "fabric/adapter/queue_pair_state.h"

#include <string>

#include "adapter_fixtures.h"

namespace splitnic::fabric::test::queue_pair_state_test {
namespace {

constexpr std::array kStates{
    QueuePairState::reset,         QueuePairState::init,       QueuePairState::ready_to_receive,
    QueuePairState::ready_to_send, QueuePairState::sq_drained, QueuePairState::sq_error,
    QueuePairState::error};
constexpr std::array kEvents{QueuePairEvent::initialize,    QueuePairEvent::ready_to_receive,
                             QueuePairEvent::ready_to_send, QueuePairEvent::connect,
                             QueuePairEvent::drain_sends,   QueuePairEvent::fail_sends,
                             QueuePairEvent::fail,          QueuePairEvent::reset};

}  // namespace

TEST_CASE("the state table: what is forbidden has a reason, and failing and resetting are always allowed",
          "[fabric][adapter][state]") {
  static_assert(kStates.size() == kQueuePairStates && kEvents.size() == kQueuePairEvents);
  for (const auto from : kStates) {
    CHECK(to_string(from) != std::string("?"));
    for (const auto event : kEvents) {
      const QueuePairMove& move = queue_pair_move(from, event);
      CHECK(move.legal == std::string(move.why).empty());
      if (!move.legal) CHECK(move.to == from);
      if (event == QueuePairEvent::fail) CHECK((move.legal && move.to == QueuePairState::error));
      if (event == QueuePairEvent::reset) CHECK((move.legal && move.to == QueuePairState::reset));
      if (event == QueuePairEvent::connect && move.legal) CHECK(move.to == QueuePairState::ready_to_send);
      if (event == QueuePairEvent::fail_sends && move.legal) CHECK(move.to == QueuePairState::sq_error);
    }
  }
}

TEST_CASE("every event in every state does what the table says", "[fabric][adapter][state]") {
  for (const auto from : kStates) {
    for (const auto event : kEvents) {
      INFO(to_string(from) << ", event " << static_cast<int>(event));
      LinkedPair pair;
      Endpoint end(pair.link(0), {}, pair.random(), {});
      const QueuePairPeer peer{QpNumber{7}, 1, 2};
      const auto go = [&](QueuePairEvent step) { REQUIRE(end.adapter.modify(end.number, step, peer) == Status::ok); };
      if (from != QueuePairState::reset && from != QueuePairState::error) go(QueuePairEvent::initialize);
      if (from > QueuePairState::init && from != QueuePairState::error) go(QueuePairEvent::ready_to_receive);
      if (from > QueuePairState::ready_to_receive && from != QueuePairState::error) go(QueuePairEvent::ready_to_send);
      if (from == QueuePairState::sq_drained) go(QueuePairEvent::drain_sends);
      if (from == QueuePairState::sq_error) go(QueuePairEvent::fail_sends);
      if (from == QueuePairState::error) go(QueuePairEvent::fail);
      REQUIRE(end.adapter.state(end.number) == from);
      const QueuePairMove& move = queue_pair_move(from, event);
      CHECK(end.adapter.modify(end.number, event, peer) == (move.legal ? Status::ok : Status::bad_state));
      CHECK(end.adapter.state(end.number) == move.to);
      const QueuePairRules& rules = queue_pair_rules(move.to);
      CHECK(end.send(1, 0, 10) == (rules.post_send ? Status::ok : Status::bad_state));
      CHECK(end.receive(1, 0, 10) == (rules.post_receive ? Status::ok : Status::bad_state));
    }
  }
}

TEST_CASE("the long way up carries messages like the short one", "[fabric][adapter][state]") {
  LinkedPair pair;
  Endpoint first(pair.link(0), {}, pair.random(), {});
  Endpoint second(pair.link(1), {}, pair.random(), {});
  const auto step = [&](Endpoint& end, QueuePairEvent event, QueuePairPeer peer = {}) {
    REQUIRE(end.adapter.modify(end.number, event, peer) == Status::ok);
  };
  step(first, QueuePairEvent::initialize);
  step(first, QueuePairEvent::ready_to_receive, {second.number, 10, 20});
  REQUIRE(second.adapter.connect(second.number, {first.number, 20, 10}) == Status::ok);
  REQUIRE(first.receive(1, 0, 64) == Status::ok);
  REQUIRE(second.receive(2, 0, 64) == Status::ok);
  const auto run = [&] {
    for (int i = 0; i < 100; ++i) {
      pair.advance(microseconds(10));
      first.adapter.poll(pair.now());
      second.adapter.poll(pair.now());
    }
  };
  REQUIRE(second.send(3, 0, 64) == Status::ok);  // ready to receive is enough to be sent to
  run();
  CHECK(first.take().size() == 1);
  CHECK(second.take().size() == 1);
  CHECK(first.send(4, 0, 64) == Status::bad_state);
  step(first, QueuePairEvent::ready_to_send);
  REQUIRE(first.send(4, 0, 64) == Status::ok);
  run();
  CHECK(first.take().size() == 1);
  CHECK(second.take().size() == 1);
}

TEST_CASE("draining finishes what was begun, begins nothing new, and tells when it is over",
          "[fabric][adapter][state]") {
  ScriptedPeer peer;
  ChannelAdapter& adapter = peer.host.adapter;
  REQUIRE(peer.host.send(1, 0, 300) == Status::ok);
  REQUIRE(peer.host.send(2, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 3);
  REQUIRE(adapter.modify(peer.host.number, QueuePairEvent::drain_sends) == Status::ok);
  REQUIRE(peer.host.send(3, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().empty());
  std::array<AsyncEvent, 4> events;
  CHECK(adapter.poll_events(events) == 0);
  peer.acknowledge(Syndrome::sequence_error, ScriptedPeer::kOwnPsn);
  CHECK(peer.poll_and_take().size() == 3);  // a retry of what was begun
  peer.acknowledge(Syndrome::ok, ScriptedPeer::kOwnPsn + 1);
  CHECK(peer.poll_and_take().empty());
  CHECK(peer.host.take().size() == 2);
  REQUIRE(adapter.poll_events(events) == 1);
  CHECK(events[0].kind == AsyncEventKind::send_queue_drained);
  CHECK(events[0].queue_pair == peer.host.number);
  REQUIRE(adapter.modify(peer.host.number, QueuePairEvent::ready_to_send) == Status::ok);
  const auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].packet_sequence == ScriptedPeer::kOwnPsn + 2);
}

TEST_CASE("an unacknowledged channel's local error flushes its sends alone, and they resume",
          "[fabric][adapter][state]") {
  QueuePairAttributes options;
  options.acknowledged = false;
  ScriptedPeer peer(test::small_cells(), options);
  REQUIRE(peer.host.receive(9, 0, 100) == Status::ok);
  REQUIRE(peer.host.send(1, 0, 200'000) == Status::ok);  // more than the lane takes
  REQUIRE(peer.host.send(2, 0, 64) == Status::ok);
  peer.poll();
  REQUIRE(peer.host.adapter.deregister(peer.host.tag) == Status::ok);
  static_cast<void>(peer.take());
  peer.poll();
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].status == CompletionStatus::local_protection_error);
  CHECK(ends[1].status == CompletionStatus::flushed);
  CHECK(peer.host.adapter.state(peer.host.number) == QueuePairState::sq_error);
  CHECK(peer.host.send(3, 0, 64) == Status::bad_state);
  static_cast<void>(peer.take());
  peer.host.tag = peer.host.adapter.register_memory(peer.host.domain, peer.host.buffer, kAllRights).value();
  REQUIRE(peer.host.adapter.modify(peer.host.number, QueuePairEvent::ready_to_send) == Status::ok);
  REQUIRE(peer.host.send(4, 0, 64) == Status::ok);
  const auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].packet_sequence == ScriptedPeer::kOwnPsn + 1);
  REQUIRE(peer.host.take().size() == 1);
}

TEST_CASE("a reset queue pair forgets what was posted without completions, and starts anew",
          "[fabric][adapter][state]") {
  TwoEndpoints two;
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(two.end(0).receive(i, 0, 64) == Status::ok);
  REQUIRE(two.end(0).send(5, 0, 64) == Status::ok);  // the peer has posted nothing
  two.run(microseconds(100));
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(two.end(i).adapter.modify(two.end(i).number, QueuePairEvent::reset) == Status::ok);
    CHECK(two.end(i).take().empty());
    CHECK_FALSE(two.end(i).adapter.outstanding());
  }
  CHECK(two.end(0).adapter.send_room(two.end(0).number) == 0);
  two.connect();
  CHECK(two.end(0).adapter.send_room(two.end(0).number) == 64);
  REQUIRE(two.end(1).receive(1, 0, 64) == Status::ok);
  REQUIRE(two.end(0).send(2, 0, 64) == Status::ok);
  REQUIRE(two.settle());
  CHECK(two.end(0).take().size() == 1);
  CHECK(two.end(1).take().size() == 1);
}

TEST_CASE("one queue pair's end is nothing to its neighbours", "[fabric][adapter][state]") {
  TwoEndpoints two;
  const QpNumber near = two.end(0).make_queue_pair({});
  const QpNumber far = two.end(1).make_queue_pair({});
  REQUIRE(two.end(0).adapter.connect(near, {far, 1, 2}) == Status::ok);
  REQUIRE(two.end(1).adapter.connect(far, {near, 2, 1}) == Status::ok);
  REQUIRE(two.end(1).adapter.post_receive(far, {7, two.end(1).segment(0, 64)}) == Status::ok);
  REQUIRE(two.end(0).write(1, 0, 64, {0, Stag{12345}}) == Status::ok);  // ends the first queue pair at both ends
  two.run(milliseconds(1));
  CHECK(two.end(0).adapter.in_error(two.end(0).number));
  CHECK(two.end(1).adapter.in_error(two.end(1).number));
  static_cast<void>(two.end(0).take());
  static_cast<void>(two.end(1).take());
  WorkRequest request;
  request.segments[0] = two.end(0).segment(0, 64);
  request.segment_count = 1;
  REQUIRE(two.end(0).adapter.post_send(near, request) == Status::ok);
  two.run(milliseconds(1));
  CHECK(two.end(0).take().at(0).status == CompletionStatus::success);
  CHECK(two.end(1).take().at(0).id == 7);
}

}  // namespace splitnic::fabric::test::queue_pair_state_test
