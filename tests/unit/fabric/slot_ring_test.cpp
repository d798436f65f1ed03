#include "fabric/link/slot_receiver.h"
#include "fabric/link/slot_sender.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <thread>

#include "fabric/memory/guarded_copy.h"
#include "tests/unit/fabric/mapped_memory.h"
#include "tests/unit/fabric/slot_ring_fixture.h"

namespace splitnic::fabric::test::slot_ring_test {

TEST_CASE("a slot's bytes are as the protocol says", "[fabric][slot]") {
  TestRing ring;
  SlotMessage message;
  message.fields = {.opcode = 0x0b,
                    .awaited = true,
                    .solicited = true,
                    .direct = false,
                    .cell_sequence = 0x0102,
                    .queue_pair = QpNumber{0xabcdef},
                    .packet_sequence = 0x11223344,
                    .settled = 0x55667788};
  message.extension = Bytes(20, std::byte{0xee});
  message.payload = Bytes(17, std::byte{0xdd});
  REQUIRE(send(ring.sender, message));
  std::array<std::uint8_t, 128> lines{};
  ring.memory().copy_out(64, std::as_writable_bytes(std::span(lines)));
  std::array<std::uint8_t, 128> expected{
      0x78, 0x56, 0x34, 0x92,                          // sequence: the seed with bit 31
      17,   0,    0,    0,    0,    0,    0,    0,     // payload bytes, payload at
      0x88, 0x77, 0x66, 0x55,                          // settled
      0x0d, 0x0b, 0x02, 0x01,                          // shape: two lines, awaited, solicited; opcode; cell sequence
      0xef, 0xcd, 0xab, 0,    0x44, 0x33, 0x22, 0x11,  // queue pair, packet sequence
  };
  std::fill_n(expected.begin() + 28, 20, std::uint8_t{0xee});
  std::fill_n(expected.begin() + 48, 16, std::uint8_t{0xdd});
  expected[64] = 0x79;
  expected[65] = 0x56;
  expected[66] = 0x34;
  expected[67] = 0x92;
  expected[68] = 0xdd;
  CHECK(lines == expected);
  REQUIRE(ring.receiver.front() != nullptr);
  ring.receiver.pop();
  ring.receiver.settle();
  REQUIRE(send(ring.sender, message));
  REQUIRE(ring.receiver.front() != nullptr);
  ring.receiver.pop();
  ring.receiver.push_tail(3);
  std::array<std::uint8_t, 24> tail{};
  ring.bridges.end(0).local_memory().copy_out(0, std::as_writable_bytes(std::span(tail)));
  CHECK(tail == std::array<std::uint8_t, 24>{3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4});
}

TEST_CASE("a message of every length passes, whatever its extended header, at every place of the rings",
          "[fabric][slot]") {
  SeededRandom random(1);
  TestRing ring;
  REQUIRE(ring.sender.max_payload_bytes() == 8 * 64);
  for (const std::size_t extension : {0U, 1U, 8U, 20U, 35U, 36U}) {
    for (std::size_t bytes = 0; bytes <= ring.sender.max_payload_bytes(); ++bytes) {
      const SlotMessage message = draw(random, extension, bytes);
      INFO(extension << " + " << bytes << " bytes");
      REQUIRE(send(ring.sender, message));
      check_front(ring.receiver, message);
      REQUIRE(ring.receiver.front() == nullptr);
      ring.receiver.push_tail(0);
    }
  }
  CHECK(ring.sender.drained());
  CHECK_FALSE(ring.sender.faulty());
}

TEST_CASE("a slot takes one line up to 36 bytes of body, two up to 96, and the payload ring beyond", "[fabric][slot]") {
  for (const std::size_t extension : {0U, 16U, 36U}) {
    CHECK(slot_layout(extension, 36 - extension) ==
          SlotLayout{.payload_bytes = static_cast<std::uint32_t>(36 - extension)});
    CHECK(slot_layout(extension, 37 - extension).two_lines);
    CHECK(slot_layout(extension, 96 - extension).two_lines);
    CHECK_FALSE(slot_layout(extension, 96 - extension).in_payload_ring);
    CHECK(slot_layout(extension, 97 - extension).in_payload_ring);
    CHECK_FALSE(slot_layout(extension, 97 - extension).two_lines);
  }
}

TEST_CASE("all lines of the ring can be under way, and not one more", "[fabric][slot]") {
  TestRing ring;
  SeededRandom random(2);
  const SlotMessage one = draw(random, 0, 36);
  const SlotMessage two = draw(random, 0, 37);
  for (int i = 0; i < 15; ++i) REQUIRE(send(ring.sender, one));
  CHECK_FALSE(send(ring.sender, two));
  CHECK(ring.sender.wants_room());
  REQUIRE(send(ring.sender, one));
  CHECK(ring.sender.wants_room());  // for the two lines
  CHECK_FALSE(send(ring.sender, one));
  for (int i = 0; i < 3; ++i) check_front(ring.receiver, one);
  CHECK_FALSE(ring.receiver.much_consumed());
  check_front(ring.receiver, one);
  CHECK(ring.receiver.much_consumed());
  CHECK_FALSE(send(ring.sender, one));
  ring.receiver.push_tail(0);
  CHECK_FALSE(ring.receiver.much_consumed());
  REQUIRE(send(ring.sender, two));
  REQUIRE(send(ring.sender, two));
  CHECK_FALSE(send(ring.sender, one));
  CHECK_FALSE(ring.sender.drained());
}

TEST_CASE("a sender wants room until what was refused has found it, although something shorter passes",
          "[fabric][slot]") {
  TestRing ring;
  SeededRandom random(3);
  const SlotMessage quarter = draw(random, 0, ring.sender.max_payload_bytes());
  while (send(ring.sender, quarter)) {
  }
  CHECK(ring.sender.wants_room());
  REQUIRE(send(ring.sender, draw(random, 0, 10)));
  CHECK(ring.sender.wants_room());
  check_front(ring.receiver, quarter);
  ring.receiver.push_tail(0);
  REQUIRE(send(ring.sender, quarter));
  CHECK_FALSE(ring.sender.wants_room());
}

TEST_CASE("payload room comes back with the slots, skipped ends with it", "[fabric][slot]") {
  TestRing ring;  // 32 lines of payload
  SeededRandom random(3);
  const SlotMessage quarter = draw(random, 0, 8 * 64);
  const SlotMessage seven = draw(random, 0, 7 * 64);
  for (int i = 0; i < 4; ++i) REQUIRE(send(ring.sender, i == 0 ? seven : quarter));
  // 31 lines are in use: a message of one line more fits, one of two does not, though no slot is missing.
  CHECK_FALSE(send(ring.sender, draw(random, 0, 2 * 64)));
  check_front(ring.receiver, seven);
  ring.receiver.push_tail(0);
  // Eight lines are free, but not in one piece: the last one of the ring is skipped, and then seven are.
  CHECK_FALSE(send(ring.sender, quarter));
  REQUIRE(send(ring.sender, seven));
  for (int i = 0; i < 3; ++i) check_front(ring.receiver, quarter);
  ring.receiver.push_tail(0);
  for (int i = 0; i < 3; ++i) REQUIRE(send(ring.sender, quarter));
  check_front(ring.receiver, seven);
  for (int i = 0; i < 3; ++i) check_front(ring.receiver, quarter);
  ring.receiver.push_tail(0);
  CHECK(ring.sender.drained());
}

TEST_CASE("a quarter of the payload ring consumed is much, however few slots it took", "[fabric][slot]") {
  TestRing ring;
  SeededRandom random(4);
  const SlotMessage seven = draw(random, 0, 7 * 64);
  const SlotMessage two_lines = draw(random, 0, 97);
  REQUIRE(send(ring.sender, seven));
  REQUIRE(send(ring.sender, two_lines));
  check_front(ring.receiver, seven);
  CHECK_FALSE(ring.receiver.much_consumed());
  check_front(ring.receiver, two_lines);
  CHECK(ring.receiver.much_consumed());
  ring.receiver.push_tail(0);
  CHECK_FALSE(ring.receiver.much_consumed());
}

TEST_CASE("neither an older lap nor old payload looks like a slot", "[fabric][slot]") {
  TestRing ring;
  // Bodies that hold, where a line's sequence word stands, the very words of the lines to come.
  for (std::uint64_t lap = 0; lap < 3; ++lap) {
    for (std::uint64_t line = 0; line < 16; line += 2) {
      SlotMessage message;
      message.payload = Bytes(96);
      for (std::size_t at = 0; at + 4 <= 96; at += 4) {
        const std::uint32_t word = line_sequence(kSlotSeed, ring.sender.head() + 2 + at % 3);
        std::memcpy(message.payload.data() + at, &word, sizeof word);
      }
      REQUIRE(send(ring.sender, message));
      check_front(ring.receiver, message);
      REQUIRE(ring.receiver.front() == nullptr);
      ring.receiver.push_tail(0);
    }
  }
  // A ring of another epoch over the same memory finds nothing in it.
  SlotReceiver other(ring.bridges.end(1), kSlotPlace, kSlotSeed + 1);
  CHECK(other.front() == nullptr);
}

TEST_CASE("zeroed memory is no slot for any seed", "[fabric][slot]") {
  for (const std::uint32_t seed : {0U, 1U, 0x7fff'ffffU, 0xffff'ffffU, 0U - 5U}) {
    for (std::uint64_t line = 0; line < kMaxSlotLines; ++line) {
      // The first lap alone meets zeroed lines.
      const bool could_be_zero = (seed | 0x8000'0000U) > 0U - static_cast<std::uint32_t>(kMaxSlotLines);
      if (!could_be_zero) REQUIRE(line_sequence(seed, line) != 0);
    }
  }
}

TEST_CASE("a slot whose fields contradict each other is delivered with its fault, and the ring goes on",
          "[fabric][slot][hostile]") {
  using namespace slot_shape;
  struct Row {
    std::uint8_t shape;
    std::uint32_t bytes;
    std::uint32_t at;
    std::uint32_t queue_pair;
    std::optional<SlotFault> fault;
  };
  const auto row = GENERATE(
      Row{0, 0, 0, 1, {}}, Row{0, 36, 0, 1, {}}, Row{0, 37, 0, 1, SlotFault::payload_bytes},
      Row{0, ~0U, 0, 1, SlotFault::payload_bytes}, Row{0, 1, 1, 1, SlotFault::payload_at}, Row{kTwoLines, 96, 0, 1, {}},
      Row{kTwoLines, 97, 0, 1, SlotFault::payload_bytes}, Row{kTwoLines | kInPayloadRing, 97, 0, 1, SlotFault::shape},
      Row{kInPayloadRing, 1, 0, 1, {}}, Row{kInPayloadRing, 0, 0, 1, SlotFault::payload_bytes},
      Row{kInPayloadRing, 32 * 64, 0, 1, {}}, Row{kInPayloadRing, 32 * 64 + 1, 0, 1, SlotFault::payload_bytes},
      Row{kInPayloadRing, 64, 31, 1, {}}, Row{kInPayloadRing, 65, 31, 1, SlotFault::payload_at},
      Row{kInPayloadRing, 1, 32, 1, SlotFault::payload_at}, Row{kInPayloadRing, 64, ~0U, 1, SlotFault::payload_at},
      Row{kInPayloadRing, ~0U, ~0U, 1, SlotFault::payload_bytes}, Row{0x20, 0, 0, 1, SlotFault::shape},
      Row{0x80, 0, 0, 1, SlotFault::shape}, Row{kKnown & ~kInPayloadRing, 50, 0, 1, {}}, Row{0, 0, 0, 0xff'ffff, {}},
      Row{0, 0, 0, 0x100'0000, SlotFault::queue_pair});
  INFO("shape " << int(row.shape) << ", " << row.bytes << " bytes at " << row.at);
  TestRing ring;
  SlotHeader header{};
  header.shape = row.shape;
  header.payload_bytes = row.bytes;
  header.payload_at = row.at;
  header.queue_pair = row.queue_pair;
  ring.forge(0, header);
  const std::size_t lines = (row.shape & kTwoLines) != 0 ? 2 : 1;
  if (lines == 2) ring.forge(1, SlotHeader{});
  ReceivedSlot* slot = ring.receiver.front();
  REQUIRE(slot != nullptr);
  CHECK(slot->fault() == row.fault);
  CHECK(slot->payload(0).has_value() == !row.fault.has_value());
  ring.receiver.pop();
  CHECK(ring.receiver.consumed() == lines);
  ring.forge(lines, SlotHeader{});
  CHECK(ring.receiver.front() != nullptr);
}

TEST_CASE("a payload is not longer than the body that its extended header leaves", "[fabric][slot][hostile]") {
  TestRing ring;
  SlotHeader header{};
  header.payload_bytes = 30;
  ring.forge(0, header);
  ReceivedSlot* slot = ring.receiver.front();
  REQUIRE(slot != nullptr);
  const auto payload = slot->payload(6);
  REQUIRE(payload.has_value());
  CHECK(payload->size() == 30);
  CHECK_FALSE(slot->payload(7).has_value());
  CHECK_FALSE(slot->payload(37).has_value());
}

TEST_CASE("a second line that is not this slot's is a fault", "[fabric][slot][hostile]") {
  TestRing ring;
  SlotHeader header{};
  header.shape = slot_shape::kTwoLines;
  ring.forge(0, header);
  ReceivedSlot* slot = ring.receiver.front();
  REQUIRE(slot != nullptr);
  CHECK(slot->fault() == SlotFault::second_line);
  ring.receiver.pop();
  CHECK(ring.receiver.consumed() == 2);
}

TEST_CASE("an impossible tail is a fault, and gives no room", "[fabric][slot][hostile]") {
  TestRing ring;
  SeededRandom random(6);
  const SlotMessage message = draw(random, 0, 4);
  for (int i = 0; i < 16; ++i) REQUIRE(send(ring.sender, message));
  ring.forge_tail(10);
  CHECK(ring.sender.refresh_tail() == 10);
  SECTION("beyond what was sent") { ring.forge_tail(17); }
  SECTION("taken back") { ring.forge_tail(9); }
  SECTION("all ones") { ring.forge_tail(~std::uint64_t{0}); }
  CHECK(ring.sender.refresh_tail() == 10);
  CHECK(ring.sender.faulty());
  ring.forge_tail(16);
  CHECK_FALSE(send(ring.sender, message));
}

#ifdef SPLITNIC_AUDIT_LOADS
TEST_CASE("each byte of a slot is read once", "[fabric][slot][audit]") {
  TestRing ring;
  SeededRandom random(8);
  LoadAudit audit;
  audit.watch(ring.memory());
  for (const std::size_t bytes : {0U, 10U, 36U, 37U, 90U, 96U, 97U, 500U}) {
    const SlotMessage message = draw(random, bytes < 60 ? 20 : 0, bytes);
    REQUIRE(send(ring.sender, message));
    check_front(ring.receiver, message);
    ring.receiver.push_tail(0);
  }
  CHECK(audit.double_loads() == 0);
  CHECK(audit.bytes_loaded() > 0);
}
#endif

TEST_CASE("the ring does what a queue does, whatever the order of events, over a bridge that delays and tears",
          "[fabric][slot]") {
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    INFO("seed " << seed);
    SeededRandom random(seed);
    SimBridgeOptions options;
    options.local_bytes = {16384, 16384};
    options.torn_permille = 500;
    SimBridgePair pair(options, random);
    pair.end(1).local_memory().zero(0, 8192);
    pair.end(0).local_memory().zero(0, 64);
    SlotSender sender(pair.end(0), kSlotPlace, static_cast<std::uint32_t>(random.next()));
    SlotReceiver receiver;
    const std::uint32_t ring_seed = random.next32();
    sender = SlotSender(pair.end(0), kSlotPlace, ring_seed);
    receiver = SlotReceiver(pair.end(1), kSlotPlace, ring_seed);
    std::deque<SlotMessage> model;
    std::uint64_t answers = 0;
    Time now{};
    for (int step = 0; step < 500; ++step) {
      switch (random.below(4)) {
        case 0: {
          const std::size_t longest = random.below(4) == 0 ? sender.max_payload_bytes() : 100;
          SlotMessage message = draw(random, random.below(37), random.below(longest + 1));
          if (send(sender, message)) model.push_back(std::move(message));
          break;
        }
        case 1:
          while (receiver.front() != nullptr) {
            REQUIRE_FALSE(model.empty());
            check_front(receiver, model.front());
            model.pop_front();
            if (random.below(3) == 0) break;
          }
          answers += random.below(3);
          if (random.below(2) == 0) receiver.settle();
          if (receiver.much_consumed() || random.below(2) == 0) receiver.push_tail(answers);
          break;
        default:
          now += std::chrono::microseconds(random.below(15));
          pair.advance(now);
      }
      REQUIRE(sender.refresh_tail() <= receiver.consumed());
      REQUIRE(sender.refresh_settled(answers) <= receiver.settled());
      REQUIRE_FALSE(sender.faulty());
    }
    pair.advance(now + std::chrono::milliseconds(1));
    while (receiver.front() != nullptr) {
      REQUIRE_FALSE(model.empty());
      check_front(receiver, model.front());
      model.pop_front();
    }
    REQUIRE(model.empty());
  }
}

/// By put(), where it takes the message. False: the ring is full.
bool send_at_once(SlotSender& sender, const SlotMessage& message) {
  const auto put_extension = [&](std::byte* to) { std::ranges::copy(message.extension, to); };
  const std::uint64_t position = sender.put(message.fields, message.extension.size(), put_extension,
                                            message.payload.data(), message.payload.size());
  if (position != 0) REQUIRE(position == sender.head());
  return position != 0 || send(sender, message);
}

TEST_CASE("a message that is put at once lies in the ring as one that is claimed, filled and released",
          "[fabric][slot]") {
  TestRing at_once;
  TestRing in_steps;
  SeededRandom random(5);
  const std::size_t bytes = kSlotPlace.payload_offset + kSlotPlace.payload_lines * kSlotLine;
  std::size_t full = 0;
  for (int i = 0; i < 5000; ++i) {
    const SlotMessage message = draw(random, random.below(37), random.below(110));
    const bool sent = send_at_once(at_once.sender, message);
    REQUIRE(send(in_steps.sender, message) == sent);
    full += sent ? 0 : 1;
    REQUIRE(at_once.sender.head() == in_steps.sender.head());
    REQUIRE(at_once.sender.awaits() == in_steps.sender.awaits());
    Bytes one(bytes);
    Bytes other(bytes);
    at_once.memory().copy_out(0, one);
    in_steps.memory().copy_out(0, other);
    REQUIRE(one == other);
    while (!sent || random.below(3) == 0) {
      if (at_once.receiver.front() == nullptr) break;
      for (TestRing* ring : {&at_once, &in_steps}) {
        REQUIRE(ring->receiver.front() != nullptr);
        ring->receiver.pop();
        ring->receiver.push_tail(0);
      }
    }
  }
  CHECK(full > 100);
}

TEST_CASE("a ring has room for as many lines as the receiver has consumed, and no more", "[fabric][slot]") {
  TestRing ring;
  SeededRandom random(9);
  const std::size_t lines = ring.sender.lines();
  for (std::size_t sent = 0; sent < lines; ++sent) {
    INFO(sent << " lines sent");
    CHECK(ring.sender.can_put(lines - sent));
    CHECK_FALSE(ring.sender.can_put(lines - sent + 1));
    CHECK_FALSE(ring.sender.look_for_room(lines - sent + 1));
    REQUIRE(send_at_once(ring.sender, draw(random, 0, 8)));
  }
  CHECK_FALSE(ring.sender.can_put(1));
  CHECK_FALSE(ring.sender.look_for_room(1));
  const auto nothing = [](std::byte*) {};
  CHECK(ring.sender.put({}, 0, nothing, nullptr, 0) == 0);
  REQUIRE(ring.receiver.front() != nullptr);
  ring.receiver.pop();
  ring.receiver.push_tail(0);
  CHECK_FALSE(ring.sender.can_put(1));  // nobody has looked
  CHECK_FALSE(ring.sender.look_for_room(2));
  CHECK(ring.sender.look_for_room(1));
  CHECK(ring.sender.put({}, 0, nothing, nullptr, 0) == lines + 1);
  CHECK_FALSE(ring.sender.look_for_room(1));
}

TEST_CASE("a payload is copied to its place in pieces, from the ring or from the copy of the slot", "[fabric][slot]") {
  TestRing ring;
  SeededRandom random(8);
  for (const std::size_t bytes : {1U, 30U, 36U, 37U, 60U, 96U, 300U}) {
    for (const std::size_t skipped : {std::size_t{0}, bytes / 2, std::min<std::size_t>(bytes, 36), bytes}) {
      for (const bool loaded : {false, true}) {
        INFO(bytes << " bytes, " << skipped << " skipped, loaded " << loaded);
#ifdef SPLITNIC_AUDIT_LOADS
        LoadAudit audit;
        audit.watch(ring.memory());
#endif
        const SlotMessage message = draw(random, 0, bytes);
        REQUIRE(send(ring.sender, message));
        ReceivedSlot* slot = loaded ? ring.receiver.front() : ring.receiver.head();
        REQUIRE(slot != nullptr);
        REQUIRE(slot->layout().payload_bytes == bytes);
        Bytes copied(bytes);
        const auto whole = std::span(copied);
        REQUIRE(ring.receiver.copy_payload(0, 0, whole.first(skipped), guarded_copy));
        REQUIRE(ring.receiver.copy_payload(0, skipped, whole.subspan(skipped), guarded_copy));
        CHECK(copied == message.payload);
        ring.receiver.pop();
        ring.receiver.push_tail(0);
#ifdef SPLITNIC_AUDIT_LOADS
        CHECK(audit.double_loads() == 0);
#endif
      }
    }
  }
}

TEST_CASE("a message whose memory is gone is not put, and leaves nothing that looks like a slot", "[fabric][slot]") {
  TestRing ring;
  SeededRandom random(6);
  enable_guarded_copy();  // the test runner has installed handlers of its own
  const auto nothing = [](std::byte*) {};
  const MappedMemory memory(2 * page_bytes());
  memory.protect(0, page_bytes(), PROT_NONE);
  const std::byte* const first_gone = memory.at(page_bytes() - kSlotBodyInFirst);  // what goes into the first line
  CHECK(ring.sender.put({}, 0, nothing, first_gone, 90) == 0);
  CHECK(ring.sender.head() == 0);
  // The next one is a line, and nobody has sent the second.
  const SlotMessage message = draw(random, 0, 30);
  REQUIRE(send_at_once(ring.sender, message));
  check_front(ring.receiver, message);
  CHECK(ring.receiver.front() == nullptr);
}

TEST_CASE("a message is not put past one that waits for room", "[fabric][slot]") {
  TestRing ring;
  SeededRandom random(7);
  const SlotMessage two_lines = draw(random, 0, 90);
  for (int i = 0; i < 7; ++i) REQUIRE(send(ring.sender, two_lines));
  REQUIRE(send(ring.sender, draw(random, 0, 8)));
  REQUIRE_FALSE(send(ring.sender, two_lines));
  REQUIRE(ring.sender.wants_room());
  CHECK_FALSE(ring.sender.can_put(1));
  const std::byte one{};
  const auto nothing = [](std::byte*) {};
  CHECK(ring.sender.put({}, 0, nothing, &one, 1) == 0);
}

// Two threads over one mapping, because ThreadSanitizer sees nothing across processes or across two mappings. It checks
// that R2/A2 and R3/A3 order the bytes between threads on this processor. It does not prove the order of posted PCIe
// writes (the simulated bridge stands for those), nor what a weaker processor might do (the models of tests/models
// stand for that), nor anything about a peer that cheats.
TEST_CASE("a producer and a consumer thread pass every slot whole and in order", "[fabric][slot][stress]") {
  TestRing ring;
  constexpr std::uint32_t kSlots = 20'000;
  const auto bytes_of = [](std::uint32_t number) { return std::size_t{number} * 7 % 513; };
  std::thread producer([&] {
    for (std::uint32_t number = 0; number < kSlots; ++number) {
      SlotClaim claim;
      while (!ring.sender.claim(4, bytes_of(number), claim)) std::this_thread::yield();
      std::memcpy(claim.extension, &number, sizeof number);
      std::memset(claim.payload.data(), static_cast<int>(number & 0xffU), claim.payload.size());
      if (!claim.payload_rest.empty()) {
        std::memset(claim.payload_rest.data(), static_cast<int>(number & 0xffU), claim.payload_rest.size());
      }
      ring.sender.release(claim, {.packet_sequence = number});
    }
  });
  bool whole = true;
  Bytes copy(512);
  for (std::uint32_t number = 0; number < kSlots;) {
    ReceivedSlot* slot = ring.receiver.front();
    if (slot == nullptr) {
      ring.receiver.push_tail(number);
      std::this_thread::yield();
      continue;
    }
    std::uint32_t extension = 0;
    std::memcpy(&extension, slot->extension(sizeof extension).data(), sizeof extension);
    const auto payload = slot->payload(sizeof extension);
    whole &= payload && extension == number && slot->header().packet_sequence.value() == number;
    whole &= payload && payload->size() == bytes_of(number);
    if (payload) {
      const auto to = std::span(copy).first(payload->size());
      payload->copy_out(0, to);
      whole &= std::ranges::all_of(to, [&](std::byte b) { return b == static_cast<std::byte>(number & 0xffU); });
    }
    ring.receiver.pop();
    if (ring.receiver.much_consumed()) ring.receiver.push_tail(number);
    ++number;
  }
  producer.join();
  CHECK(whole);
  CHECK_FALSE(ring.sender.faulty());
}

}  // namespace splitnic::fabric::test::slot_ring_test
