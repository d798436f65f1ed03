#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "tests/unit/fabric/link_fixtures.h"

// What every link promises, one test for all of them; a link's properties say where the promises differ.
namespace splitnic::fabric::link_conformance_test {
namespace {

constexpr VirtualLane kControl = VirtualLane::control;
constexpr VirtualLane kData = VirtualLane::data;
constexpr int kLong = 500'000;  // steps of 10 us

template <class Links, class Condition>
void step_until(Links& links, Condition&& condition, int limit = kLong) {
  for (int i = 0; !condition(); ++i) {
    REQUIRE(i < limit);
    links.step();
  }
}

template <class Links>
void come_up(Links& links) {
  step_until(links, [&links] { return links.end(0).up() && links.end(1).up(); });
  // Until what is left of the handshake has gone.
  for (int i = 0; i < 100; ++i) links.step();
  REQUIRE((links.end(0).up() && links.end(1).up()));
}

/// A message of one cell; its packet sequence number says which.
struct Message {
  Cell cell{};
  std::vector<std::byte> payload{};
};

Message message_of(std::uint32_t number, std::size_t payload_bytes, Opcode opcode = Opcode::send_only) {
  Message message;
  Cell& cell = message.cell;
  cell.opcode = opcode;
  cell.destination_queue_pair = QpNumber{0x123456};
  cell.source_queue_pair = QpNumber{0x654321};
  cell.packet_sequence = number;
  if (traits(opcode).rdma_header) {
    cell.address = 0x1000'0000'0000 + number;
    cell.tag = Stag{0xabcdef00U + (number & 0xffU)};
    cell.message_bytes = static_cast<std::uint32_t>(payload_bytes);
  }
  if (traits(opcode).immediate) cell.immediate = ~number;
  SeededRandom random(number);
  message.payload.resize(payload_bytes);
  for (auto& byte : message.payload) byte = static_cast<std::byte>(random.next());
  return message;
}

bool send(CellLink& link, VirtualLane lane, const Message& message) {
  ClaimedPayload to;
  if (!link.claim(lane, message.cell, message.payload.size(), to)) return false;
  REQUIRE(to.size() == message.payload.size());
  std::span<const std::byte> from = message.payload;
  while (!from.empty()) {
    const auto piece = to.next(from.size());
    REQUIRE_FALSE(piece.empty());
    std::ranges::copy(from.first(piece.size()), piece.begin());
    from = from.subspan(piece.size());
  }
  std::uint32_t packet_crc = kPacketCrcStart;
  link.release(lane, message.cell, packet_crc);
  return true;
}

/// The oldest cell by value, consumed; its payload copied out.
std::optional<Message> receive(CellLink& link, VirtualLane lane) {
  const ReceivedCell* front = link.front(lane);
  if (front == nullptr) return std::nullopt;
  REQUIRE(link.front(lane) == front);  // until pop()
  REQUIRE_FALSE(front->fault.has_value());
  Message message;
  message.cell = front->cell;
  message.payload.resize(front->payload.size());
  front->payload.copy_out(message.payload);
  if (link.properties().corrupts) {
    REQUIRE_FALSE(front->bytes.empty());
    if (traits(front->cell.opcode).last) {
      CHECK(extend_packet_crc(kPacketCrcStart, front->cell, front->bytes) == front->cell.packet_crc);
    }
  }
  link.pop(lane);
  return message;
}

void check_same(const Message& received, const Message& sent) {
  CHECK(received.cell.opcode == sent.cell.opcode);
  CHECK(received.cell.destination_queue_pair == sent.cell.destination_queue_pair);
  CHECK(received.cell.packet_sequence == sent.cell.packet_sequence);
  CHECK(received.cell.address == sent.cell.address);
  CHECK(received.cell.tag == sent.cell.tag);
  CHECK(received.cell.message_bytes == sent.cell.message_bytes);
  CHECK(received.cell.immediate == sent.cell.immediate);
  CHECK(received.payload == sent.payload);
}

/// What has been sent goes, and what has been consumed is given back.
void finish_burst(CellLink& link) {
  for (const VirtualLane lane : {kControl, kData}) link.return_room(lane, true);
  link.notify();
}

bool readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

}  // namespace

TEMPLATE_TEST_CASE("a link comes up at both ends, and each end knows both addresses", "[fabric][link]",
                   SPLITNIC_EVERY_LINK) {
  TestType links;
  CHECK_FALSE(links.end(0).up());
  come_up(links);
  for (std::size_t i = 0; i < 2; ++i) {
    CellLink& end = links.end(i);
    CHECK(end.port_address() == test::kLinkPorts[i]);
    CHECK(end.peer_port_address() == test::kLinkPorts[1 - i]);
    CHECK(end.incarnation() >= 1);
    for (const VirtualLane lane : {kControl, kData}) {
      CHECK(end.max_payload(lane) >= kMinCellPayload);
      CHECK(end.max_payload(lane) <= kMaxCellPayload);
      CHECK(end.front(lane) == nullptr);
      CHECK_FALSE(end.wants_room(lane));
    }
  }
  const std::uint64_t incarnation = links.end(0).incarnation();
  for (int i = 0; i < 1000; ++i) links.step();
  CHECK(links.end(0).incarnation() == incarnation);
}

TEMPLATE_TEST_CASE("cells arrive as they were sent, and exactly once and in order where the link says so",
                   "[fabric][link]", SPLITNIC_EVERY_LINK) {
  TestType links;
  come_up(links);
  CellLink& from = links.end(0);
  CellLink& to = links.end(1);
  SeededRandom random(5);
  std::map<std::uint32_t, Message> sent;
  std::set<std::uint32_t> seen;
  std::uint32_t next = 0;
  std::uint32_t expected = 0;
  const std::array opcodes{Opcode::send_only, Opcode::write_only, Opcode::write_only_immediate, Opcode::read_request};
  const auto take = [&] {
    while (const auto message = receive(to, kData)) {
      const std::uint32_t number = message->cell.packet_sequence;
      REQUIRE(sent.contains(number));
      check_same(*message, sent[number]);
      if (to.properties().lossless) REQUIRE(number == expected++);
      seen.insert(number);
    }
    finish_burst(to);
  };
  for (int burst = 0; burst < 300; ++burst) {
    for (auto count = random.below(6); count > 0; --count) {
      const Opcode opcode = opcodes[random.below(opcodes.size())];
      const bool carries = traits(opcode).carries_message();
      const auto bytes = carries ? static_cast<std::size_t>(random.below(from.max_payload(kData) + 1)) : 0;
      const Message message = message_of(next, bytes, opcode);
      if (!send(from, kData, message)) break;
      sent.emplace(next++, message);
    }
    from.notify();
    links.step();
    if (random.below(2) == 0) take();
  }
  for (int i = 0; i < 1000; ++i) {
    links.step();
    take();
  }
  CHECK(next > 150);
  if (from.properties().lossless) {
    CHECK(seen.size() == next);
  } else {
    CHECK(seen.size() > next / 2);
  }
  CHECK(links.end(0).incarnation() == 1);
}

TEMPLATE_TEST_CASE("a cell with the longest payload of its lane arrives", "[fabric][link]", SPLITNIC_EVERY_LINK) {
  TestType links;
  come_up(links);
  for (const VirtualLane lane : {kControl, kData}) {
    const Message message = message_of(1, links.end(0).max_payload(lane));
    std::optional<Message> received;
    step_until(links, [&] {
      if (links.end(0).drained(lane)) static_cast<void>(send(links.end(0), lane, message));  // again: it may get lost
      links.end(0).notify();
      received = receive(links.end(1), lane);
      finish_burst(links.end(1));
      return received.has_value();
    });
    check_same(*received, message);
  }
}

TEMPLATE_TEST_CASE("a claim that is not released sends nothing", "[fabric][link]", SPLITNIC_EVERY_LINK) {
  TestType links;
  come_up(links);
  ClaimedPayload to;
  const Message forgotten = message_of(1, 100);
  REQUIRE(links.end(0).claim(kData, forgotten.cell, 100, to));
  std::ranges::fill(to.next(100), std::byte{0xee});
  links.end(0).notify();
  for (int i = 0; i < 200; ++i) links.step();
  CHECK(links.end(1).front(kData) == nullptr);
  CHECK(links.end(0).drained(kData));
  const Message message = message_of(2, 50);
  std::optional<Message> received;
  step_until(links, [&] {
    REQUIRE(links.end(0).claim(kData, forgotten.cell, 100, to));  // replaced by the claim of the message
    if (links.end(0).drained(kData)) static_cast<void>(send(links.end(0), kData, message));
    links.end(0).notify();
    received = receive(links.end(1), kData);
    finish_burst(links.end(1));
    return received.has_value();
  });
  check_same(*received, message);
}

TEMPLATE_TEST_CASE("a lane that is full refuses, the other lane goes on, and consumption makes room again",
                   "[fabric][link]", SPLITNIC_EVERY_LINK) {
  TestType links;
  come_up(links);
  CellLink& from = links.end(0);
  CellLink& to = links.end(1);
  std::uint32_t sent = 0;
  // Nothing is consumed, so a lane is full for good, also where losses free a little of it.
  int refused = 0;
  for (int i = 0; i < 20'000 && refused < 2000; ++i) {
    refused = send(from, kData, message_of(sent, 200)) ? 0 : refused + 1;
    if (refused == 0) ++sent;
    from.notify();
    links.step();
  }
  REQUIRE(refused == 2000);
  CHECK(sent >= 10);
  CHECK(from.wants_room(kData));
  CHECK_FALSE(from.wants_room(kControl));
  // Control goes on.
  std::optional<Message> received;
  step_until(links, [&] {
    if (from.drained(kControl)) static_cast<void>(send(from, kControl, message_of(7, 32)));
    from.notify();
    received = receive(to, kControl);
    to.return_room(kControl, true);
    to.notify();
    return received.has_value();
  });
  check_same(*received, message_of(7, 32));
  CHECK(from.wants_room(kData));

  std::uint32_t taken = 0;
  while (receive(to, kData)) ++taken;
  if (to.properties().lossless) CHECK(taken == sent);
  finish_burst(to);
  step_until(links, [&] { return send(from, kData, message_of(sent, 200)); });
  CHECK_FALSE(from.wants_room(kData));
}

TEMPLATE_TEST_CASE("a link says when what was released has gone, or was consumed where nothing gets lost",
                   "[fabric][link]", SPLITNIC_EVERY_LINK) {
  TestType links;
  come_up(links);
  CellLink& from = links.end(0);
  CellLink& to = links.end(1);
  CHECK(from.drained(kData));
  REQUIRE(send(from, kData, message_of(1, 100)));
  CHECK_FALSE(from.drained(kData));
  from.notify();
  for (int i = 0; i < 200; ++i) links.step();
  CHECK(from.drained(kData) == !from.properties().lossless);
  while (receive(to, kData)) continue;
  finish_burst(to);
  step_until(links, [&] { return from.drained(kData); });
}

TEMPLATE_TEST_CASE("an end that starts anew ends the epoch of both, and nothing of it arrives later", "[fabric][link]",
                   SPLITNIC_EVERY_LINK) {
  for (std::size_t who = 0; who < 2; ++who) {
    TestType links;
    come_up(links);
    const std::array before{links.end(0).incarnation(), links.end(1).incarnation()};
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::uint32_t n = 0; n < 5; ++n) REQUIRE(send(links.end(i), kData, message_of(n, 64)));
      links.end(i).notify();
      REQUIRE(send(links.end(i), kControl, message_of(9, 64)));  // not flushed yet
    }
    for (int steps = static_cast<int>(who); steps > 0; --steps) links.step();  // some have arrived, or none
    links.restart(who);
    CHECK_FALSE(links.end(who).up());
    step_until(links, [&] {
      return links.end(0).up() && links.end(1).up() && links.end(0).incarnation() != before[0] &&
             links.end(1).incarnation() != before[1];
    });
    for (int i = 0; i < 1000; ++i) links.step();
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(links.end(i).front(kData) == nullptr);
      CHECK(links.end(i).front(kControl) == nullptr);
    }
    // The new epoch carries cells.
    std::optional<Message> received;
    step_until(links, [&] {
      if (links.end(0).drained(kData)) static_cast<void>(send(links.end(0), kData, message_of(77, 64)));
      links.end(0).notify();
      received = receive(links.end(1), kData);
      finish_burst(links.end(1));
      return received.has_value();
    });
    check_same(*received, message_of(77, 64));
  }
}

