// XRC targets and initiators at the adapter, against a peer that writes cells by hand.
#include <catch2/catch.hpp>
#include <vector>

#include "adapter_requests.h"
#include "tests/unit/fabric/every_opcode.h"

namespace splitnic::fabric::test::adapter_xrc_test {
namespace {

constexpr XrcDomain kDomain{7};
constexpr TerminateReason kNonsense{0, 2, 0xff};
constexpr TerminateReason kInvalidQueue{1, 2, 1};

/// A target beside the host's own queue pair, and two shared receive queues with completion queues of their own.
struct Target : ScriptedPeer {
  struct Receives {
    CqNumber completions;
    SrqNumber number;
  };

  Target() {
    QueuePairAttributes with;
    with.xrc = XrcRole::target;
    with.xrc_domain = kDomain;
    number = host.adapter.create_queue_pair(with).value();
    REQUIRE(host.adapter.connect(number, {kNumber, kOwnPsn, kPsn}) == Status::ok);
  }

  Receives make(XrcDomain domain = kDomain) {
    const CqNumber completions = host.adapter.create_completion_queue(16);
    const auto made = host.adapter.create_shared_receive_queue(host.domain, 4, true, {domain, completions});
    REQUIRE(made.has_value());
    REQUIRE(host.adapter.post_shared_receive(*made, {1, host.segment(0, 1024)}) == Status::ok);
    return {completions, *made};
  }
  Cell to_target(Opcode opcode, std::uint32_t psn, SrqNumber receives = {}, std::uint16_t sequence = 0) {
    Cell made = cell(opcode, psn, sequence);
    made.destination_queue_pair = number;
    made.shared_receives = receives;
    const OpcodeTraits& what = traits(opcode);
    if (what.rdma_header) {
      made.address = host.remote().address;
      made.tag = host.tag;
      made.message_bytes = what.is(MessageKind::write) ? (what.last ? 8 : 16) : 8;
    }
    if (what.is(MessageKind::read_request) || what.is(MessageKind::atomic)) made.message_sequence = 1;
    return made;
  }
  void put_message(const Cell& made) {
    const bool carries = traits(made.opcode).carries_message();
    put(made, carries ? pattern(8, 1) : std::vector<std::byte>{});
  }
  /// Of the one terminate message that the host has sent.
  TerminateReason told() {
    std::vector<Cell> terminates;
    for (const Cell& sent : poll_and_take()) {
      if (sent.opcode == Opcode::terminate) terminates.push_back(sent);
    }
    REQUIRE(terminates.size() == 1);
    return terminates[0].reason;
  }
  std::vector<Completion> take_from(CqNumber queue) {
    std::vector<Completion> some(16);
    some.resize(host.adapter.poll_completions(queue, some));
    return some;
  }

