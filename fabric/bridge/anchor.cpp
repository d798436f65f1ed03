#include "fabric/bridge/anchor.h"

#include <bit>
#include <cstdint>

#include "common/check.h"
#include "common/crc32c.h"

namespace splitnic::fabric {
namespace {

std::uint32_t checksum_of(const AnchorBytes& bytes) {
  return crc32c(std::as_bytes(std::span(&bytes, 1)).first(offsetof(AnchorBytes, checksum)));
}

void add_region(AnchorBytes& bytes, AnchorRegion kind, std::size_t lane, const MemoryRange& range) {
  const std::uint32_t index = bytes.region_count.value();
  SPLITNIC_CHECK(index < kAnchorMaxRegions);
  AnchorRegionBytes& region = bytes.regions[index];
  region.kind = static_cast<std::uint16_t>(kind);
  region.lane = static_cast<std::uint8_t>(lane);
  region.writer = static_cast<std::uint8_t>(RegionWriter::peer);
  region.offset = range.offset;
  region.bytes = range.bytes;
  bytes.region_count = index + 1;
}

bool is_ring(std::uint64_t bytes, std::size_t most_lines) {
  return std::has_single_bit(bytes) && bytes >= kMinRingLines * kSlotLine && bytes <= most_lines * kSlotLine;
}

/// Takes the regions of a record one after the other; each kind (and lane) exactly once.
class RegionReader {
 public:
  RegionReader(Anchor& anchor, std::size_t anchor_offset, std::size_t window_bytes)
      : anchor_(anchor), window_bytes_(window_bytes) {
    taken_[0] = MemoryRange{anchor_offset, kAnchorBytes};
  }

  /// The bad field's name, or null.
  const char* take(const AnchorRegionBytes& region) {
    const std::uint64_t offset = region.offset.value();
    const std::uint64_t bytes = region.bytes.value();
    if (region.writer.value() != static_cast<std::uint8_t>(RegionWriter::peer)) return "region writer";
    if (region.reserved.value() != 0 || region.reserved2.value() != 0) return "region reserved";
    if (offset % kSlotLine != 0) return "region offset alignment";
    if (bytes % kSlotLine != 0) return "region size alignment";
    const MemoryRange range{offset, bytes};
    if (!within(window_bytes_, range)) return "region beyond the window";
    for (std::size_t i = 0; i < taken_count_; ++i) {
      if (taken_[i].overlaps(range)) return "region overlap";
    }
    taken_[taken_count_++] = range;
    return place(region, range);
  }

  [[nodiscard]] bool complete() const { return taken_count_ == 1 + kSlots; }

 private:
  static constexpr std::size_t kSlots = 3 * kLanes + 4;

  const char* place(const AnchorRegionBytes& region, const MemoryRange& range) {
    const std::size_t lane = region.lane.value();
    const auto kind = static_cast<AnchorRegion>(region.kind.value());
    const bool has_lane = kind == AnchorRegion::slots || kind == AnchorRegion::payload || kind == AnchorRegion::tail;
    if (has_lane ? lane >= kLanes : lane != 0) return "region lane";
    switch (kind) {
      case AnchorRegion::slots:
        if (!is_ring(range.bytes, kMaxSlotLines)) return "slot ring size";
        return put(lane, anchor_.slots[lane], range);
      case AnchorRegion::payload:
        if (!is_ring(range.bytes, kMaxPayloadLines)) return "payload ring size";
        return put(kLanes + lane, anchor_.payloads[lane], range);
      case AnchorRegion::tail:
        if (range.bytes != kSlotLine) return "tail size";
        return put(2 * kLanes + lane, anchor_.tails[lane], range);
      case AnchorRegion::armed:
        if (range.bytes != kSlotLine) return "armed flag size";
        return put(3 * kLanes, anchor_.armed, range);
      case AnchorRegion::mpt:
        if (range.bytes == 0) return "protection table size";
        return put(3 * kLanes + 1, anchor_.mpt, range);
      case AnchorRegion::buffers:
        return put(3 * kLanes + 2, anchor_.buffers, range);
      case AnchorRegion::admissions:
        if (range.bytes == 0) return "admissions size";
        return put(3 * kLanes + 3, anchor_.admissions, range);
    }
    return "region kind";
  }

