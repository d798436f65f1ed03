#include "fabric/wire/cell.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "adapter_fixtures.h"
#include "common/crc32c.h"

namespace splitnic::fabric::test::cell_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes wire_of(const Cell& cell, std::span<const std::byte> payload, std::uint32_t& packet_crc) {
  const std::array pieces{payload};
  const CellEnvelope envelope(cell, pieces, payload.size(), packet_crc);
  Bytes bytes(envelope.head().begin(), envelope.head().end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.insert(bytes.end(), envelope.tail().begin(), envelope.tail().end());
  return bytes;
}

Bytes wire_of(const Cell& cell, std::span<const std::byte> payload = {}) {
  std::uint32_t packet_crc = kPacketCrcStart;
  return wire_of(cell, payload, packet_crc);
}

Cell sample(Opcode opcode) {
  Cell cell;
  cell.service_level = 3;
  cell.opcode = opcode;
  cell.destination = PortAddress{0x0000'0a0b'0c0d'0e0f & 0xffff'ffff'ffff};
  cell.source = PortAddress{0x0000'1a1b'1c1d'1e1f & 0xffff'ffff'ffff};
  cell.destination_queue_pair = QpNumber{0x123456};
  cell.source_queue_pair = QpNumber{0x654321};
  cell.packet_sequence = 0xfeff'0102;
  cell.cell_sequence = traits(opcode).first ? 0 : 1;
  return cell;
}

/// A believable cell of the opcode, with `payload` bytes where it may have any.
Cell believable(Opcode opcode, std::size_t payload) {
  Cell cell = sample(opcode);
  const OpcodeTraits& what = traits(opcode);
  if (what.rdma_header) {
    cell.address = 0x1122'3344'5566'7788;
    cell.tag = Stag{0xaabb'ccdd};
    cell.message_bytes = static_cast<std::uint32_t>(payload + (what.last ? 0 : 1));
  }
  if (what.immediate) cell.immediate = 0xcafe'f00d;
  if (what.invalidate) cell.invalidate = Stag{0x5566'7788};
  if (what.xrc) cell.shared_receives = SrqNumber{0x71'7273};
  switch (what.kind) {
    case MessageKind::read_request:
      cell.message_bytes = 0x0001'2345;
      cell.message_sequence = 0x8000'0007;
      cell.sink_tag = Stag{0x0102'0304};
      cell.sink_address = 0x2122'2324'2526'2728;
      break;
    case MessageKind::atomic:
      cell.message_bytes = kAtomicBytes;
      cell.message_sequence = 9;
      cell.swap_or_add = 0x3132'3334'3536'3738;
      cell.compare = without_xrc(opcode) == Opcode::compare_swap ? 0x4142'4344'4546'4748 : 0;
      break;
    case MessageKind::atomic_response:
      cell.original = 0x5152'5354'5556'5758;
      break;
    case MessageKind::terminate:
      cell.reason = {1, 2, 3};
      break;
    case MessageKind::drain:
      cell.destination_queue_pair = cell.source_queue_pair = QpNumber{0};
      cell.tag = Stag{0x6162'6364};
      cell.generation = 17;
      break;
    case MessageKind::not_taken:
      cell.source_queue_pair = QpNumber{0};
      break;
    default:
      break;
  }
  return cell;
}

std::vector<Opcode> all_opcodes() {
  std::vector<Opcode> all;
  for (unsigned number = 0; number < 256; ++number) {
    const auto opcode = static_cast<std::uint8_t>(number);
    if (!traits(opcode).is(MessageKind::none)) all.push_back(static_cast<Opcode>(opcode));
  }
  return all;
}
const std::vector<Opcode> kOpcodes = all_opcodes();

/// Whether a cell of that payload can be.
bool may_carry(Opcode opcode, std::size_t payload) {
  const OpcodeTraits& what = traits(opcode);
  if (what.is(MessageKind::terminate)) return payload <= kMaxCellHeadBytes;
  if (!what.carries_message()) return payload == 0;
  return payload != 0 || (what.first && what.last);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text +=
        fmt::format("{:02x}{}", static_cast<unsigned>(bytes[i]), i % 16 == 15 || i + 1 == bytes.size() ? "\n" : " ");
  }
  return text;
}

std::string fields(const Cell& cell) {
  const OpcodeTraits& what = traits(cell.opcode);
  std::string text = fmt::format(
      "version: {}\nservice_level: {}\nopcode: {} ({})\nflags: {}\ndestination_port: {:012x}\nsource_port: {:012x}\n"
      "destination_queue_pair: {:06x}\nsource_queue_pair: {:06x}\npacket_sequence: {}\ncell_sequence: {}\n"
      "payload_bytes: {}\n",
      kCellVersion, cell.service_level, static_cast<unsigned>(cell.opcode), to_string(cell.opcode),
      cell.direct      ? "direct"
      : cell.solicited ? "solicited"
                       : "none",
      cell.destination.value, cell.source.value, cell.destination_queue_pair.value, cell.source_queue_pair.value,
      cell.packet_sequence, cell.cell_sequence, cell.payload.size());
  if (what.xrc) text += fmt::format("shared_receives: {:06x}\n", cell.shared_receives.value);
  if (what.rdma_header) {
    text += fmt::format("address: {:016x}\ntag: {:08x}\nmessage_bytes: {}\n", cell.address, cell.tag.value,
                        cell.message_bytes);
  }
  if (what.immediate) text += fmt::format("immediate: {:08x}\n", cell.immediate);
  if (what.invalidate) text += fmt::format("invalidate: {:08x}\n", cell.invalidate.value);
  switch (what.kind) {
    case MessageKind::read_request:
      text += fmt::format("message_sequence: {}\nsink_tag: {:08x}\nsink_address: {:016x}\n", cell.message_sequence,
                          cell.sink_tag.value, cell.sink_address);
      break;
    case MessageKind::atomic:
      text += fmt::format("message_sequence: {}\nswap_or_add: {:016x}\ncompare: {:016x}\n", cell.message_sequence,
                          cell.swap_or_add, cell.compare);
      break;
    case MessageKind::atomic_response:
      text += fmt::format("original: {:016x}\n", cell.original);
      break;
    case MessageKind::terminate:
      text += fmt::format("layer: {}\ntype: {}\ncode: {}\n", cell.reason.layer, cell.reason.type, cell.reason.code);
      break;
    case MessageKind::drain:
      text += fmt::format("tag: {:08x}\ngeneration: {}\n", cell.tag.value, cell.generation);
      break;
    default:
      break;
  }
  if (what.kind == MessageKind::acknowledgement) {
    text += fmt::format("syndrome: {}\ndelay_microseconds: {}\n", to_string(cell.syndrome), cell.delay_microseconds);
  }
  if (what.last && !cell.direct) text += fmt::format("packet_crc: {:08x}\n", cell.packet_crc);
  return text;
}

void fix_crc(Bytes& bytes) {
  const auto body = std::span<const std::byte>(bytes).first(bytes.size() - kCrcBytes);
  const boost::endian::little_uint32_buf_t crc(crc32c(body));
  std::memcpy(bytes.data() + body.size(), &crc, sizeof crc);
}

}  // namespace

TEST_CASE("a cell's bytes are these and no others", "[fabric][wire]") {
  Cell cell = sample(Opcode::write_only_immediate);
  cell.direct = true;
  cell.address = 0x0102'0304'0506'0708;
  cell.tag = Stag{0x1112'1314};
  cell.message_bytes = 1500;
  cell.immediate = 0x0705'05dc;
  const Bytes bytes = wire_of(cell);
  CHECK(hex(std::span(bytes).first(bytes.size() - kCrcBytes)) ==
        "31 0b 01 00 0f 0e 0d 0c 0b 0a 1f 1e 1d 1c 1b 1a\n"
        "56 34 12 00 21 43 65 00 02 01 ff fe 00 00 00 00\n"
        "08 07 06 05 04 03 02 01 14 13 12 11 dc 05 00 00\n"
        "dc 05 05 07\n");
  CHECK(bytes.size() == 56);
}

TEST_CASE("the extended headers' bytes are these and no others", "[fabric][wire]") {
  const auto behind_header = [](Opcode opcode) {
    const Bytes bytes = wire_of(believable(opcode, 0));
    return hex(std::span(bytes).subspan(sizeof(CellHeader), bytes.size() - sizeof(CellHeader) - 2 * kCrcBytes));
  };
  CHECK(behind_header(Opcode::read_request) ==
        "88 77 66 55 44 33 22 11 dd cc bb aa 45 23 01 00\n"
        "07 00 00 80 04 03 02 01 28 27 26 25 24 23 22 21\n");
  CHECK(behind_header(Opcode::compare_swap) ==
        "88 77 66 55 44 33 22 11 dd cc bb aa 08 00 00 00\n"
        "09 00 00 00 00 00 00 00 38 37 36 35 34 33 32 31\n"
        "48 47 46 45 44 43 42 41\n");
  CHECK(behind_header(Opcode::atomic_acknowledge) == "58 57 56 55 54 53 52 51\n");
  CHECK(behind_header(Opcode::send_only_invalidate) == "88 77 66 55\n");
  CHECK(behind_header(Opcode::terminate) == "01 02 03 00 00 00 00 00\n");
  CHECK(behind_header(Opcode::drain_request) == "64 63 62 61 11 00 00 00\n");
  CHECK(behind_header(Opcode::xrc_send_only_invalidate) == "73 72 71 00 88 77 66 55\n");
  CHECK(behind_header(Opcode::xrc_read_request) ==
        "73 72 71 00 88 77 66 55 44 33 22 11 dd cc bb aa\n"
        "45 23 01 00 07 00 00 80 04 03 02 01 28 27 26 25\n"
        "24 23 22 21\n");
  CHECK(behind_header(Opcode::xrc_compare_swap) ==
        "73 72 71 00 88 77 66 55 44 33 22 11 dd cc bb aa\n"
        "08 00 00 00 09 00 00 00 00 00 00 00 38 37 36 35\n"
        "34 33 32 31 48 47 46 45 44 43 42 41\n");
}

TEST_CASE("every opcode's cell is what its vector says", "[fabric][wire][vectors]") {
  const std::filesystem::path folder = std::filesystem::path(SPLITNIC_SOURCE_DIR) / "docs" / "vectors" / "cells";
  const auto check = [&folder](const std::string& name, const Cell& cell, const Bytes& bytes) {
    const auto decoded = decode_cell(bytes);
    REQUIRE(decoded.has_value());
    const std::string text = fmt::format("# cell: {}\n{}\n{}", name, fields(*decoded), hex(bytes));
    CHECK(decoded->opcode == cell.opcode);
    const auto path = folder / (name + ".txt");
    if (std::getenv("SPLITNIC_WRITE_VECTORS") != nullptr) {
      std::filesystem::create_directories(folder);
      std::ofstream(path) << text;
    }
    std::ifstream file(path);
    std::stringstream stored;
    stored << file.rdbuf();
    INFO(path.string());
    CHECK(stored.str() == text);
  };
  const Bytes payload = pattern(20, 1);
  for (const Opcode opcode : kOpcodes) {
    const bool empty = !traits(opcode).carries_message();
    const Cell cell = believable(opcode, empty ? 0 : payload.size());
    check(to_string(opcode), cell, wire_of(cell, empty ? std::span<const std::byte>{} : payload));
  }
  Cell direct = believable(Opcode::write_only_immediate, 1500);
  direct.direct = true;
  check("write_only_immediate_direct", direct, wire_of(direct));
  Cell not_ready = sample(Opcode::acknowledge);
  not_ready.syndrome = Syndrome::receiver_not_ready;
  not_ready.delay_microseconds = 1000;
  check("acknowledge_receiver_not_ready", not_ready, wire_of(not_ready));
  Cell direct_response = believable(Opcode::read_response_only, 0);
  direct_response.direct = true;
  check("read_response_only_direct", direct_response, wire_of(direct_response));
  Cell solicited = believable(Opcode::send_only, payload.size());
  solicited.solicited = true;
  check("send_only_solicited", solicited, wire_of(solicited, payload));
  const Bytes refused = wire_of(believable(Opcode::read_request, 0));
  const Cell terminate = believable(Opcode::terminate, 0);
  check("terminate_read_request", terminate, wire_of(terminate, std::span(refused).first(64)));
}

TEST_CASE("what is encoded is decoded, for every opcode and payload size", "[fabric][wire]") {
  for (const Opcode opcode : kOpcodes) {
    for (const std::size_t size : {0U, 1U, 15U, 64U, 256U, 65519U, 65520U}) {
      const OpcodeTraits& what = traits(opcode);
      if (!may_carry(opcode, size)) continue;
      const Bytes payload = pattern(size, size);
      const Cell cell = believable(opcode, size);
      Bytes bytes = wire_of(cell, payload);
      bytes.resize(bytes.size() + 63);  // a FIFO record ends on a line
      const auto decoded = decode_cell(bytes);
      REQUIRE(decoded.has_value());
      CHECK(decoded->service_level == cell.service_level);
      CHECK(decoded->destination == cell.destination);
      CHECK(decoded->source == cell.source);
      CHECK(decoded->destination_queue_pair == cell.destination_queue_pair);
      CHECK(decoded->source_queue_pair == cell.source_queue_pair);
      CHECK(decoded->packet_sequence == cell.packet_sequence);
      CHECK(decoded->cell_sequence == cell.cell_sequence);
      CHECK(decoded->address == cell.address);
      CHECK(decoded->tag == cell.tag);
      CHECK(decoded->message_bytes == cell.message_bytes);
      CHECK(decoded->immediate == cell.immediate);
      CHECK(decoded->invalidate == cell.invalidate);
      CHECK(decoded->shared_receives == cell.shared_receives);
      CHECK(decoded->message_sequence == cell.message_sequence);
      CHECK(decoded->sink_tag == cell.sink_tag);
      CHECK(decoded->sink_address == cell.sink_address);
      CHECK(decoded->swap_or_add == cell.swap_or_add);
      CHECK(decoded->compare == cell.compare);
      CHECK(decoded->original == cell.original);
      CHECK(decoded->reason == cell.reason);
      CHECK(decoded->generation == cell.generation);
      CHECK(std::equal(decoded->payload.begin(), decoded->payload.end(), payload.begin(), payload.end()));
      if (what.last) CHECK(extend_packet_crc(kPacketCrcStart, *decoded, bytes) == decoded->packet_crc);
    }
  }
}

TEST_CASE("the packet CRC spans a packet's cells and ignores what routers rewrite", "[fabric][wire]") {
  const Bytes payload = pattern(600, 2);
  const auto packet_crc_of = [&payload](const std::function<void(Cell&)>& change) {
    std::uint32_t running = kPacketCrcStart;
    std::uint32_t reassembled = kPacketCrcStart;
    std::uint32_t carried = 0;
    for (std::uint16_t i = 0; i < 3; ++i) {
      Cell cell = believable(i == 0 ? Opcode::write_first : i == 1 ? Opcode::write_middle : Opcode::write_last, 600);
      cell.cell_sequence = i;
      change(cell);
      const Bytes bytes = wire_of(cell, std::span(payload).subspan(i * 200U, 200), running);
      const auto decoded = decode_cell(bytes);
      REQUIRE(decoded.has_value());
      reassembled = extend_packet_crc(reassembled, *decoded, bytes);
      carried = decoded->packet_crc;
    }
    REQUIRE(carried == reassembled);
    return carried;
  };
  const std::uint32_t plain = packet_crc_of([](Cell&) {});
  CHECK(packet_crc_of([](Cell& cell) { cell.destination = PortAddress{1}; }) == plain);
  CHECK(packet_crc_of([](Cell& cell) { cell.source = PortAddress{2}; }) == plain);
  CHECK(packet_crc_of([](Cell& cell) { cell.service_level = 0; }) == plain);
  CHECK(packet_crc_of([](Cell& cell) { cell.packet_sequence += 1; }) != plain);
  CHECK(packet_crc_of([](Cell& cell) { cell.destination_queue_pair = QpNumber{1}; }) != plain);
}

TEST_CASE("each field at its borders makes a cell unbelievable by name", "[fabric][wire]") {
  const auto error_of = [](Bytes bytes, bool crc = true) -> std::string {
    if (crc) fix_crc(bytes);
    const auto decoded = decode_cell(bytes);
    return decoded ? "ok" : to_string(decoded.error());
  };
  const Bytes payload = pattern(8, 3);
  const Bytes only = wire_of(believable(Opcode::write_only, 8), payload);
  const auto with = [](Bytes bytes, std::size_t at, std::initializer_list<unsigned> values) {
    for (const unsigned value : values) bytes[at++] = static_cast<std::byte>(value);
    return bytes;
  };
  CHECK(error_of(only) == "ok");
  CHECK(error_of(with(only, 0, {0x30})) == "version");
  CHECK(error_of(with(only, 0, {0x32})) == "version");
  CHECK(error_of(with(only, 0, {0xf1})) == "ok");
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (traits(static_cast<std::uint8_t>(opcode)).kind == MessageKind::none) {
      CHECK(error_of(with(only, 1, {opcode})) == "opcode");
    }
  }
  CHECK(error_of(with(only, 2, {0x04, 0})) == "flags");
  CHECK(error_of(with(only, 2, {0x02, 0})) == "flags");  // a write without immediate completes no receive
  CHECK(error_of(with(only, 2, {0, 0x80})) == "flags");
  Bytes direct_with_payload = with(only, 2, {1, 0});
  direct_with_payload.resize(direct_with_payload.size() - kCrcBytes);  // a direct cell has no packet CRC
  CHECK(error_of(direct_with_payload) == "payload_bytes");
  CHECK(error_of(with(wire_of(believable(Opcode::send_only, 8), payload), 2, {1, 0})) == "flags");
  CHECK(error_of(with(wire_of(believable(Opcode::write_first, 8), payload), 2, {1, 0})) == "flags");
  CHECK(error_of(with(only, 16, {0, 0, 0, 0})) == "destination_queue_pair");
  CHECK(error_of(with(only, 16, {0, 0, 0, 1})) == "destination_queue_pair");
  CHECK(error_of(with(only, 16, {0xff, 0xff, 0xff, 0})) == "ok");
  CHECK(error_of(with(only, 20, {0, 0, 0, 0})) == "source_queue_pair");
  CHECK(error_of(with(only, 20, {0, 0, 0, 1})) == "source_queue_pair");
  CHECK(error_of(with(only, 28, {1, 0})) == "cell_sequence");
  CHECK(error_of(with(wire_of(believable(Opcode::send_last, 8), payload), 28, {0, 0})) == "cell_sequence");
  CHECK(error_of(with(only, 30, {9, 0})) == "too_short");
  CHECK(error_of(with(only, 30, {0xf1, 0xff})) == "payload_bytes");
  CHECK(error_of(with(only, 30, {0xf0, 0xff})) == "too_short");
  CHECK(error_of(with(only, 44, {7, 0, 0, 0})) == "message_bytes");
  CHECK(error_of(with(only, 44, {9, 0, 0, 0})) == "message_bytes");
  CHECK(error_of(with(wire_of(believable(Opcode::write_first, 8), payload), 44, {8, 0, 0, 0})) == "message_bytes");
  CHECK(error_of(wire_of(believable(Opcode::send_middle, 0))) == "payload_bytes");
  CHECK(error_of(wire_of(believable(Opcode::send_last, 0))) == "payload_bytes");
  CHECK(error_of(wire_of(believable(Opcode::acknowledge, 0), payload)) == "payload_bytes");
  const Bytes ack = wire_of(sample(Opcode::acknowledge));
  CHECK(error_of(with(ack, 32, {4})) == "ok");
  CHECK(error_of(with(ack, 32, {5})) == "syndrome");
  CHECK(error_of(with(ack, 33, {1})) == "reserved");
  CHECK(error_of(with(ack, 35, {0x80})) == "reserved");
  CHECK(error_of(with(ack, 2, {2, 0})) == "flags");
}

TEST_CASE("each field of the extended headers at its borders likewise", "[fabric][wire]") {
  const auto error_of = [](Bytes bytes, std::size_t at, std::initializer_list<unsigned> values) -> std::string {
    for (const unsigned value : values) bytes[at++] = static_cast<std::byte>(value);
    fix_crc(bytes);
    const auto decoded = decode_cell(bytes);
    return decoded ? "ok" : to_string(decoded.error());
  };
  const Bytes payload = pattern(8, 3);
  for (const Opcode opcode : kOpcodes) {
    const OpcodeTraits& what = traits(opcode);
    const Bytes cell = wire_of(believable(opcode, what.carries_message() ? 8 : 0),
                               what.carries_message() ? std::span<const std::byte>(payload) : std::span<std::byte>{});
    if (what.xrc) {
      CHECK(error_of(cell, 32, {0, 0, 0}) == "shared_receives");
      CHECK(error_of(cell, 32, {1, 0, 0}) == "ok");
      CHECK(error_of(cell, 32, {0xff, 0xff, 0xff}) == "ok");
      CHECK(error_of(cell, 35, {1}) == "reserved");
      CHECK(error_of(cell, 35, {0x80}) == "reserved");
    }
    CHECK(error_of(cell, 2, {2, 0}) == (what.may_be_solicited() ? "ok" : "flags"));
    CHECK(error_of(cell, 2, {1, 0}) != "ok");  // direct, but with a payload or never
    if (what.is(MessageKind::drain)) {
      CHECK(error_of(cell, 16, {1}) == "destination_queue_pair");
      CHECK(error_of(cell, 20, {1}) == "source_queue_pair");
    } else if (what.is(MessageKind::not_taken)) {
      CHECK(error_of(cell, 16, {0, 0, 0}) == "ok");  // perhaps of any
      CHECK(error_of(cell, 19, {1}) == "destination_queue_pair");
      CHECK(error_of(cell, 20, {1}) == "source_queue_pair");
    } else {
      CHECK(error_of(cell, 16, {0, 0, 0}) == "destination_queue_pair");
    }
  }
  const Bytes swap = wire_of(believable(Opcode::compare_swap, 0));
  CHECK(error_of(swap, 44, {7}) == "message_bytes");
  CHECK(error_of(swap, 44, {9}) == "message_bytes");
  CHECK(error_of(swap, 52, {1}) == "reserved");
  CHECK(error_of(swap, 71, {0xff}) == "ok");
  const Bytes add = wire_of(believable(Opcode::fetch_add, 0));
  CHECK(error_of(add, 64, {1}) == "atomic");
  CHECK(error_of(add, 71, {1}) == "atomic");
  const Bytes xrc_add = wire_of(believable(Opcode::xrc_fetch_add, 0));
  CHECK(error_of(xrc_add, 68, {1}) == "atomic");
  CHECK(error_of(xrc_add, 56, {1}) == "reserved");
  const Bytes terminate = wire_of(believable(Opcode::terminate, 0));
  for (std::size_t at = 35; at < 40; ++at) CHECK(error_of(terminate, at, {1}) == "reserved");
  CHECK(error_of(wire_of(believable(Opcode::terminate, 0), pattern(kMaxCellHeadBytes, 1)), 0, {0x31}) == "ok");
  CHECK(error_of(wire_of(believable(Opcode::terminate, 0), pattern(kMaxCellHeadBytes + 1, 1)), 0, {0x31}) ==
        "payload_bytes");
  CHECK(error_of(wire_of(believable(Opcode::read_response_first, 0)), 0, {0x31}) == "payload_bytes");
  CHECK(error_of(wire_of(believable(Opcode::read_response_only, 0)), 0, {0x31}) == "ok");
}

TEST_CASE("a cell cut short or with any bit turned over is refused", "[fabric][wire]") {
  const Bytes whole = wire_of(believable(Opcode::write_only_immediate, 40), pattern(40, 9));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    REQUIRE_FALSE(decode_cell(std::span(whole).first(length)).has_value());
  }
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes damaged = whole;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    REQUIRE_FALSE(decode_cell(damaged).has_value());
  }
}

}  // namespace splitnic::fabric::test::cell_test
