// What a caller who answers each message takes by itself (Express::take_one).
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter_fixtures.h"
#include "adapter_requests.h"
#include "datagram_fixtures.h"
#include "express_world.h"
#include "fabric/adapter/tail_habit.h"
#include "fabric/wire/datagram.h"
#include "forged_slots.h"
#include "mapped_memory.h"
#include "slot_peer.h"

namespace splitnic::fabric::test::adapter_express_one_test {
namespace {

using World = ExpressWorld;
using Way = World::Way;

constexpr std::size_t kReceived = 4096;  // where an end's receives lie in its buffer, one page each
constexpr std::size_t kReceiveBytes = 400;

/// Two ends that take turns, as programs' polls do. The second one answers what it gets.
class Conversation {
 public:
  explicit Conversation(const QueuePairAttributes& options = {})
      : world(Way::express, 1, options), datagrams_(options.datagram) {
    if (datagrams_) {
      for (std::size_t i = 0; i < 2; ++i) handles_[i] = world.ends[i]->adapter.create_address_handle({}).value();
    }
  }

  Endpoint& asking() { return *world.ends[0]; }
  Endpoint& answering() { return *world.ends[1]; }
  std::size_t turn(std::size_t end) {
    world.now += std::chrono::nanoseconds(10);  // so soon, turns look first for what has come in
    return world.ends[end]->adapter.take_turn(world.now).moved;
  }
  /// The answering end has a turn, which takes a message by itself; or a poll, which does not.
  void take_message(bool by_itself) {
    if (by_itself) {
      turn(1);
    } else {
      answering().adapter.poll(world.now);
    }
  }
  /// The messages that this end got since the last call.
  std::vector<Completion> take(std::size_t end) {
    auto all = world.ends[end]->take();
    for (const Completion& done : all) world.note(end, done);
    std::erase_if(all, [](const Completion& done) { return !done.receive; });
    return all;
  }
  void receive(std::size_t end, std::uint64_t id) {
    const LocalSegment own = world.ends[end]->segment(kReceived * (1 + id % 8), kReceiveBytes);
    world.receive(end, ReceiveRequest{id, end == 1 && inbox ? *inbox : own});
  }
  void send(std::size_t from, std::uint64_t id, std::size_t bytes, bool solicited = false) {
    WorkRequest request = send_request(id, world.ends[from]->segment(0, bytes));
    request.datagram = {handles_[from], world.ends[1 - from]->number, kKey};
    request.solicited = solicited;
    REQUIRE(post(*world.ends[from], request) == Status::ok);
    if (from == 0) ++sent_;
  }
  /// One message there and one back.
  void exchange() {
    for (std::size_t end : {1U, 0U}) {
      receive(end, 100 + sent_);
      send(1 - end, 200 + sent_, 64);
      rest(1 - end);
      REQUIRE(turn(end) != 0);
      take(end);
    }
  }
  /// Until messages are taken by themselves.
  void converse() {
    for (int i = 0; i < 4; ++i) exchange();
  }
  /// Into its buffer, where its receives of that id lie.
  void post_read(std::size_t from, std::uint64_t id, std::size_t bytes) {
    Endpoint& end = *world.ends[from];
    const RemoteAddress at = world.at_peers_own(from, id * 100);
    REQUIRE(post(end, read_request(end, id, kReceived * id, bytes, at)) == Status::ok);
  }
  /// The rest of the end's last turn is over.
  void rest(std::size_t end) {
    for (int i = 0; i < 3; ++i) turn(end);
  }
  /// Four reads, one after the other: then answers are taken by themselves.
  void read_on(std::size_t reader, std::size_t bytes) {
    for (std::uint64_t id = 1; id <= 4; ++id) {
      post_read(reader, id, bytes);
      rest(reader);
      turn(1 - reader);
      turn(reader);
      REQUIRE(world.ends[reader]->take().size() == 1);
    }
  }
  /// The last message is answered, and nothing is left to do.
  void finish() {
    receive(0, 301);
    send(1, 300, 8);
    for (int i = 0; i < 3; ++i) turn(1);
    for (int i = 0; i < 3; ++i) turn(0);
    answering().adapter.poll(world.now);  // its answers are complete
    REQUIRE_FALSE(answering().adapter.outstanding());
  }
  /// The first packet that the asking end has not sent.
  [[nodiscard]] std::uint32_t next_packet() const { return 7 + sent_; }

