#pragma once

#include "tests/unit/fabric/bridge_fixtures.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/link/slot_receiver.h"
#include "fabric/link/slot_sender.h"

/// A ring of slots between the two ends of a bridge in shared memory, and messages to send through it.
namespace splitnic::fabric::test {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint32_t kSlotSeed = 0x1234'5678;
inline constexpr SlotRingPlace kSlotPlace{
    .slots_offset = 64, .slot_lines = 16, .payload_offset = 64 + 16 * 64, .payload_lines = 32, .tail_offset = 0};

/// What a slot is to carry.
struct SlotMessage {
  SlotFields fields{};
  Bytes extension;
  Bytes payload;
};

/// False: the ring is full.
inline bool send(SlotSender& sender, const SlotMessage& message) {
  SlotClaim claim;
  if (!sender.claim(message.extension.size(), message.payload.size(), claim)) return false;
  std::copy(message.extension.begin(), message.extension.end(), claim.extension);
  REQUIRE(claim.payload.size() + claim.payload_rest.size() == message.payload.size());
  const auto middle = message.payload.begin() + static_cast<std::ptrdiff_t>(claim.payload.size());
  std::copy(message.payload.begin(), middle, claim.payload.begin());
  std::copy(middle, message.payload.end(), claim.payload_rest.begin());
  sender.release(claim, message.fields);
  return true;
}

inline Bytes payload_of(ReceivedSlot& slot, std::size_t extension_bytes) {
  const auto payload = slot.payload(extension_bytes);
  REQUIRE(payload.has_value());
  Bytes bytes(payload->size());
  payload->copy_out(0, bytes);
  return bytes;
}

/// The oldest slot has the message; takes it.
inline void check_front(SlotReceiver& receiver, const SlotMessage& message) {
  ReceivedSlot* slot = receiver.front();
  REQUIRE(slot != nullptr);
  REQUIRE_FALSE(slot->fault().has_value());
  const SlotFields fields = slot_fields(slot->header());
  REQUIRE(fields.opcode == message.fields.opcode);
  REQUIRE(fields.awaited == message.fields.awaited);
  REQUIRE(fields.solicited == message.fields.solicited);
  REQUIRE(fields.direct == message.fields.direct);
  REQUIRE(fields.cell_sequence == message.fields.cell_sequence);
  REQUIRE(fields.queue_pair == message.fields.queue_pair);
  REQUIRE(fields.packet_sequence == message.fields.packet_sequence);
  REQUIRE(fields.settled == message.fields.settled);
  REQUIRE(std::ranges::equal(slot->extension(message.extension.size()), message.extension));
  REQUIRE(payload_of(*slot, message.extension.size()) == message.payload);
  receiver.pop();
}

/// With random fields and bytes.
inline SlotMessage draw(RandomSource& random, std::size_t extension_bytes, std::size_t payload_bytes) {
  SlotMessage message;
  message.fields.opcode = static_cast<std::uint8_t>(random.below(256));
  message.fields.awaited = random.below(2) == 0;
  message.fields.solicited = random.below(2) == 0;
  message.fields.direct = random.below(2) == 0;
  message.fields.cell_sequence = static_cast<std::uint16_t>(random.below(65536));
  message.fields.queue_pair = QpNumber{static_cast<std::uint32_t>(random.below(1U << 24U))};
  message.fields.packet_sequence = random.next32();
  message.fields.settled = random.next32();
  message.extension = random_bytes(random, extension_bytes);
  message.payload = random_bytes(random, payload_bytes);
  return message;
}

/// A ring from end 0 to end 1.
struct TestRing {
  explicit TestRing(const SlotRingPlace& at = kSlotPlace) : place(at) {
    memory().zero(0, place.payload_offset + place.payload_lines * kSlotLine);
    bridges.end(0).local_memory().zero(0, kSlotLine);
    sender = SlotSender(bridges.end(0), place, kSlotSeed);
    receiver = SlotReceiver(bridges.end(1), place, kSlotSeed);
  }
  [[nodiscard]] PeerMemory memory() { return bridges.end(1).local_memory(); }
  /// A hostile sender's slot at a line of the ring.
  void forge(std::size_t line, const SlotHeader& header) {
    const std::size_t at = place.slots_offset + line % place.slot_lines * kSlotLine;
    memory().store_bytes(at + kSlotSequenceBytes, std::as_bytes(std::span(&header, 1)));
    memory().store<std::uint32_t>(at, line_sequence(kSlotSeed, line));
  }
  void forge_tail(std::uint64_t tail) { bridges.end(0).local_memory().store<std::uint64_t>(kTailAt, tail); }
  void forge_settled(std::uint64_t answers, std::uint64_t settled) {
    bridges.end(0).local_memory().store<std::uint64_t>(kTailAnswersAt, answers);
    bridges.end(0).local_memory().store<std::uint64_t>(kTailSettledAt, settled);
  }

  SlotRingPlace place;
  ShmPairBridges bridges;
  SlotSender sender;
  SlotReceiver receiver;
};

}  // namespace splitnic::fabric::test
