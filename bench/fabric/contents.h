#pragma once

#include <boost/align/aligned_allocator.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "bench/fabric/measurement.h"
#include "common/result.h"
#include "fabric/verbs/verbs.h"

namespace splitnic::bench {

/// Memory that begins with a page.
using AlignedBytes = std::vector<std::byte, boost::alignment::aligned_allocator<std::byte, 4096>>;

/// Registered memory of one end. Owns the registration, not the bytes.
class Area {
 public:
  Area() = default;
  /// Of the process, at `bytes`; or of the bridge, without.
  explicit Area(verbs::MemoryRegion region, std::span<std::byte> bytes = {})
      : region_(std::move(region)), bytes_(bytes) {}

  [[nodiscard]] verbs::RemoteKey key() const { return region_.remote_key(); }
  [[nodiscard]] verbs::LocalSegment segment(std::size_t offset, std::size_t bytes) const {
    return region_.segment(offset, bytes);
  }

  /// CHECKs that the region is valid and has the bytes.
  void store(std::size_t offset, std::span<const std::byte> from);
  void load(std::size_t offset, std::span<std::byte> to) const;
  [[nodiscard]] std::uint64_t word(std::size_t offset) const;
  void set_word(std::size_t offset, std::uint64_t value) {
    if (bytes_.empty()) return store(offset, std::as_bytes(std::span(&value, 1)));
    std::memcpy(bytes_.subspan(offset, sizeof value).data(), &value, sizeof value);
  }

 private:
  verbs::MemoryRegion region_;
  std::span<std::byte> bytes_;
};

inline constexpr unsigned kStampIdShift = 40;
/// The stamp of the message whose bytes a slot holds. id: the flow's, so that bytes of an earlier flow do not match.
[[nodiscard]] std::uint64_t stamp_of(std::uint32_t id, const SlotLayout& layout, std::uint64_t sequence);
/// The same, of a message whose slot is known: what a sender does for each message.
[[nodiscard]] inline std::uint64_t stamp_of(std::uint32_t id, const SlotLayout& layout, std::uint64_t sequence,
                                            std::size_t slot) {
  return (std::uint64_t{id} << kStampIdShift) + (layout.source_moves ? sequence : slot) + 1;
}

/// The source's slots as they are before the first message, stamps included.
void fill(Area& source, const SlotLayout& layout, std::uint32_t id);
void clear(Area& sink, const SlotLayout& layout);
/// Compares every byte of the sink with its expected content when messages 0 .. count - 1 have arrived. The error names
/// the message that differs.
Result<void> check_arrived(const Area& sink, const SlotLayout& layout, std::uint32_t id, std::uint64_t count);
/// Likewise of compare-and-swaps that count a word up: each slot holds what the word held before.
Result<void> check_counted(const Area& sink, const SlotLayout& layout, std::uint64_t count);

}  // namespace splitnic::bench