  World world;
  std::optional<LocalSegment> inbox{};  ///< where the answering end's receives lie; none: in its buffer

 private:
  bool datagrams_;
  std::array<AddressHandleNumber, 2> handles_{};
  std::uint32_t sent_ = 0;
};

/// What an end is after a message.
struct Outcome {
  std::unique_ptr<Conversation> talk;
  bool taken = false;
};

/// The answering end gets the slot in a conversation, in a turn of its own; or in a poll, which takes no message by
/// itself. before(Conversation&): what is done before the slot is there; no receive is posted.
template <class Before>
Outcome deliver(bool by_itself, const QueuePairAttributes& options, const Forge& forge, Before&& before) {
  Outcome outcome{std::make_unique<Conversation>(options)};
  Conversation& talk = *outcome.talk;
  talk.converse();
  talk.finish();
  before(talk);
  const std::string was = talk.world.received[1];
  put(talk.world, forge(talk.world, talk.next_packet()));
  talk.take_message(by_itself);
  for (int i = 0; i < 4; ++i) talk.world.step();
  const std::string now = talk.world.received[1];
  outcome.taken = now.substr(was.size()).find(" success ") != std::string::npos;
  return outcome;
}

/// Whichever way, it does the same. Returns whether the message was taken.
template <class Before>
bool taken_by_itself(const QueuePairAttributes& options, const Forge& forge, Before&& before) {
  const Outcome one = deliver(true, options, forge, before);
  const Outcome other = deliver(false, options, forge, before);
  for (std::size_t end = 0; end < 2; ++end) {
    INFO("end " << end);
    World& a = one.talk->world;
    World& b = other.talk->world;
    CHECK(a.log[end] == b.log[end]);
    CHECK(a.received[end] == b.received[end]);
    CHECK(a.counts(end) == b.counts(end));
    CHECK(a.links[end]->up() == b.links[end]->up());
    CHECK(a.ends[end]->adapter.state(a.ends[end]->number) == b.ends[end]->adapter.state(b.ends[end]->number));
    const bool same_bytes = a.ends[end]->buffer == b.ends[end]->buffer;
    CHECK(same_bytes);
  }
  CHECK(one.taken == other.taken);
  return one.taken;
}
bool taken_by_itself(const QueuePairAttributes& options, const Forge& forge) {
  return taken_by_itself(options, forge, [](Conversation& talk) { talk.receive(1, 1); });
}

Forge send_of(std::size_t bytes, const std::function<void(Forged&)>& change = {}) {
  return [=](World& world, std::uint32_t number) {
    Forged slot = forged_send(world, number, bytes);
    if (change) change(slot);
    return slot;
  };
}

/// bytes: of the message.
Forge datagram_of(std::size_t bytes, const std::function<void(Forged&)>& change = {},
                  const std::function<void(DatagramBytes&)>& change_header = {}) {
  return [=](World& world, std::uint32_t number) {
    Forged slot = forged_send(world, number, sizeof(DatagramBytes) + bytes);
    slot.fields.opcode = static_cast<std::uint8_t>(Opcode::datagram);
    slot.fields.awaited = false;
    DatagramHeader said;
    said.queue_key = kKey;
    said.source_queue_pair = world.ends[0]->number;
    said.flow_label = 0x54321;
    said.traffic_class = 9;
    said.hop_limit = 3;
    DatagramBytes header = encode_datagram(said);
    if (change_header) change_header(header);
    std::memcpy(slot.payload.data(), &header, sizeof header);
    if (change) change(slot);
    return slot;
  };
}

void check_solicited(const QueuePairAttributes& options, const Forge& plain, const Forge& solicited) {
  const auto before = [](Conversation& talk) { talk.receive(1, 1); };
  const Outcome one = deliver(true, options, plain, before);
  const Outcome other = deliver(true, options, solicited, before);
  REQUIRE(one.taken);
  REQUIRE(other.taken);
  CHECK(one.talk->world.received[1] != other.talk->world.received[1]);
}

}  // namespace

TEST_CASE("of several messages that wait, a caller who answers has the first one, and the next with its next poll",
          "[fabric][adapter][express]") {
  const bool datagram = GENERATE(false, true);
  const auto bytes = static_cast<std::size_t>(GENERATE(0, 1, 4, 5, 36, 37, 64));
  const VirtualLane lane = GENERATE(VirtualLane::control, VirtualLane::data);
  INFO((datagram ? "datagrams" : "sends") << " of " << bytes << " bytes");
  QueuePairAttributes options = datagram ? datagrams() : QueuePairAttributes{};
  options.lane = lane;
  Conversation talk(options);
  talk.converse();
  talk.finish();
  std::vector<std::uint64_t> sent_to;  // by message, of the lane
  for (std::uint64_t id = 1; id <= 3; ++id) {
    talk.receive(1, id);
    talk.asking().fill(0, pattern(bytes, id));
    talk.send(0, id, bytes);
    sent_to.push_back(talk.world.links[0]->slots(lane)->sender.head());
  }
  const std::size_t head = datagram ? kRouteHeaderBytes : 0;
  CHECK(talk.turn(1) == 1);
  auto done = talk.take(1);
  REQUIRE(done.size() == 1);
  CHECK(talk.world.links[0]->slots(lane)->sender.refresh_tail() == sent_to[0]);
  CHECK((datagram || talk.world.links[0]->settled(lane) == sent_to[0]));
  talk.receive(0, 302);
  talk.send(1, 302, 8);
  talk.turn(1);
  for (const Completion& other : talk.take(1)) done.push_back(other);
  REQUIRE(done.size() == 3);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const Completion& one = done[id - 1];
    CHECK(one.id == id);
    CHECK(one.receive);
    CHECK(one.operation == Operation::send);
    CHECK(one.status == CompletionStatus::success);
    CHECK(one.bytes == head + bytes);
    CHECK(one.has_route == datagram);
    CHECK_FALSE(one.has_immediate);
    CHECK(talk.answering().holds(kReceived * (1 + id) + head, pattern(bytes, id)));
  }
  for (int i = 0; i < 4; ++i) talk.world.step();
  CHECK_FALSE(talk.asking().adapter.outstanding());
}