  QpNumber number{};
};

bool begins_request(Opcode opcode) {
  const OpcodeTraits& what = traits(opcode);
  return what.first && (what.is(MessageKind::send) || what.is(MessageKind::write) ||
                        what.is(MessageKind::read_request) || what.is(MessageKind::atomic));
}

}  // namespace

TEST_CASE("a target takes only requests that name a queue, and others take none of those", "[fabric][adapter][xrc]") {
  for (const Opcode opcode : every_opcode()) {
    if (!begins_request(opcode)) continue;
    INFO(to_string(opcode));
    const bool xrc = traits(opcode).xrc;
    Target peer;
    const auto receives = peer.make();
    Cell cell = peer.to_target(opcode, ScriptedPeer::kPsn, receives.number);
    if (xrc) cell.destination_queue_pair = peer.host.number;
    peer.put_message(cell);
    CHECK(peer.told() == kNonsense);
    CHECK(peer.host.adapter.in_error(cell.destination_queue_pair));
    CHECK(peer.take_from(receives.completions).empty());
  }
}

TEST_CASE("an initiator takes no requests at all", "[fabric][adapter][xrc]") {
  for (const Opcode opcode : {Opcode::send_only, Opcode::xrc_send_only, Opcode::read_request}) {
    INFO(to_string(opcode));
    Target peer;
    const auto receives = peer.make();
    QueuePairAttributes with;
    with.xrc = XrcRole::initiator;
    const QpNumber initiator = peer.host.make_queue_pair(with);
    REQUIRE(peer.host.adapter.connect(initiator, {Target::kNumber, Target::kOwnPsn, Target::kPsn}) == Status::ok);
    CHECK(peer.host.adapter.post_receive(initiator, {1, peer.host.segment(0, 8)}) == Status::not_permitted);
    Cell cell = peer.to_target(opcode, ScriptedPeer::kPsn, receives.number);
    cell.destination_queue_pair = initiator;
    peer.put_message(cell);
    CHECK(peer.told() == kNonsense);
  }
}

TEST_CASE("every request that names a queue of the target's domain is taken", "[fabric][adapter][xrc]") {
  for (const Opcode opcode : every_opcode()) {
    if (!begins_request(opcode) || !traits(opcode).xrc || !traits(opcode).last) continue;
    if (opcode == Opcode::xrc_send_only_invalidate || traits(opcode).is(MessageKind::atomic)) continue;  // want more
    INFO(to_string(opcode));
    Target peer;
    const auto receives = peer.make();
    // The host's memory may be written, and read by none.
    const bool reads = traits(opcode).is(MessageKind::read_request);
    peer.put_message(peer.to_target(opcode, ScriptedPeer::kPsn, receives.number));
    peer.poll();
    CHECK(peer.host.adapter.in_error(peer.number) == reads);
    const bool completes = traits(opcode).is(MessageKind::send) || traits(opcode).immediate;
    const auto completions = peer.take_from(receives.completions);
    REQUIRE(completions.size() == (completes ? 1 : 0));
    if (completes) CHECK(completions[0].queue_pair == peer.number);
  }
}

TEST_CASE("a queue that is none, that is no XRC one, or that is of another domain, is refused by name",
          "[fabric][adapter][xrc]") {
  Target peer;
  const auto receives = peer.make();
  const auto foreign = peer.make(XrcDomain{8});
  const SrqNumber basic = peer.host.adapter.create_shared_receive_queue(peer.host.domain, 4).value();
  const SrqNumber named = GENERATE_COPY(values({SrqNumber{kMaxQueuePairNumber}, basic, foreign.number}));
  peer.put_message(peer.to_target(Opcode::xrc_send_only, ScriptedPeer::kPsn, named));
  CHECK(peer.told() == kInvalidQueue);
  CHECK(peer.take_from(receives.completions).empty());
  CHECK(peer.take_from(foreign.completions).empty());
}

TEST_CASE("a message that is sent again names the queue whose receive it has taken", "[fabric][adapter][xrc]") {
  Target peer;
  const auto first = peer.make();
  const auto second = peer.make();
  peer.put_message(peer.to_target(Opcode::xrc_send_first, ScriptedPeer::kPsn, first.number));
  peer.poll();
  const bool same = GENERATE(true, false);
  const SrqNumber named = same ? first.number : second.number;
  peer.put_message(peer.to_target(Opcode::xrc_send_only, ScriptedPeer::kPsn, named));
  if (same) {
    peer.poll();
    const auto completions = peer.take_from(first.completions);
    REQUIRE(completions.size() == 1);
    CHECK(completions[0].status == CompletionStatus::success);
    CHECK(completions[0].bytes == 8);
  } else {
    CHECK(peer.told() == kNonsense);
    const auto completions = peer.take_from(first.completions);
    REQUIRE(completions.size() == 1);
    CHECK(completions[0].status == CompletionStatus::flushed);
    CHECK(peer.take_from(second.completions).empty());
  }
}

TEST_CASE("a queue may go while a message is coming in for it, and the message is refused", "[fabric][adapter][xrc]") {
  const Opcode first = GENERATE(Opcode::xrc_send_first, Opcode::xrc_write_first);
  const Opcode last = first == Opcode::xrc_send_first ? Opcode::send_last : Opcode::write_last_immediate;
  Target peer;
  const auto receives = peer.make();
  peer.put_message(peer.to_target(first, ScriptedPeer::kPsn, receives.number));
  peer.poll();
  CHECK(peer.host.adapter.destroy_completion_queue(receives.completions) == Status::in_use);
  REQUIRE(peer.host.adapter.destroy_shared_receive_queue(receives.number) == Status::ok);
  REQUIRE(peer.host.adapter.destroy_completion_queue(receives.completions) == Status::ok);
  // Another one with the same number, of another domain.
  const auto successor = peer.make(XrcDomain{8});
  REQUIRE(successor.number == receives.number);
  peer.put_message(peer.to_target(last, ScriptedPeer::kPsn, {}, 1));
  const std::vector<Cell> answers = peer.poll_and_take();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].syndrome == Syndrome::sequence_error);
  peer.put_message(peer.to_target(first, ScriptedPeer::kPsn, receives.number));
  CHECK(peer.told() == kInvalidQueue);
  CHECK(peer.take_from(successor.completions).empty());
}

TEST_CASE("a target that is reset forgets the receive that a message had taken", "[fabric][adapter][xrc]") {
  Target peer;
  const auto receives = peer.make();
  peer.put_message(peer.to_target(Opcode::xrc_send_first, ScriptedPeer::kPsn, receives.number));
  peer.poll();
  REQUIRE(peer.host.adapter.modify(peer.number, QueuePairEvent::reset) == Status::ok);
  CHECK(peer.take_from(receives.completions).empty());
  CHECK(peer.host.adapter.destroy_shared_receive_queue(receives.number) == Status::ok);
  CHECK(peer.host.adapter.destroy_completion_queue(receives.completions) == Status::ok);
}

