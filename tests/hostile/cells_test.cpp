// Cells and slots that are wrong, incomplete, endless, or change while they are read.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "fabric/wire/slot_cell.h"
#include "tests/hostile/owner.h"
#include "tests/unit/fabric/every_opcode.h"

namespace splitnic::fabric::hostile::cells_test {
namespace {

using I = Introduction;
constexpr std::array kEveryGrant{&I::open,     &I::readable, &I::writable, &I::direct, &I::window,
                                 &I::windowed, &I::local,    &I::foreign,  &I::others, &I::stale};

/// Replaces the value with probability 1 / n.
template <class T>
void perhaps(HostileHost& host, std::uint64_t n, T& value, T instead) {
  if (host.random().below(n) == 0) value = instead;
}

/// A cell with any opcode. Most fields are nearly right, and each is sometimes random.
Cell lie(HostileHost& host) {
  SeededRandom& random = host.random();
  static const std::vector<Opcode> opcodes = test::every_opcode();
  const Opcode opcode = opcodes[random.below(opcodes.size())];
  const Grant& grant = host.owner().*kEveryGrant[random.below(kEveryGrant.size())];
  const auto offset = static_cast<std::int64_t>(random.below(32U << 10U)) - (8 << 10);
  Cell cell = host.cell(opcode, grant, offset, static_cast<std::uint32_t>(random.below(1024)));
  if (random.below(4) == 0) --host.psn;
  if (traits(opcode).is(MessageKind::drain)) cell.destination_queue_pair = QpNumber{};
  if (traits(opcode).is(MessageKind::atomic)) cell.message_bytes = kAtomicBytes;
  cell.direct = traits(opcode).may_be_direct() && random.below(4) == 0;
  cell.solicited = traits(opcode).may_be_solicited() && random.below(2) == 0;
  cell.cell_sequence = traits(opcode).first ? 0 : static_cast<std::uint16_t>(random.below(4) + 1);
  cell.invalidate = grant.tag;
  cell.syndrome = static_cast<Syndrome>(random.below(kSyndromes));
  cell.sink_tag = Stag{random.next32()};
  cell.sink_address = random.next();
  cell.compare = without_xrc(opcode) == Opcode::compare_swap ? random.next() : 0;
  cell.shared_receives = SrqNumber{static_cast<std::uint32_t>(1 + random.below(4))};
  cell.swap_or_add = random.next();
  cell.generation = random.next32();
  perhaps(host, 8, cell.tag, Stag{random.next32()});
  perhaps(host, 8, cell.address, random.next());
  perhaps(host, 8, cell.message_bytes, random.next32());
  perhaps(host, 8, cell.packet_sequence, random.next32());
  perhaps(host, 8, cell.message_sequence, random.next32());
  perhaps(host, 16, cell.destination_queue_pair, QpNumber{random.next32() & kMaxQueuePairNumber});
  return cell;
}

std::vector<std::byte> payload_of(HostileHost& host, const Cell& cell) {
  const OpcodeTraits& what = traits(cell.opcode);
  if (cell.direct || !(what.carries_message() || what.is(MessageKind::terminate))) return {};
  const bool truth = what.is(MessageKind::write) && what.last && what.first && cell.message_bytes <= 2048;
  return host.random_bytes(truth ? cell.message_bytes : host.random().below(300));
}

/// Overwrites a slot again and again while the owner reads it, but for the word that releases it.
void rewrite(HostileHost& host, const RawSlots::Place& place, const Cell& truth) {
  const std::span<std::byte> line = place.line.subspan(kSlotSequenceBytes);
  const std::vector<std::byte> before(line.begin(), line.end());
  Cell other = truth;
  other.tag = host.owner().foreign.tag;
  other.address = host.owner().foreign.address;
  std::vector<std::byte> after = before;
  encode_slot_extension(other, &after[kSlotBodyAt - kSlotSequenceBytes]);
  for (int i = 0; i < 20; ++i) {
    std::ranges::copy(after, line.begin());
    std::ranges::copy(before, line.begin());
    line[host.random().below(line.size())] ^= std::byte{0xff};
    place.payload[host.random().below(place.payload.size())] ^= std::byte{0xff};
  }
}

/// A slot that contradicts itself.
struct FalseSlot {
  const char* name;
  void (*change)(SlotHeader& header, std::size_t payload_lines);
  bool second_line = true;
};

}  // namespace

TEST_CASE("random bytes in a slot are no cell, each counted, none harmful", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    for (; host.goes_on() && host.board().count < 5000; ++host.board().count) {
      SlotHeader header;
      const auto bytes = host.random_bytes(sizeof header);
      std::memcpy(&header, bytes.data(), sizeof header);
      header.opcode = static_cast<std::uint8_t>(host.random().below(130) + 30);  // none of them is one
      if (host.slots().put(header, host.random_bytes(kSlotBodyInFirst)).line.empty()) break;
      if (host.board().count % 16 == 0) host.ring();
    }
  });
  CHECK(outcome.count > 100);
  CHECK(outcome.counters.dropped_bad_cell == outcome.count);
  CHECK(outcome.counters.cells_received == outcome.count);
}