TEST_CASE("who does not answer any more has all messages that wait at once", "[fabric][adapter][express]") {
  Conversation talk;
  talk.converse();
  talk.finish();
  const auto ask = [&](std::uint64_t id) {
    talk.receive(1, id);
    talk.send(0, id, 64);
  };
  ask(1);
  CHECK(talk.turn(1) == 1);
  CHECK(talk.take(1).size() == 1);
  talk.turn(1);
  for (std::uint64_t id = 2; id <= 4; ++id) ask(id);
  talk.turn(1);
  CHECK(talk.take(1).size() == 3);
}

TEST_CASE("a question of several messages comes whole to who answers it", "[fabric][adapter][express]") {
  Conversation talk;
  talk.converse();
  talk.finish();
  std::size_t turns = 0;
  for (int question = 0; question < 4; ++question) {
    for (const std::uint64_t id : {1U, 2U}) {
      talk.receive(1, id);
      talk.send(0, id, 64);
    }
    turns = 0;
    for (std::size_t came = 0; came != 2; came += talk.take(1).size()) {
      talk.turn(1);
      REQUIRE(++turns <= 2);
    }
    talk.finish();
  }
  CHECK(turns == 1);
}

TEST_CASE("a message that comes by itself says what was settled before it", "[fabric][adapter][express]") {
  Conversation talk;
  talk.converse();
  const SlotSender& sender = talk.world.links[1]->slots(VirtualLane::data)->sender;
  REQUIRE(sender.settled() < sender.head());  // the last answer was taken, which this end has not looked at
  talk.receive(1, 1);
  talk.send(0, 1, 8);
  CHECK(talk.turn(1) == 1);
  CHECK(sender.settled() == sender.head());
}

