// A peer that writes what it likes, when it likes, into the slot ring that we read and the tail line that we are given.
// What a slot says to carry lies inside the rings, a slot that makes no sense names its fault and holds up nothing, and
// a sender never writes outside what the place says.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "fabric/link/slot_receiver.h"
#include "fabric/link/slot_sender.h"
#include "fabric/wire/slot_cell.h"
#include "tests/sim_bridge/sim_bridge.h"

using namespace splitnic;
using namespace splitnic::fabric;

namespace {

constexpr std::uint32_t kSeed = 0x5eed;
constexpr SlotRingPlace kPlace{
    .slots_offset = 64, .slot_lines = 8, .payload_offset = 64 + 8 * 64, .payload_lines = 8, .tail_offset = 0};

/// A header near those that are possible.
SlotHeader forged(const std::uint8_t* from) {
  SlotHeader header{};
  header.shape = static_cast<std::uint8_t>(from[0] & (from[0] > 250 ? 0xffU : 0x1fU));
  header.payload_bytes = from[1] > 250 ? ~0U : from[1] * 3U;
  header.payload_at = from[2] > 250 ? ~0U : from[2] % 10U;
  header.opcode = from[3];
  header.queue_pair = from[3] > 250 ? ~0U : from[3];
  header.settled = from[2];
  return header;
}

/// What is believed of a slot's cell is encoded to the same bytes again.
void take_cell(ReceivedSlot& slot) {
  const SlotFields before = slot_fields(slot.header());
  Cell cell;
  if (decode_slot_fields(before, cell)) return;
  const auto bytes = slot.extension(slot_extension_bytes(cell.opcode));
  if (decode_slot_extension(bytes, slot.layout().payload_bytes, cell)) return;
  std::array<std::byte, kSlotBodyInFirst> again{};
  encode_slot_extension(cell, again.data());
  SPLITNIC_CHECK(std::ranges::equal(bytes, std::span(again).first(bytes.size())));
  const SlotFields fields = slot_fields(cell);
  SPLITNIC_CHECK(fields.opcode == before.opcode && fields.direct == before.direct);
  SPLITNIC_CHECK(fields.queue_pair == before.queue_pair && fields.packet_sequence == before.packet_sequence);
}

void take(SlotReceiver& receiver) {
  for (int taken = 0; taken < 4; ++taken) {
    const std::uint64_t before = receiver.consumed();
    ReceivedSlot* slot = receiver.front();
    if (slot == nullptr) return;
    for (const std::size_t extension : {0U, 20U, 36U}) {
      const auto payload = slot->payload(extension);
      SPLITNIC_CHECK(!payload || !slot->fault());
      if (!payload) continue;
      SPLITNIC_CHECK(payload->size() == slot->layout().payload_bytes);
      std::vector<std::byte> copy(payload->size());
      payload->copy_out(0, copy);
    }
    if (!slot->fault()) take_cell(*slot);
    receiver.pop();
    SPLITNIC_CHECK(receiver.consumed() - before == 1 || receiver.consumed() - before == 2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  SeededRandom random(1);
  SimBridgeOptions options;
  options.local_bytes = {2048, 2048};
  options.memory_scribbled = false;
  SimBridgePair pair(options, random);
  SlotSender sender(pair.end(0), kPlace, kSeed);
  SlotReceiver receiver(pair.end(1), kPlace, kSeed);
  const PeerMemory ring = pair.end(1).local_memory();
  const PeerMemory tail = pair.end(0).local_memory();
  Time now{};

  for (std::size_t i = 0; i + 6 <= size; i += 6) {
    const std::uint8_t* const with = data + i + 1;
    const std::uint64_t value = with[0] | std::uint64_t{with[1]} << 8U;
    switch (data[i] % 7) {
      case 0: {  // a slot where the receiver looks, or a little further on
        const SlotHeader header = forged(with);
        const std::uint64_t line = receiver.consumed() + (with[4] & 3U);
        const std::size_t at = kPlace.slots_offset + line % kPlace.slot_lines * kSlotLine;
        ring.store_bytes(at + kSlotSequenceBytes, std::as_bytes(std::span(&header, 1)));
        ring.store<std::uint32_t>(at, line_sequence(kSeed, line));
        break;
      }
      case 1:
        tail.store<std::uint64_t>(kTailAt, (with[2] & 1U) != 0 ? value % 64 : ~value);
        tail.store<std::uint64_t>(kTailAnswersAt, with[3]);
        tail.store<std::uint64_t>(kTailSettledAt, (with[2] & 2U) != 0 ? value % 64 : with[4]);
        break;
      case 2: {
        const bool was_faulty = sender.faulty();
        SlotClaim claim;
        const bool claimed = sender.claim(with[0] % 37U, value % (sender.max_payload_bytes() + 1), claim);
        SPLITNIC_CHECK(!was_faulty || !claimed);
        if (!claimed) break;
        SPLITNIC_CHECK(claim.payload.size() + claim.payload_rest.size() == value % (sender.max_payload_bytes() + 1));
        std::ranges::fill(claim.payload, std::byte{0x5a});
        std::ranges::fill(claim.payload_rest, std::byte{0x5a});
        sender.release(claim, {.awaited = (with[2] & 1U) != 0});
        break;
      }
      case 3:
        take(receiver);
        break;
      case 4:
        if ((with[2] & 1U) != 0) receiver.settle();
        if ((with[2] & 2U) != 0) receiver.reported_by_slot();
        receiver.push_tail(value);
        SPLITNIC_CHECK(!receiver.unreported() && receiver.settled() <= receiver.consumed());
        break;
      case 5:
        sender.note_settled(static_cast<std::uint32_t>(value));
        static_cast<void>(sender.refresh_tail());
        static_cast<void>(sender.refresh_settled(with[2]));
        SPLITNIC_CHECK(sender.tail() <= sender.head() && sender.settled() <= sender.tail());
        break;
      default:
        now += std::chrono::microseconds(value % 30);
        pair.advance(now);
    }
  }
  return 0;
}