TEST_CASE("a queue without receives answers that it is not ready", "[fabric][adapter][xrc]") {
  Target peer;
  const auto receives = peer.make();
  peer.put_message(peer.to_target(Opcode::xrc_send_only, ScriptedPeer::kPsn, receives.number));
  peer.poll();
  REQUIRE(peer.take_from(receives.completions).size() == 1);
  static_cast<void>(peer.take());
  peer.put_message(peer.to_target(Opcode::xrc_send_only, ScriptedPeer::kPsn + 1, receives.number));
  const std::vector<Cell> answers = peer.poll_and_take();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].syndrome == Syndrome::receiver_not_ready);
}

TEST_CASE("an initiator's requests name the queue in their first cell alone", "[fabric][adapter][xrc]") {
  ScriptedPeer peer;
  QueuePairAttributes with;
  with.xrc = XrcRole::initiator;
  const QpNumber initiator = peer.host.make_queue_pair(with);
  REQUIRE(peer.host.adapter.connect(initiator, {Target::kNumber, Target::kOwnPsn, Target::kPsn}) == Status::ok);
  WorkRequest request;
  request.segments[0] = peer.host.segment(0, 600);
  request.segment_count = 1;
  CHECK(peer.host.adapter.post_send(initiator, request) == Status::bad_argument);
  request.remote_receives = SrqNumber{kMaxQueuePairNumber + 1};
  CHECK(peer.host.adapter.post_send(initiator, request) == Status::bad_argument);
  request.remote_receives = SrqNumber{kMaxQueuePairNumber};
  REQUIRE(peer.host.adapter.post_send(initiator, request) == Status::ok);
  const std::vector<Cell> sent = peer.poll_and_take();
  REQUIRE(sent.size() == 3);
  CHECK(sent[0].opcode == Opcode::xrc_send_first);
  CHECK(sent[0].shared_receives == SrqNumber{kMaxQueuePairNumber});
  CHECK(sent[1].opcode == Opcode::send_middle);
  CHECK(sent[2].opcode == Opcode::send_last);
  request.operation = Operation::rdma_read;
  REQUIRE(peer.host.adapter.post_send(initiator, request) == Status::ok);
  const std::vector<Cell> asked = peer.poll_and_take();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].opcode == Opcode::xrc_read_request);
}

TEST_CASE("XRC queue pairs and queues whose options contradict each other are not made", "[fabric][adapter][xrc]") {
  Target peer;
  ChannelAdapter& adapter = peer.host.adapter;
  const auto receives = peer.make();
  QueuePairAttributes good;
  good.xrc = XrcRole::target;
  good.xrc_domain = kDomain;
  const auto refused = [&adapter](QueuePairAttributes with, auto change) {
    change(with);
    return !adapter.create_queue_pair(with).has_value();
  };
  CHECK(refused(good, [](auto& with) { with.xrc_domain = XrcDomain{}; }));
  CHECK(refused(good, [](auto& with) { with.acknowledged = false; }));
  CHECK(refused(good, [&](auto& with) { with.send_completions = receives.completions; }));
  CHECK(refused(good, [&](auto& with) { with.receive_completions = receives.completions; }));
  CHECK(refused(good, [&](auto& with) { with.shared_receives = receives.number; }));
  QueuePairAttributes initiator;
  initiator.domain = peer.host.domain;
  initiator.send_completions = initiator.receive_completions = peer.host.completions;
  initiator.xrc = XrcRole::initiator;
  CHECK(refused(initiator, [](auto& with) { with.acknowledged = false; }));
  CHECK(refused(initiator, [&](auto& with) { with.shared_receives = receives.number; }));
  // What is for targets is for no other queue pair.
  CHECK(refused(initiator, [&](auto& with) {
    with.xrc = XrcRole::none;
    with.shared_receives = receives.number;
  }));
  CHECK_FALSE(adapter.create_shared_receive_queue(peer.host.domain, 4, true, {kDomain, CqNumber{}}).has_value());
  CHECK_FALSE(
      adapter.create_shared_receive_queue(peer.host.domain, 4, true, {XrcDomain{}, receives.completions}).has_value());
  WorkRequest request;
  CHECK(adapter.post_send(peer.number, request) == Status::not_permitted);
  CHECK(adapter.post_receive(peer.number, {}) == Status::not_permitted);
  CHECK(adapter.send_room(peer.number) == 0);
}

}  // namespace splitnic::fabric::test::adapter_xrc_test