TEMPLATE_TEST_CASE("an end sleeps only while nothing waits, and what comes wakes it", "[fabric][link]",
                   SPLITNIC_EVERY_LINK) {
  TestType links;
  come_up(links);
  CellLink& sleeper = links.end(1);
  const auto arrive = [&links](std::uint32_t number) {
    step_until(links, [&] {
      if (links.end(0).drained(kData)) static_cast<void>(send(links.end(0), kData, message_of(number, 64)));
      links.end(0).notify();
      links.step();
      return links.end(1).front(kData) != nullptr;
    });
  };
  arrive(1);
  CHECK_FALSE(sleeper.prepare_sleep());
  while (receive(sleeper, kData)) continue;
  finish_burst(sleeper);
  for (int i = 0; i < 200; ++i) links.step();
  while (receive(sleeper, kData)) continue;
  REQUIRE(sleeper.prepare_sleep());
  CHECK(sleeper.next_deadline(links.now(), false) > links.now());
  const int descriptor = sleeper.descriptor();
  if (descriptor >= 0) {
    CHECK_FALSE(readable(descriptor));
    REQUIRE(send(links.end(0), kData, message_of(2, 64)));
    links.end(0).notify();
    CHECK(readable(descriptor));
    sleeper.disarm();
    step_until(links, [&] { return sleeper.front(kData) != nullptr; });
    while (receive(sleeper, kData)) continue;
    finish_burst(sleeper);
    REQUIRE(sleeper.prepare_sleep());
    CHECK_FALSE(readable(descriptor));
  }
  sleeper.disarm();
  // A sender that waits for room sleeps until there is some.
  CellLink& sender = links.end(0);
  int refused = 0;
  for (std::uint32_t n = 0; refused < 2000;) {
    refused = send(sender, kData, message_of(n++, 200)) ? 0 : refused + 1;
    sender.notify();
    links.step();
  }
  REQUIRE(sender.prepare_sleep());
  CHECK(sender.wants_room(kData));
  while (receive(sleeper, kData)) continue;
  finish_burst(sleeper);
  if (sender.descriptor() >= 0) CHECK(readable(sender.descriptor()));
  sender.disarm();
  step_until(links, [&] { return send(sender, kData, message_of(1, 200)); });
}

