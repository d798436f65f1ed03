// A peer's anchor record: any bytes. What is believed of it must be safe to use as it is.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "fabric/bridge/anchor.h"

using namespace splitnic::fabric;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kWindow = 1U << 20U;
  if (size == 0) return 0;
  const std::uint8_t choice = data[0];
  // Half of the inputs start from a good record, so that single fields are reached.
  Anchor good;
  good.epoch = Epoch{1};
  good.peer_epoch = Epoch{2};
  good.memory_bytes = kWindow;
  good.armed = {640, 64};
  good.tails = {MemoryRange{704, 64}, MemoryRange{768, 64}};
  good.slots = {MemoryRange{832, 1024}, MemoryRange{4928, 2048}};
  good.payloads = {MemoryRange{1856, 2048}, MemoryRange{6976, 4096}};
  good.mpt = {13120, 4096};
  good.admissions = {17216, 128};
  good.buffers = {17344, 65536};
  AnchorBytes bytes{};
  if ((choice & 1U) != 0) bytes = encode_anchor(good);
  const auto raw = std::as_writable_bytes(std::span(&bytes, 1));
  if ((choice & 1U) != 0) {
    for (std::size_t i = 1; i + 3 <= size; i += 3) {  // {offset 16, value 8} each
      raw[(data[i] | std::size_t{data[i + 1]} << 8U) % raw.size()] = static_cast<std::byte>(data[i + 2]);
    }
  } else {
    std::memcpy(raw.data(), data + 1, std::min(size - 1, raw.size()));
  }
  if ((choice & 2U) != 0) bytes.checksum = splitnic::crc32c(raw.first(offsetof(AnchorBytes, checksum)));
  if ((choice & 4U) != 0) bytes.commit = kAnchorCommit;
  const std::size_t anchor_offset = (choice & 8U) != 0 ? kWindow - kAnchorBytes : 0;

  const auto anchor = decode_anchor(bytes, anchor_offset, kWindow);
  if (!anchor) {
    SPLITNIC_CHECK(anchor.error() != nullptr);
    return 0;
  }
  std::vector<MemoryRange> ranges{
      {anchor_offset, kAnchorBytes}, anchor->armed, anchor->mpt, anchor->admissions, anchor->buffers};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    ranges.push_back(anchor->slots[lane]);
    ranges.push_back(anchor->payloads[lane]);
    ranges.push_back(anchor->tails[lane]);
    const auto is_ring = [](std::uint64_t ring, std::size_t most) {
      return std::has_single_bit(ring) && ring >= kMinRingLines * kSlotLine && ring <= most * kSlotLine;
    };
    SPLITNIC_CHECK(is_ring(anchor->slots[lane].bytes, kMaxSlotLines));
    SPLITNIC_CHECK(is_ring(anchor->payloads[lane].bytes, kMaxPayloadLines));
    SPLITNIC_CHECK(anchor->tails[lane].bytes == kSlotLine);
  }
  SPLITNIC_CHECK(anchor->armed.bytes == kSlotLine && anchor->mpt.bytes != 0 && anchor->admissions.bytes != 0);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    SPLITNIC_CHECK(ranges[i].offset % kSlotLine == 0 && ranges[i].bytes % kSlotLine == 0);
    SPLITNIC_CHECK(ranges[i].offset <= kWindow && ranges[i].bytes <= kWindow - ranges[i].offset);
    for (std::size_t j = 0; j < i; ++j) {
      SPLITNIC_CHECK(ranges[i].bytes == 0 || ranges[j].bytes == 0 ||
                     ranges[i].offset >= ranges[j].offset + ranges[j].bytes ||
                     ranges[j].offset >= ranges[i].offset + ranges[i].bytes);
    }
  }
  return 0;
}
