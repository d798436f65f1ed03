#include "fabric/wire/slot_cell.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "common/random.h"
#include "tests/unit/fabric/every_opcode.h"

namespace splitnic::fabric::slot_cell_test {
namespace {

/// A cell whose fields fit each other, with payload_bytes of payload.
Cell sample(Opcode opcode, RandomSource& random, std::size_t payload_bytes) {
  const OpcodeTraits& what = traits(opcode);
  Cell cell;
  cell.opcode = opcode;
  cell.solicited = what.may_be_solicited();
  cell.awaited = random.below(2) == 0;
  cell.destination_queue_pair = QpNumber{what.is(MessageKind::drain) ? 0 : 0x12'3456U};
  cell.packet_sequence = random.next32();
  cell.cell_sequence = what.first ? 0 : 7;
  cell.address = random.next();
  cell.tag = Stag{random.next32()};
  cell.message_bytes = static_cast<std::uint32_t>(payload_bytes + (what.last ? 0 : 1));
  cell.immediate = random.next32();
  cell.invalidate = Stag{random.next32()};
  cell.message_sequence = random.next32();
  cell.sink_tag = Stag{random.next32()};
  cell.sink_address = random.next();
  cell.swap_or_add = random.next();
  cell.compare = without_xrc(opcode) == Opcode::compare_swap ? random.next() : 0;
  cell.shared_receives = SrqNumber{1 + static_cast<std::uint32_t>(random.below(kMaxQueuePairNumber))};
  cell.original = random.next();
  cell.generation = random.next32();
  cell.syndrome = Syndrome::receiver_not_ready;
  cell.delay_microseconds = random.next32();
  cell.reason = {1, 2, 3};
  if (what.is(MessageKind::atomic)) cell.message_bytes = kAtomicBytes;
  return cell;
}

std::optional<CellFault> decode(const SlotFields& fields, std::span<const std::byte> extension,
                                std::size_t payload_bytes, Cell& cell) {
  if (const auto fault = decode_slot_fields(fields, cell)) return fault;
  return decode_slot_extension(extension, payload_bytes, cell);
}

std::vector<std::byte> extension_of(const Cell& cell) {
  std::vector<std::byte> bytes(slot_extension_bytes(cell.opcode) + 1, std::byte{0x5a});
  encode_slot_extension(cell, bytes.data());
  REQUIRE(bytes.back() == std::byte{0x5a});  // no byte more than it says
  bytes.pop_back();
  return bytes;
}

std::size_t payload_for(Opcode opcode) { return traits(opcode).carries_message() ? 100 : 0; }

}  // namespace

TEST_CASE("every opcode's cell goes through a slot, its extended headers in the first line", "[fabric][wire][slot]") {
  SeededRandom random(5);
  const std::vector<Opcode> opcodes = test::every_opcode();
  CHECK(opcodes.size() == 39);
  for (const Opcode opcode : opcodes) {
    INFO(to_string(opcode));
    REQUIRE(slot_extension_bytes(opcode) <= kSlotBodyInFirst);
    const Cell sent = sample(opcode, random, payload_for(opcode));
    const auto extension = extension_of(sent);
    Cell got;
    REQUIRE_FALSE(decode(slot_fields(sent), extension, payload_for(opcode), got).has_value());
    CHECK(got.opcode == sent.opcode);
    CHECK(got.solicited == sent.solicited);
    CHECK(got.awaited == sent.awaited);
    CHECK(got.destination_queue_pair == sent.destination_queue_pair);
    CHECK(got.source_queue_pair == QpNumber{});
    CHECK(got.packet_sequence == sent.packet_sequence);
    CHECK(got.cell_sequence == sent.cell_sequence);
    CHECK(got.shared_receives == (traits(opcode).xrc ? sent.shared_receives : SrqNumber{}));
    // What the slot carries again gives the same bytes.
    CHECK(extension_of(got) == extension);
  }
}

TEST_CASE("the bytes of an atomic in a slot are these and no others", "[fabric][wire][slot]") {
  Cell cell;
  cell.opcode = Opcode::compare_swap;
  cell.address = 0x0102030405060708;
  cell.tag = Stag{0x11121314};
  cell.message_sequence = 0x21222324;
  cell.swap_or_add = 0x3132333435363738;
  cell.compare = 0x4142434445464748;
  const auto bytes = extension_of(cell);
  const std::array<unsigned char, 32> expected{8,    7,    6,    5,    4,    3,    2,    1,    0x14, 0x13, 0x12,
                                               0x11, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33,
                                               0x32, 0x31, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41};
  REQUIRE(bytes.size() == expected.size());
  CHECK(std::memcmp(bytes.data(), expected.data(), expected.size()) == 0);
  // Of an XRC initiator: behind the shared receive queue.
  cell.opcode = Opcode::xrc_compare_swap;
  cell.shared_receives = SrqNumber{0x515253};
  const auto named = extension_of(cell);
  const std::array<unsigned char, 4> number{0x53, 0x52, 0x51, 0};
  REQUIRE(named.size() == number.size() + expected.size());
  CHECK(std::memcmp(named.data(), number.data(), number.size()) == 0);
  CHECK(std::memcmp(named.data() + number.size(), expected.data(), expected.size()) == 0);
}

TEST_CASE("fields of a slot that cannot be are named", "[fabric][wire][slot]") {
  struct Row {
    const char* what;
    Opcode opcode;
    std::size_t payload;
    CellFault fault;
    std::function<void(SlotFields&, Cell&)> change;
  };
  const std::vector<Row> rows{
      {"an opcode that is none", Opcode::send_only, 8, CellFault::opcode, [](auto& f, auto&) { f.opcode = 21; }},
      {"the highest opcode", Opcode::send_only, 8, CellFault::opcode, [](auto& f, auto&) { f.opcode = 255; }},
      {"a direct send", Opcode::send_only, 8, CellFault::flags, [](auto& f, auto&) { f.direct = true; }},
      {"a direct first", Opcode::write_first, 8, CellFault::flags, [](auto& f, auto&) { f.direct = true; }},
      {"a solicited write", Opcode::write_only, 8, CellFault::flags, [](auto& f, auto&) { f.solicited = true; }},
      {"queue pair 0", Opcode::send_only, 8, CellFault::destination_queue_pair,
       [](auto& f, auto&) { f.queue_pair = QpNumber{}; }},
      {"a drain for a queue pair", Opcode::drain_request, 0, CellFault::destination_queue_pair,
       [](auto& f, auto&) { f.queue_pair = QpNumber{1}; }},
      {"an Only cell in the middle", Opcode::send_only, 8, CellFault::cell_sequence,
       [](auto& f, auto&) { f.cell_sequence = 1; }},
      {"a Last cell at the start", Opcode::send_last, 8, CellFault::cell_sequence,
       [](auto& f, auto&) { f.cell_sequence = 0; }},
      {"an empty Middle", Opcode::send_middle, 0, CellFault::payload_bytes, [](auto&, auto&) {}},
      {"an acknowledgement with payload", Opcode::acknowledge, 1, CellFault::payload_bytes, [](auto&, auto&) {}},
      {"a direct write with payload", Opcode::write_only, 8, CellFault::payload_bytes,
       [](auto& f, auto&) { f.direct = true; }},
      {"more than a cell has", Opcode::send_only, kMaxCellPayload + 1, CellFault::payload_bytes, [](auto&, auto&) {}},
      {"another length than the payload's", Opcode::write_only, 8, CellFault::message_bytes,
       [](auto&, auto& c) { c.message_bytes = 9; }},
      {"a First that is the whole", Opcode::write_first, 8, CellFault::message_bytes,
       [](auto&, auto& c) { c.message_bytes = 8; }},
      {"a shared receive queue 0", Opcode::xrc_send_only, 8, CellFault::shared_receives,
       [](auto&, auto& c) { c.shared_receives = SrqNumber{}; }},
      {"a shared receive queue 0 of an atomic", Opcode::xrc_fetch_add, 0, CellFault::shared_receives,
       [](auto&, auto& c) { c.shared_receives = SrqNumber{}; }},
      {"an XRC addition that compares", Opcode::xrc_fetch_add, 0, CellFault::atomic,
       [](auto&, auto& c) { c.compare = 1; }},
      {"an addition that compares", Opcode::fetch_add, 0, CellFault::atomic, [](auto&, auto& c) { c.compare = 1; }},
  };
  SeededRandom random(6);
  for (const Row& row : rows) {
    INFO(row.what);
    Cell sent = sample(row.opcode, random, row.payload);
    SlotFields fields = slot_fields(sent);
    row.change(fields, sent);
    Cell got;
    CHECK(decode(fields, extension_of(sent), row.payload, got) == row.fault);
    // Whatever is wrong, the slot names its queue pair and packet.
    CHECK(got.destination_queue_pair == fields.queue_pair);
    CHECK(got.packet_sequence == fields.packet_sequence);
  }
}

}  // namespace splitnic::fabric::slot_cell_test