TEST_CASE("a message that comes by itself is taken as any other, or refused as any other",
          "[fabric][adapter][express][hostile]") {
  const auto bytes = static_cast<std::size_t>(GENERATE(0, 30, 36, 37, 64, 96));
  INFO(bytes << " bytes");
  CHECK(taken_by_itself({}, send_of(bytes)));
  check_solicited({}, send_of(bytes), send_of(bytes, [](Forged& slot) { slot.fields.solicited = true; }));
  for (const HeaderCase& bad : kBadHeaders) {
    INFO(bad.name);
    CHECK_FALSE(taken_by_itself({}, send_of(bytes, [&](Forged& slot) { slot.change = bad.change; })));
  }
  for (const std::uint8_t bit : {slot_shape::kTwoLines, slot_shape::kDirect, slot_shape::kInPayloadRing,
                                 slot_shape::kAwaited, slot_shape::kSolicited}) {
    INFO("shape bit " << static_cast<unsigned>(bit));
    static_cast<void>(
        taken_by_itself({}, send_of(bytes, [&](Forged& slot) { slot.change = shape_bit("", bit).change; })));
  }
  if (bytes > kSlotBodyInFirst) {
    INFO("no second line");
    CHECK_FALSE(taken_by_itself({}, send_of(bytes, [](Forged& slot) { slot.second_line = false; })));
    INFO("more bytes than its one line");
    CHECK_FALSE(taken_by_itself({}, send_of(30, [&](Forged& slot) {
                                  slot.change = [&](SlotHeader& header) {
                                    header.payload_bytes = static_cast<std::uint32_t>(bytes);
                                  };
                                })));
  }
}

TEST_CASE("a datagram that comes by itself is taken as any other, or dropped as any other",
          "[fabric][adapter][express][hostile][datagram]") {
  const auto bytes = static_cast<std::size_t>(GENERATE(0, 4, 5, 64));
  INFO(bytes << " bytes");
  CHECK(taken_by_itself(datagrams(), datagram_of(bytes)));
  check_solicited(datagrams(), datagram_of(bytes),
                  datagram_of(bytes, [](Forged& slot) { slot.fields.solicited = true; }));
  for (const HeaderCase& bad : kBadHeaders) {
    INFO(bad.name);
    static_cast<void>(
        taken_by_itself(datagrams(), datagram_of(bytes, [&](Forged& slot) { slot.change = bad.change; })));
  }
  const auto taken_with = [&](const auto& change) {
    return taken_by_itself(datagrams(), datagram_of(bytes, {}, change));
  };
  CHECK_FALSE(taken_with([](DatagramBytes& header) { header.queue_key = kKey + 1; }));
  CHECK_FALSE(taken_with([](DatagramBytes& header) { header.reserved[1] = 1; }));
  CHECK_FALSE(taken_with([](DatagramBytes& header) { header.source_queue_pair = 0; }));
  CHECK_FALSE(taken_with([](DatagramBytes& header) { header.group.bytes[3] = 1; }));
  static_cast<void>(taken_with([](DatagramBytes& header) { header.group = group_of(1); }));
  INFO("shorter than its header");
  CHECK_FALSE(taken_by_itself(datagrams(), datagram_of(0, [](Forged& slot) { slot.payload.resize(31); })));
}

