#include "fabric/bridge/link_layout.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace splitnic::fabric {
namespace {

struct RingSizes {
  std::array<std::size_t, kLanes> slots{};
  std::array<std::size_t, kLanes> payloads{};
};

/// The sizes that the options ask for, the largest halved until all together fit `room`, or none can be halved.
RingSizes fitting_rings(const LinkOptions& options, std::size_t room) {
  std::array<std::size_t, 2 * kLanes> sizes;
  std::ranges::copy(options.payload_bytes, sizes.begin());
  std::ranges::copy(options.slot_bytes, sizes.begin() + kLanes);
  const auto total = [&] { return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}); };
  while (total() > room) {
    const auto largest = std::ranges::max_element(sizes);
    if (*largest == LinkOptions::kMinRingBytes) break;
    *largest /= 2;
  }
  RingSizes fitting;
  std::copy_n(sizes.begin(), kLanes, fitting.payloads.begin());
  std::copy_n(sizes.begin() + kLanes, kLanes, fitting.slots.begin());
  return fitting;
}

}  // namespace

std::optional<Anchor> layout_of(const LinkOptions& options, std::size_t memory_bytes) {
  std::size_t used = 0;
  const auto take = [&used](std::size_t bytes) {
    const MemoryRange range{used, bytes};
    used += bytes;
    return range;
  };
  take(kAnchorBytes);
  Anchor layout{};
  layout.port_address = options.port_address;
  layout.memory_bytes = memory_bytes;
  layout.armed = take(kSlotLine);
  for (auto& tail : layout.tails) tail = take(kSlotLine);
  const RingSizes rings = fitting_rings(options, memory_bytes / 4);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    layout.slots[lane] = take(rings.slots[lane]);
    layout.payloads[lane] = take(rings.payloads[lane]);
  }
  layout.mpt = take(options.mpt_entries * kMptEntryBytes);
  layout.admissions = take(admissions_bytes(options.mpt_entries));
  if (used > memory_bytes) return std::nullopt;
  layout.buffers = take((memory_bytes - used) / kSlotLine * kSlotLine);
  return layout;
}

}  // namespace splitnic::fabric
