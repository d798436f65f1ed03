#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "express_world.h"
#include "fabric/link/slot_sender.h"

namespace splitnic::fabric::test {

/// A slot as a hostile peer makes it.
struct Forged {
  SlotFields fields{};
  std::vector<std::byte> extension{};
  std::vector<std::byte> payload{};
  std::function<void(SlotHeader&)> change{};  ///< what the sender would never say; may be empty
  bool second_line = true;                    ///< false: of two lines, the second one is not there
};

/// The first message that nobody has sent yet after pass_a_message().
inline constexpr std::uint32_t kNext = 8;

inline Forged forged_send(const ExpressWorld& world, std::uint32_t packet_sequence, std::size_t bytes) {
  Forged slot;
  slot.fields.opcode = static_cast<std::uint8_t>(Opcode::send_only);
  slot.fields.awaited = true;
  slot.fields.queue_pair = world.ends[1]->number;
  slot.fields.packet_sequence = packet_sequence;
  slot.payload = pattern(bytes, packet_sequence);
  return slot;
}

inline std::vector<std::byte> announcement_of(const RemoteAddress& at, std::uint32_t bytes) {
  RdmaHeader rdma;
  rdma.address = at.address;
  rdma.tag = at.tag.value;
  rdma.length = bytes;
  const ImmediateHeader immediate(77);
  std::vector<std::byte> extension(sizeof rdma + sizeof immediate);
  std::memcpy(extension.data(), &rdma, sizeof rdma);
  std::memcpy(extension.data() + sizeof rdma, &immediate, sizeof immediate);
  return extension;
}

inline Forged forged_announcement(const ExpressWorld& world, std::uint32_t packet_sequence, const RemoteAddress& at,
                                  std::uint32_t bytes) {
  Forged slot = forged_send(world, packet_sequence, 0);
  slot.fields.opcode = static_cast<std::uint8_t>(Opcode::write_only_immediate);
  slot.fields.direct = true;
  slot.extension = announcement_of(at, bytes);
  return slot;
}

/// The second end gets the slot.
inline void put(ExpressWorld& world, const Forged& slot) {
  SlotSender& sender = world.links[0]->slots(VirtualLane::data)->sender;
  SlotClaim claim;
  REQUIRE(sender.claim(slot.extension.size(), slot.payload.size(), claim));
  std::ranges::copy(slot.extension, claim.extension);
  const auto rest = std::ranges::copy_n(slot.payload.begin(), static_cast<std::ptrdiff_t>(claim.payload.size()),
                                        claim.payload.begin())
                        .in;
  std::copy(rest, slot.payload.end(), claim.payload_rest.begin());
  sender.release(claim, slot.fields);
  if (slot.change) {
    std::byte* const at = claim.lines[0] + kSlotSequenceBytes;
    SlotHeader header;
    std::memcpy(&header, at, sizeof header);
    slot.change(header);
    std::memcpy(at, &header, sizeof header);
  }
  if (!slot.second_line) {
    REQUIRE(claim.layout.two_lines);
    std::memset(claim.lines[1], 0, kSlotSequenceBytes);
  }
}

/// Makes a slot with this packet's number.
using Forge = std::function<Forged(ExpressWorld&, std::uint32_t)>;

struct HeaderCase {
  const char* name;
  std::function<void(SlotHeader&)> change;
};
inline HeaderCase shape_bit(const char* name, std::uint8_t bit) {
  return {name, [bit](SlotHeader& header) { header.shape = header.shape.value() ^ bit; }};
}
/// A send or an announcement with one of these is not taken.
inline const std::array kBadHeaders{
    HeaderCase{"a payload's place", [](SlotHeader& header) { header.payload_at = 1; }},
    HeaderCase{"a place beyond the payload ring", [](SlotHeader& header) { header.payload_at = 0x8000'0000; }},
    HeaderCase{"more bytes than two lines", [](SlotHeader& header) { header.payload_bytes = 97; }},
    HeaderCase{"more bytes than memory", [](SlotHeader& header) { header.payload_bytes = 0xffff'ffff; }},
    HeaderCase{"a cell's number", [](SlotHeader& header) { header.cell_sequence = 1; }},
    HeaderCase{"a cell's number above 8 bits", [](SlotHeader& header) { header.cell_sequence = 0x100; }},
    HeaderCase{"another opcode", [](SlotHeader& header) { header.opcode = 0xff; }},
    HeaderCase{"a later packet",
               [](SlotHeader& header) { header.packet_sequence = header.packet_sequence.value() + 1; }},
    HeaderCase{"a packet that was taken",
               [](SlotHeader& header) { header.packet_sequence = header.packet_sequence.value() - 1; }},
    HeaderCase{"no queue pair", [](SlotHeader& header) { header.queue_pair = 0x7f'ffff; }},
    HeaderCase{"a queue pair of more than 24 bits",
               [](SlotHeader& header) { header.queue_pair = header.queue_pair.value() | 0x100'0000; }},
    shape_bit("shape bit 5", 32),
    shape_bit("shape bit 6", 64),
    shape_bit("shape bit 7", 128),
};

}  // namespace splitnic::fabric::test