TEST_CASE("a message that comes by itself needs a receive that takes it, in memory that is there",
          "[fabric][adapter][express]") {
  const bool datagram = GENERATE(false, true);
  const QueuePairAttributes options = datagram ? datagrams() : QueuePairAttributes{};
  const std::size_t head = datagram ? kRouteHeaderBytes : 0;
  const Forge forge = datagram ? datagram_of(64) : send_of(64);
  INFO((datagram ? "datagrams" : "sends"));
  const auto posts = [](const auto& post_receives) {
    return [=](Conversation& talk) { post_receives(talk.answering()); };
  };
  const auto to = [&](std::size_t bytes) {
    return posts([bytes](Endpoint& end) { REQUIRE(end.receive(9, kReceived, bytes) == Status::ok); });
  };
  CHECK(taken_by_itself(options, forge, to(head + 64)));
  CHECK_FALSE(taken_by_itself(options, forge, to(head + 63)));
  CHECK_FALSE(taken_by_itself(options, forge, posts([](Endpoint&) {})));
  CHECK(taken_by_itself(options, forge, posts([&](Endpoint& end) {
                          const LocalSegment rest = end.segment(2 * kReceived, 100);
                          const ReceiveRequest parts{9, end.segment(kReceived, head + 10), std::span(&rest, 1)};
                          REQUIRE(end.adapter.post_receive(end.number, parts) == Status::ok);
                        })));
  CHECK_FALSE(taken_by_itself(options, forge, posts([&](Endpoint& end) {
                                REQUIRE(end.receive(9, kReceived, 200) == Status::ok);
                                REQUIRE(end.adapter.deregister(end.tag) == Status::ok);
                              })));
}

TEST_CASE("a message that comes by itself is refused where its receive's memory is gone",
          "[fabric][adapter][express][gone]") {
  const bool datagram = GENERATE(false, true);
  const bool by_itself = GENERATE(false, true);
  INFO((datagram ? "datagrams" : "sends"));
  const MappedMemory mapped(page_bytes());
  Conversation talk(datagram ? datagrams() : QueuePairAttributes{});
  Endpoint& end = talk.answering();
  const Stag tag = end.adapter.register_memory(end.domain, {mapped.data(), mapped.size()}, kAllRights).value();
  talk.inbox = LocalSegment{mapped.data(), 200, tag};
  talk.converse();
  talk.finish();
  talk.receive(1, 1);
  mapped.protect(PROT_NONE);
  talk.send(0, 1, 64);
  talk.take_message(by_itself);
  for (int i = 0; i < 4; ++i) talk.world.step();
  CHECK(talk.world.received[1].find("\n1 success") == std::string::npos);
  CHECK(end.adapter.counters().dropped_unacknowledged == (datagram ? 1 : 0));
  CHECK(end.adapter.counters().terminates_sent == (datagram ? 0 : 1));
  std::array<AsyncEvent, 8> events;
  const auto reported = std::span(events).first(end.adapter.poll_events(events));
  CHECK(std::ranges::count_if(reported, [&](const AsyncEvent& event) {
          return event.kind == AsyncEventKind::memory_gone && event.tag == tag;
        }) == 1);
}

TEST_CASE("what the peer settled before a message completes before it, where a turn looks at that",
          "[fabric][adapter][express]") {
  Conversation talk;
  talk.converse();
  talk.receive(0, 301);
  talk.send(1, 300, 8);
  for (std::uint64_t i = 0; i <= TailHabit::kPolls; ++i) talk.turn(1);
  static_cast<void>(talk.answering().take());
  for (int i = 0; i < 3; ++i) talk.turn(0);  // it is taken, and its tail line says so
  talk.receive(1, 1);
  talk.send(0, 1, 8);
  talk.turn(1);
  const auto done = talk.answering().take();
  REQUIRE(done.size() == 2);
  CHECK(done[0].id == 300);
  CHECK(done[1].id == 1);
}