TEMPLATE_TEST_CASE("an end that is told of room sleeps again, also if nobody there wants it any more", "[fabric][link]",
                   SPLITNIC_EVERY_LINK) {
  TestType links;
  come_up(links);
  CellLink& sender = links.end(0);
  CellLink& receiver = links.end(1);
  std::uint32_t number = 0;
  for (int refused = 0; refused < 2000;) {
    refused = send(sender, kData, message_of(number++, 200)) ? 0 : refused + 1;
    sender.notify();
    links.step();
  }
  REQUIRE(sender.wants_room(kData));
  const auto may_sleep = [&] {
    const bool armed = sender.prepare_sleep();
    sender.disarm();
    return armed;
  };
  step_until(links, [&] {
    while (receive(receiver, kData)) continue;
    finish_burst(receiver);
    return !may_sleep();
  });
  // The queue pair that was refused has ended.
  constexpr int kSoon = 10'000;
  step_until(links, may_sleep, kSoon);
  CHECK(may_sleep());
  step_until(links, [&] { return send(sender, kData, message_of(number, 200)); });
}

TEMPLATE_TEST_CASE("what was stored in the peer's memory is there when the cell comes", "[fabric][link]",
                   SPLITNIC_EVERY_LINK) {
  TestType links;
  CHECK((links.end(0).direct() == nullptr) == (links.end(1).direct() == nullptr));
  come_up(links);
  DirectAccess* direct = links.end(0).direct();
  if (direct == nullptr) return;
  CHECK(links.end(0).direct() == direct);
  REQUIRE(direct->peer_buffers.bytes >= 4096);
  CHECK(direct->peer_buffers.bytes == links.end(1).direct()->buffers.bytes);
  CHECK(direct->tag_out == links.end(1).direct()->tag_in);
  for (std::uint32_t n = 0; n < 50; ++n) {
    const std::size_t at = direct->peer_buffers.offset + 64U * n;
    const Message message = message_of(n, 200);
    direct->bridge.peer_window().write(at, message.payload);
    REQUIRE(send(links.end(0), kData, message));
    links.end(0).notify();
    step_until(links, [&] { return links.end(1).front(kData) != nullptr; });
    std::vector<std::byte> stored(200);
    links.end(1).direct()->bridge.local_memory().copy_out(links.end(1).direct()->buffers.offset + 64U * n, stored);
    CHECK(stored == message.payload);
    while (receive(links.end(1), kData)) continue;
    finish_burst(links.end(1));
  }
}

TEST_CASE("how payload is stored is learned where the peer is on another core and claims are its memory",
          "[fabric][link]") {
  const auto learns = [](auto& links) {
    come_up(links);
    ClaimedPayload to;
    REQUIRE(links.end(0).claim(kData, message_of(1, 2000).cell, 2000, to));
    return to.stores() != nullptr && to.stores()->chooses();
  };
  test::ShmLinks shm;
  CHECK(learns(shm));
  test::SimLinks simulated;  // claims are staged
  CHECK_FALSE(learns(simulated));
  test::LoopbackLinks loopback;
  CHECK_FALSE(learns(loopback));
}

}  // namespace splitnic::fabric::link_conformance_test
