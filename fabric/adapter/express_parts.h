#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fabric/adapter/queue_pair.h"
#include "fabric/link/slot_ring.h"
#include "fabric/memory/store_habit.h"

/// What the sources of Express share.
namespace splitnic::fabric::express_parts {

[[nodiscard]] inline bool is_plain(const QueuePairAttributes& options) {
  return options.acknowledged && !options.datagram && options.xrc == XrcRole::none;
}

/// Nothing but its operation and its segments decides how the request goes.
[[nodiscard]] inline bool is_simple(const WorkRequest& request) {
  return !request.fence && request.memory == nullptr && request.placed_bytes == 0;
}

/// False: the process does not have this memory any more.
[[nodiscard]] inline bool fill(std::span<std::byte> to, const std::byte* from, StoreHabit& stores) {
  return to.empty() || stores.store(to.data(), from, to.size());
}

template <class Header>
std::byte* append(std::byte* to, const Header& header) {
  std::memcpy(to, &header, sizeof header);
  return to + sizeof header;
}

/// bytes: of the message.
inline std::byte* append_rdma(std::byte* to, const RemoteAddress& remote, std::uint32_t bytes) {
  RdmaHeader rdma;
  rdma.address = remote.address;
  rdma.tag = remote.tag.value;
  rdma.length = bytes;
  return append(to, rdma);
}

template <class Header>
[[nodiscard]] Header header_at(std::span<const std::byte> extension, std::size_t offset) {
  Header header;
  std::memcpy(&header, extension.subspan(offset, sizeof header).data(), sizeof header);
  return header;
}

/// A message of one slot; put_extension(to) writes its extended header. Returns its position. 0: there is no room, or
/// the process does not have this memory any more.
template <class PutExtension>
[[nodiscard]] std::uint64_t send_slot(SlotLane& slots, SlotFields& fields, std::size_t extension_bytes,
                                      PutExtension&& put_extension, const std::byte* from, std::size_t bytes) {
  const std::uint64_t position = slots.put(fields, extension_bytes, put_extension, from, bytes);
  if (position != 0) return position;
  SlotClaim claim;
  if (!slots.sender.claim(extension_bytes, bytes, claim)) return 0;
  // The peer looks at the first line all the time: it is written last, so that it is fetched from the peer only once.
  const bool filled =
      fill(claim.payload_rest, from + claim.payload.size(), slots.stores) && fill(claim.payload, from, slots.stores);
  if (!filled) return 0;
  put_extension(claim.extension);
  return slots.release(claim, fields);
}

}  // namespace splitnic::fabric::express_parts
