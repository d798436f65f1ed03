#include "bench/fabric/contents.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/check.h"
#include "common/random.h"

namespace splitnic::bench {

namespace {

/// The bytes of a slot, but for the stamp.
std::vector<std::byte> pattern_of(std::uint32_t id, std::size_t slot, std::size_t bytes) {
  SeededRandom random(std::uint64_t{id} << 32U | slot);
  std::vector<std::byte> pattern(bytes);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(pattern.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return pattern;
}

}  // namespace

void Area::store(std::size_t offset, std::span<const std::byte> from) {
  SPLITNIC_CHECK(region_.store(offset, from) == verbs::Status::ok);
}

void Area::load(std::size_t offset, std::span<std::byte> to) const {
  SPLITNIC_CHECK(region_.load(offset, to) == verbs::Status::ok);
}

std::uint64_t Area::word(std::size_t offset) const {
  std::uint64_t value = 0;
  if (bytes_.empty()) {
    load(offset, std::as_writable_bytes(std::span(&value, 1)));
  } else {
    std::memcpy(&value, bytes_.subspan(offset, sizeof value).data(), sizeof value);
  }
  return value;
}

std::uint64_t stamp_of(std::uint32_t id, const SlotLayout& layout, std::uint64_t sequence) {
  return stamp_of(id, layout, sequence, static_cast<std::size_t>(sequence % layout.slots));
}

void fill(Area& source, const SlotLayout& layout, std::uint32_t id) {
  for (std::size_t slot = 0; slot < layout.slots; ++slot) {
    source.store(layout.offset_in(slot), pattern_of(id, slot, layout.bytes));
    source.set_word(layout.offset_in(slot) + layout.stamp_at, stamp_of(id, layout, slot));
  }
}

void clear(Area& sink, const SlotLayout& layout) {
  sink.store(0, std::vector<std::byte>(layout.slots * layout.stride));
}

Result<void> check_arrived(const Area& sink, const SlotLayout& layout, std::uint32_t id, std::uint64_t count) {
  std::vector<std::byte> found(layout.bytes);
  for (std::uint64_t back = 1; back <= std::min<std::uint64_t>(count, layout.slots); ++back) {
    const std::uint64_t sequence = count - back;
    std::vector<std::byte> expected = pattern_of(id, static_cast<std::size_t>(sequence % layout.slots), layout.bytes);
    const std::uint64_t stamp = stamp_of(id, layout, sequence);
    std::memcpy(expected.data() + layout.stamp_at, &stamp, sizeof stamp);
    sink.load(layout.offset_of(sequence), found);
    const auto differs = std::mismatch(expected.begin(), expected.end(), found.begin()).first;
    if (differs == expected.end()) continue;
    return fail("message {} of {} did not arrive as it was sent: byte {} of {} is another", sequence, count,
                differs - expected.begin(), layout.bytes);
  }
  return {};
}

Result<void> check_counted(const Area& sink, const SlotLayout& layout, std::uint64_t count) {
  for (std::uint64_t back = 1; back <= std::min<std::uint64_t>(count, layout.slots); ++back) {
    const std::uint64_t sequence = count - back;
    const std::uint64_t found = sink.word(layout.offset_of(sequence));
    if (found != sequence) return fail("compare-and-swap {} of {} found {}", sequence, count, found);
  }
  return {};
}

}  // namespace splitnic::bench