TEST_CASE("a message behind one that was refused is not settled before the refusal has left",
          "[fabric][adapter][express][consumption]") {
  Conversation talk;
  talk.converse();
  talk.finish();
  FabricLink& own = *talk.world.links[1];
  const auto fill_lane = [&own] {
    Cell filler;
    filler.opcode = Opcode::not_taken;
    filler.destination_queue_pair = QpNumber{99};
    ClaimedPayload to;
    while (own.claim(VirtualLane::data, filler, 0, to)) {
      std::uint32_t packet_crc = kPacketCrcStart;
      static_cast<void>(own.release(VirtualLane::data, filler, packet_crc));
    }
  };
  fill_lane();
  Forged unknown = forged_send(talk.world, talk.next_packet(), 8);
  unknown.fields.queue_pair = QpNumber{0x7f'ffff};
  put(talk.world, unknown);
  talk.turn(1);
  const AdapterCounters& counters = talk.answering().adapter.counters();
  REQUIRE(counters.dropped_unknown_queue_pair == 1);
  REQUIRE(counters.not_taken_sent == 0);
  for (int i = 0; i < 100; ++i) talk.turn(0);  // there is room again
  talk.receive(0, 302);
  talk.send(1, 303, 8);
  talk.receive(1, 1);
  put(talk.world, forged_send(talk.world, talk.next_packet(), 8));
  talk.turn(1);
  CHECK(talk.take(1).size() == 1);
  CHECK(counters.not_taken_sent == 1);
}

TEST_CASE("of several answers to reads that wait, a caller who reads on has the first one, and the next soon after",
          "[fabric][adapter][express][read]") {
  const auto bytes = static_cast<std::size_t>(GENERATE(1, 8, 64, 97, 1500));
  Conversation talk;
  Endpoint& reader = talk.asking();
  talk.read_on(0, bytes);
  for (std::uint64_t id = 5; id <= 7; ++id) {
    talk.post_read(0, id, bytes);
    talk.rest(0);
  }
  talk.turn(1);
  CHECK(talk.turn(0) == 1);
  auto done = reader.take();
  REQUIRE(done.size() == 1);
  talk.turn(0);
  for (const Completion& other : reader.take()) done.push_back(other);
  REQUIRE(done.size() == 3);
  for (std::uint64_t id = 5; id <= 7; ++id) {
    CHECK(done[id - 5].id == id);
    CHECK(done[id - 5].status == CompletionStatus::success);
    const auto from = std::span(talk.world.own[1]).subspan(id * 100, bytes);
    CHECK(reader.holds(kReceived * id, std::vector(from.begin(), from.end())));
  }
  CHECK_FALSE(reader.adapter.outstanding());
}

TEST_CASE("an answer that comes by itself is taken as any other, or refused as any other",
          "[fabric][adapter][express][hostile][read]") {
  constexpr std::uint32_t kBytes = 40;
  constexpr std::uint32_t kFirstPacket = 9;  // of the second end, which reads
  struct End {
    std::vector<std::byte> sink;
    std::vector<Completion> done;
    std::vector<std::uint64_t> counts;
  };
  const auto answered = [&](bool by_itself, const std::function<void(Forged&)>& change) {
    Conversation talk;
    Endpoint& reader = talk.answering();
    talk.read_on(1, kBytes);
    talk.post_read(1, 5, kBytes);
    talk.rest(1);
    Forged slot = forged_send(talk.world, kFirstPacket + 4, kBytes);
    slot.fields.opcode = static_cast<std::uint8_t>(Opcode::read_response_only);
    slot.fields.awaited = false;
    change(slot);
    put(talk.world, slot);
    talk.take_message(by_itself);
    for (int i = 0; i < 4; ++i) reader.adapter.poll(talk.world.now);
    return End{reader.buffer, reader.take(), talk.world.counts(1)};
  };
  const auto taken_with = [&](const std::function<void(Forged&)>& change) {
    const End one = answered(true, change);
    const End other = answered(false, change);
    CHECK(one.counts == other.counts);
    const bool same_bytes = one.sink == other.sink;
    CHECK(same_bytes);
    REQUIRE(one.done.size() == other.done.size());
    for (std::size_t i = 0; i < one.done.size(); ++i) {
      CHECK(one.done[i].id == other.done[i].id);
      CHECK(one.done[i].status == other.done[i].status);
    }
    return one.done.size() == 1 && one.done[0].status == CompletionStatus::success;
  };
  CHECK(taken_with([](Forged&) {}));
  CHECK_FALSE(taken_with([](Forged& slot) { slot.payload.resize(kBytes - 1); }));
  CHECK_FALSE(taken_with([](Forged& slot) { ++slot.fields.packet_sequence; }));
  for (const HeaderCase& bad : kBadHeaders) {
    INFO(bad.name);
    CHECK_FALSE(taken_with([&](Forged& slot) { slot.change = bad.change; }));
  }
  for (const std::uint8_t bit : {slot_shape::kTwoLines, slot_shape::kDirect, slot_shape::kInPayloadRing,
                                 slot_shape::kAwaited, slot_shape::kSolicited}) {
    INFO("shape bit " << static_cast<unsigned>(bit));
    static_cast<void>(taken_with([&](Forged& slot) { slot.change = shape_bit("", bit).change; }));
  }
}

TEST_CASE("an answer that comes by itself says what was settled before it", "[fabric][adapter][express][read]") {
  Conversation talk;
  talk.read_on(0, 8);
  talk.receive(1, 1);
  talk.send(0, 9, 8);
  talk.turn(0);
  talk.turn(1);
  const SlotSender& sender = talk.world.links[0]->slots(VirtualLane::data)->sender;
  const std::uint64_t sent = sender.head();
  REQUIRE(sender.settled() < sent);
  talk.post_read(0, 5, 8);
  talk.turn(1);
  CHECK(talk.turn(0) == 1);
  CHECK(sender.settled() >= sent);
}

TEST_CASE("a fenced send that is posted behind a read waits for its answer, also one that comes by itself",
          "[fabric][adapter][express][read]") {
  Conversation talk;
  Endpoint& reader = talk.asking();
  talk.read_on(0, 8);
  talk.receive(1, 1);
  talk.post_read(0, 5, 8);
  talk.rest(0);
  WorkRequest fenced = send_request(6, reader.segment(0, 8));
  fenced.fence = true;
  REQUIRE(post(reader, fenced) == Status::ok);
  const std::uint64_t before = reader.adapter.counters().cells_sent;
  talk.rest(0);
  CHECK(reader.adapter.counters().cells_sent == before);
  talk.turn(1);
  talk.turn(0);
  CHECK(reader.adapter.counters().cells_sent == before + 1);
}

TEST_CASE("a datagram for a connected queue pair is dropped, also one that comes by itself",
          "[fabric][adapter][express][hostile][datagram]") {
  QpNumber connected{};
  const auto connect = [&](Conversation& talk) {
    Endpoint& end = talk.answering();
    QueuePairAttributes attributes;
    attributes.queue_key = kKey;
    const QpNumber number = end.make_queue_pair(attributes);
    REQUIRE(end.adapter.connect(number, {talk.asking().number, 5, 6}) == Status::ok);
    const ReceiveRequest receive{7, end.segment(0, kReceiveBytes)};
    REQUIRE(end.adapter.post_receive(number, receive) == Status::ok);
    Forged message = forged_send(talk.world, 6, 8);  // so that it remembers its memory
    message.fields.queue_pair = number;
    put(talk.world, message);
    talk.world.step();
    REQUIRE(end.adapter.post_receive(number, receive) == Status::ok);
    for (int i = 0; i < 3; ++i) talk.exchange();
    talk.finish();
    connected = number;
  };
  const Forge forge = [&](World& world, std::uint32_t number) {
    Forged slot = datagram_of(8)(world, number);
    slot.fields.queue_pair = connected;
    return slot;
  };
  CHECK_FALSE(taken_by_itself(datagrams(), forge, connect));
}

}  // namespace splitnic::fabric::test::adapter_express_one_test