TEST_CASE("slots that contradict themselves are no cells", "[hostile]") {
  const auto row = GENERATE(values<FalseSlot>({
      {"an unknown shape", [](SlotHeader& h, std::size_t) { h.shape = 32; }},
      {"two lines and the payload ring", [](SlotHeader& h, std::size_t) { h.shape = 3; }},
      {"more in a line than it has", [](SlotHeader& h, std::size_t) { h.payload_bytes = 37; }},
      {"less than the extended headers leave", [](SlotHeader& h, std::size_t) { h.payload_bytes = 21; }},
      {"more in two lines than they have",
       [](SlotHeader& h, std::size_t) {
         h.shape = 1;
         h.payload_bytes = 97;
       }},
      {"a place in the payload ring that is not used", [](SlotHeader& h, std::size_t) { h.payload_at = 1; }},
      {"nothing in the payload ring",
       [](SlotHeader& h, std::size_t) {
         h.shape = 2;
         h.payload_bytes = 0;
       }},
      {"one byte more than the payload ring",
       [](SlotHeader& h, std::size_t lines) {
         h.shape = 2;
         h.payload_bytes = static_cast<std::uint32_t>(lines * kSlotLine + 1);
       }},
      {"across the payload ring's end",
       [](SlotHeader& h, std::size_t lines) {
         h.shape = 2;
         h.payload_bytes = 2 * kSlotLine;
         h.payload_at = static_cast<std::uint32_t>(lines - 1);
       }},
      {"far outside the payload ring",
       [](SlotHeader& h, std::size_t) {
         h.shape = 2;
         h.payload_bytes = 200;
         h.payload_at = 0xffff'ffff;
       }},
      {"a queue pair of 25 bits", [](SlotHeader& h, std::size_t) { h.queue_pair = 0x100'0000; }},
      {"a second line that is not there", [](SlotHeader& h, std::size_t) { h.shape = 1; }, false},
      {"an opcode that is none", [](SlotHeader& h, std::size_t) { h.opcode = 30; }},
      {"a cell sequence in an Only cell", [](SlotHeader& h, std::size_t) { h.cell_sequence = 1; }},
  }));
  CAPTURE(row.name);
  const Outcome outcome = endure(Ending::harmless, [row](HostileHost& host) {
    for (; host.goes_on() && host.board().count < 1000; ++host.board().count) {
      const Cell cell = host.cell(Opcode::write_only, host.owner().open, 0, 16);
      SlotHeader header;
      encode_slot(slot_fields(cell), slot_layout(slot_extension_bytes(cell.opcode), 16),
                  std::as_writable_bytes(std::span(&header, 1)).data());
      row.change(header, host.slots().payload_lines());
      std::array<std::byte, kSlotBodyInFirst> body{};
      encode_slot_extension(cell, body.data());
      if (host.slots().put(header, body, row.second_line).line.empty()) break;
      if (host.board().count % 16 == 0) host.ring();
    }
  });
  CHECK(outcome.count > 100);
  CHECK(outcome.counters.dropped_bad_cell == outcome.count);
  CHECK(outcome.counters.segmented_writes == 0);
}

TEST_CASE("cells with anything in them reach nothing that was not granted", "[hostile]") {
  const int round = GENERATE(range(0, 10));
  CAPTURE(round);
  const Outcome outcome = endure(Ending::either_way, [](HostileHost& host) {
    for (int i = 0; i < 20'000 && host.goes_on(); ++i) {
      const Cell cell = lie(host);
      const auto lane = static_cast<VirtualLane>(host.random().below(kLanes));
      if (!host.put(cell, payload_of(host, cell), lane)) break;
      if (i % 32 == 0) static_cast<void>(host.take());
    }
  });
  CHECK(outcome.counters.cells_received > 100);
  CHECK(outcome.times_told <= 1);
}

TEST_CASE("cells of no queue pair, or of another, are dropped and counted", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    for (int i = 0; i < 300; ++i) {
      Cell cell = host.cell(Opcode::write_only, host.owner().open, 0, 64);
      if (i % 3 == 0) cell.destination_queue_pair = host.owner().idle_queue_pair;
      if (i % 3 == 1) cell.destination_queue_pair.value ^= 0x80'0000;
      if (i % 3 == 2) cell.destination_queue_pair = QpNumber{};
      host.put(cell, host.random_bytes(64));
    }
  });
  CHECK(outcome.counters.dropped_unknown_queue_pair == 200);
  CHECK(outcome.counters.dropped_bad_cell == 100);
  CHECK(outcome.counters.segmented_writes == 0);
}