  const char* put(std::size_t slot, MemoryRange& into, const MemoryRange& range) {
    if (filled_[slot]) return "region twice";
    filled_[slot] = true;
    into = range;
    return nullptr;
  }

  Anchor& anchor_;
  std::size_t window_bytes_;
  std::array<MemoryRange, kAnchorMaxRegions + 1> taken_{};
  std::size_t taken_count_ = 1;
  std::array<bool, kSlots> filled_{};
};

const char* check_header(const AnchorBytes& bytes, std::size_t window_bytes) {
  if (bytes.magic.value() != kAnchorMagic) return "magic";
  if (bytes.version.value() != kAnchorVersion) return "version";
  if (bytes.commit.value() != kAnchorCommit) return "commit word";
  if (bytes.checksum.value() != checksum_of(bytes)) return "checksum";
  if (bytes.record_bytes.value() != kAnchorBytes) return "record bytes";
  if (bytes.epoch.value() == 0) return "epoch";
  if (bytes.peer_epoch.value() == 0) return "peer epoch";
  if (bytes.port_address.value() >= kPortAddressLimit) return "port address";
  if (bytes.memory_bytes.value() < window_bytes) return "memory bytes";
  if (bytes.reserved.value() != 0 || bytes.reserved2.value() != 0) return "reserved";
  if (bytes.region_count.value() > kAnchorMaxRegions) return "region count";
  return nullptr;
}

}  // namespace

AnchorBytes encode_anchor(const Anchor& anchor) {
  AnchorBytes bytes{};
  bytes.magic = kAnchorMagic;
  bytes.version = kAnchorVersion;
  bytes.record_bytes = static_cast<std::uint32_t>(kAnchorBytes);
  bytes.epoch = anchor.epoch.value;
  bytes.peer_epoch = anchor.peer_epoch.value;
  bytes.port_address = anchor.port_address.value;
  bytes.memory_bytes = anchor.memory_bytes;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    add_region(bytes, AnchorRegion::slots, lane, anchor.slots[lane]);
    add_region(bytes, AnchorRegion::payload, lane, anchor.payloads[lane]);
    add_region(bytes, AnchorRegion::tail, lane, anchor.tails[lane]);
  }
  add_region(bytes, AnchorRegion::armed, 0, anchor.armed);
  add_region(bytes, AnchorRegion::mpt, 0, anchor.mpt);
  add_region(bytes, AnchorRegion::buffers, 0, anchor.buffers);
  add_region(bytes, AnchorRegion::admissions, 0, anchor.admissions);
  bytes.checksum = checksum_of(bytes);
  bytes.commit = kAnchorCommit;
  return bytes;
}

tl::expected<Anchor, const char*> decode_anchor(const AnchorBytes& bytes, std::size_t anchor_offset,
                                                std::size_t window_bytes) {
  if (const char* bad = check_header(bytes, window_bytes)) return tl::unexpected<const char*>(bad);
  Anchor anchor;
  anchor.epoch = Epoch{bytes.epoch.value()};
  anchor.peer_epoch = Epoch{bytes.peer_epoch.value()};
  anchor.port_address = PortAddress{bytes.port_address.value()};
  anchor.memory_bytes = bytes.memory_bytes.value();
  RegionReader regions(anchor, anchor_offset, window_bytes);
  for (std::uint32_t i = 0; i < bytes.region_count.value(); ++i) {
    if (const char* bad = regions.take(bytes.regions[i])) return tl::unexpected<const char*>(bad);
  }
  if (!regions.complete()) return tl::unexpected<const char*>("region missing");
  return anchor;
}

}  // namespace splitnic::fabric
