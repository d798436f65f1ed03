#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/link/slot_receiver.h"
#include "fabric/link/slot_sender.h"
#include "fabric/memory/store_habit.h"

namespace splitnic::fabric {

/// Both rings of a lane: the one that this end sends into, and the one that it consumes. Thread: the bridge's owner.
struct SlotLane {
  SlotSender sender{};
  SlotReceiver receiver{};
  StoreHabit stores{};  ///< of payloads that are sent

  /// How far the peer has settled what was sent.
  [[nodiscard]] std::uint64_t settled() {
    return sender.awaits() ? sender.refresh_settled(receiver.consumed()) : sender.settled();
  }
  /// Reports what was consumed and settled when it is much, or `all` of it. True: there was something to report.
  bool return_room(bool all) {
    const bool push = all ? receiver.unreported() : receiver.much_consumed();
    if (push) receiver.push_tail(sender.head());
    return push;
  }
  /// Releases a slot of the sender, and says in it how far this end has settled what it consumed.
  std::uint64_t release(const SlotClaim& claim, SlotFields& fields) {
    fields.settled = static_cast<std::uint32_t>(receiver.settled());
    const std::uint64_t position = sender.release(claim, fields);
    receiver.reported_by_slot();
    return position;
  }
  /// The same with SlotSender::put().
  template <class PutExtension>
  [[nodiscard]] std::uint64_t put(SlotFields& fields, std::size_t extension_bytes, PutExtension&& put_extension,
                                  const std::byte* from, std::size_t payload_bytes) {
    fields.settled = static_cast<std::uint32_t>(receiver.settled());
    const std::uint64_t position = sender.put(fields, extension_bytes, put_extension, from, payload_bytes);
    if (position != 0) [[likely]]
      receiver.reported_by_slot();
    return position;
  }
};

}  // namespace splitnic::fabric