TEST_CASE("a slot rewritten while it is read reaches nothing that was not granted", "[hostile]") {
  const Outcome outcome = endure(Ending::either_way, [](HostileHost& host) {
    for (; host.goes_on(); ++host.board().count) {
      const auto payload = host.random_bytes(200);
      const Cell cell = host.cell(Opcode::write_only, host.owner().open, 0, 200);
      const RawSlots::Place place = host.slots().put(cell, payload);
      if (place.line.empty()) break;
      rewrite(host, place, cell);
      // A slot that was no cell is lost, so continue from this one, half the time.
      host.psn = cell.packet_sequence + (host.random().below(2) == 0 ? 1 : 0);
      static_cast<void>(host.take());
    }
  });
  CHECK(outcome.count > 100);
}

TEST_CASE("messages that never end cost nothing but themselves", "[hostile]") {
  const Opcode first = GENERATE(Opcode::send_first, Opcode::write_first);
  const Outcome outcome = endure(Ending::harmless, [first](HostileHost& host) {
    for (; host.goes_on(); ++host.board().count) {
      Cell cell = host.cell(first, host.owner().open, 0, 16U << 10U);
      host.psn = cell.packet_sequence;  // starts the message again and again, as after a loss
      if (!host.put(cell, host.random_bytes(64))) break;
      cell.opcode = first == Opcode::send_first ? Opcode::send_middle : Opcode::write_middle;
      cell.cell_sequence = 1;
      host.put(cell, host.random_bytes(64));
      static_cast<void>(host.take());
    }
  });
  CHECK(outcome.count > 20);
  CHECK(outcome.counters.terminates_sent == 0);
}

TEST_CASE("a message that goes on beyond its length, or its receive, ends the queue pair", "[hostile]") {
  const Opcode first = GENERATE(Opcode::send_first, Opcode::write_first);
  const Outcome outcome = endure(Ending::queue_pair, [first](HostileHost& host) {
    Cell cell = host.cell(first, host.owner().open, 0, 16U << 10U);
    const auto payload = host.random_bytes(1024);
    host.put(cell, payload);
    cell.opcode = first == Opcode::send_first ? Opcode::send_middle : Opcode::write_middle;
    for (std::uint16_t i = 1; i < 100; ++i) {
      cell.cell_sequence = i;
      host.put(cell, payload);
    }
    host.wait_for(Opcode::terminate);
  });
  CHECK(outcome.counters.terminates_sent == 1);
  CHECK(outcome.times_told == 1);
}

TEST_CASE("cells out of order are dropped, however many come", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    const Cell cell = host.cell(Opcode::write_only_immediate, host.owner().open, 0, 8);
    Cell ahead = cell;
    while (host.goes_on()) {
      ahead.packet_sequence = cell.packet_sequence + 1 + static_cast<std::uint32_t>(host.random().below(1000));
      host.put(ahead, host.random_bytes(8));
      static_cast<void>(host.take());
    }
  });
  CHECK(outcome.counters.dropped_out_of_sequence > 100);
}

TEST_CASE("a storm of terminates ends the queue pair once and is answered with nothing", "[hostile]") {
  const bool of_a_request = GENERATE(false, true);  // of a request that the owner never made
  const auto run = [of_a_request](HostileHost& host) {
    while (host.goes_on()) {
      std::vector<std::byte> refused = HostileHost::head_of(host.cell(Opcode::write_only, kHostileMemory, 0, 0));
      if (!of_a_request) refused.clear();
      Cell cell = host.cell(Opcode::terminate);
      cell.packet_sequence = of_a_request ? host.random().next32() : kPsnFromOwner;
      cell.reason = {static_cast<std::uint8_t>(host.random().below(3)),
                     static_cast<std::uint8_t>(host.random().below(3)),
                     static_cast<std::uint8_t>(host.random().next32() & 0xffU)};
      host.put(cell, refused);
    }
  };
  const Outcome outcome = endure(of_a_request ? Ending::harmless : Ending::queue_pair, run);
  CHECK(outcome.counters.terminates_sent == 0);
  CHECK(outcome.counters.cells_received > 100);
}

TEST_CASE("answers and acknowledgements that nobody asked for change nothing", "[hostile]") {
  constexpr std::array kAnswers{Opcode::acknowledge,         Opcode::atomic_acknowledge, Opcode::read_response_only,
                                Opcode::read_response_first, Opcode::read_response_last, Opcode::drain_acknowledge};
  const Outcome outcome = endure(Ending::harmless, [kAnswers](HostileHost& host) {
    while (host.goes_on()) {
      Cell cell = host.cell(kAnswers[host.random().below(kAnswers.size())]);
      const OpcodeTraits& what = traits(cell.opcode);
      if (what.is(MessageKind::drain)) cell.destination_queue_pair = QpNumber{};
      cell.cell_sequence = what.first ? 0 : 1;
      cell.packet_sequence = kPsnFromOwner + static_cast<std::uint32_t>(host.random().below(3)) - 1;
      cell.syndrome = static_cast<Syndrome>(host.random().below(kSyndromes));
      cell.tag = host.owner().direct.tag;
      cell.generation = static_cast<std::uint32_t>(host.random().below(4));
      host.put(cell, host.random_bytes(what.carries_message() ? 64 : 0));
    }
  });
  CHECK(outcome.counters.cells_received > 100);
  CHECK(outcome.counters.drains_completed == 0);
}

TEST_CASE("drain requests without number are answered as far as there is room, and then dropped", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    // A busy machine may leave it no turn for long.
    for (int sent = 0; host.goes_on() || sent < 500; ++sent) {
      Cell cell = host.cell(Opcode::drain_request);
      cell.destination_queue_pair = QpNumber{};
      cell.generation = host.random().next32();
      cell.tag = Stag{host.random().next32()};
      host.put(cell, {}, VirtualLane::control);  // never takes an answer
    }
  });
  CHECK(outcome.counters.dropped_drains > 0);
}

TEST_CASE("a drain that is never acknowledged keeps the memory in quarantine", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, Asks::drain, [](HostileHost& host) {
    while (host.goes_on()) {
      // The initiator keeps storing through the revoked grant, and acknowledges other drains.
      const auto bytes = host.random_bytes(4096);
      std::ranges::copy(bytes, host.part(host.layout().buffers).begin());
      Cell cell = host.cell(Opcode::drain_acknowledge);
      cell.destination_queue_pair = QpNumber{};
      cell.tag = host.owner().direct.tag;
      cell.generation = 2 + host.random().next32() / 2;
      host.put(cell, {}, VirtualLane::control);
    }
  });
  CHECK(outcome.counters.drains_completed == 0);
}

TEST_CASE("a false answer to a read ends the queue pair, and nothing beside the sink is written", "[hostile]") {
  struct Row {
    const char* name;
    Opcode opcode;
    std::size_t bytes;
    bool direct;
  };
  const auto row = GENERATE(values<Row>({{"too long", Opcode::read_response_only, 8192, false},
                                         {"too short", Opcode::read_response_only, 100, false},
                                         {"first, and longer than the whole", Opcode::read_response_first, 8192, false},
                                         {"directly, without a grant", Opcode::read_response_only, 0, true}}));
  CAPTURE(row.name);
  const Outcome outcome = endure(Ending::queue_pair, Asks::read, [row](HostileHost& host) {
    host.wait_for(Opcode::read_request);
    Cell cell = host.cell(row.opcode);
    cell.packet_sequence = kPsnFromOwner;
    cell.direct = row.direct;
    host.put(cell, host.random_bytes(row.bytes));
    host.wait_for(Opcode::terminate);
  });
  CHECK(outcome.counters.terminates_sent == 1);
  CHECK(outcome.answered != CompletionStatus::success);
}

TEST_CASE("an answer of the other kind, or in pieces out of order, is not taken", "[hostile]") {
  const Asks asks = GENERATE(Asks::read, Asks::atomic);
  const Outcome outcome = endure(Ending::harmless, asks, [asks](HostileHost& host) {
    if (!host.wait_for(asks == Asks::read ? Opcode::read_request : Opcode::fetch_add)) return;
    for (int i = 0; i < 50; ++i, host.board().count += 2) {
      const bool read = asks == Asks::atomic;
      Cell cell = host.cell(read ? Opcode::read_response_only : Opcode::atomic_acknowledge);
      cell.packet_sequence = kPsnFromOwner;
      host.put(cell, host.random_bytes(read ? 8 : 0));
      cell.opcode = Opcode::read_response_last;
      cell.cell_sequence = 7;
      host.put(cell, host.random_bytes(64));
    }
  });
  CHECK(outcome.count == 100);
  const AdapterCounters& counters = outcome.counters;
  CHECK(counters.dropped_out_of_sequence + counters.dropped_duplicate == outcome.count);
  CHECK(outcome.asked == 0);  // the request still waits for its answer
}

}  // namespace splitnic::fabric::hostile::cells_test
