#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "fabric/ids.h"

namespace splitnic::fabric {

/// Allocates tags for a table of slots() entries, each with an index of its own. Free slots are drawn at random, so
/// that known tags do not reveal the next one. A released slot rests until a quarter of the table has been released
/// after it. Each use of a slot takes the next instance, through all 256 from a random first one. Slot 0 is never
/// allocated. Thread: the owner. Source: S3 (tag index and instance); design, "Protection".
class TagSpace {
 public:
  static constexpr std::size_t kBytesPerSlot = sizeof(std::uint8_t) + 2 * sizeof(std::uint32_t);

  /// capacity: the maximum of live tags. The table has at least twice as many slots (a power of two), so that resting
  /// indices never take the place of a tag.
  /// first: the index of slot 0, a multiple of slots().
  TagSpace(std::size_t capacity, RandomSource& random, std::uint32_t first = 0)
      : random_(random), capacity_(capacity), first_(first) {
    const std::size_t slots = slots_for(capacity);
    SPLITNIC_CHECK_OP(first + slots, <=, std::size_t{1} << 24U);
    rest_slots_ = slots / 4;
    instances_.resize(slots);
    for (auto& instance : instances_) instance = static_cast<std::uint8_t>(random.next32() & 0xffU);
    free_.reserve(slots);
    for (std::uint32_t slot = 1; slot < slots; ++slot) free_.push_back(slot);
    resting_.resize(slots);
    if (slots >= kSlotsWorthDrawingAhead) ahead_.resize(kAhead);
    for (auto& slot : ahead_) slot = draw();
  }

  [[nodiscard]] static std::size_t slots_for(std::size_t capacity) { return std::bit_ceil(2 * capacity + 2); }
  [[nodiscard]] std::size_t slots() const { return instances_.size(); }
  /// The slot of an index; slots() or more: the index is not of this space.
  [[nodiscard]] std::uint32_t slot_of(std::uint32_t index) const { return index - first_; }
  [[nodiscard]] Stag tag_of(std::uint32_t slot, std::uint8_t instance) const {
    return Stag::from(first_ + slot, instance);
  }

  /// Number of tags that allocate() can still give.
  [[nodiscard]] std::size_t left() const { return capacity_ - live_; }

  /// nullopt: capacity tags are live.
  [[nodiscard]] std::optional<Stag> allocate() {
    if (live_ == capacity_) return std::nullopt;
    std::uint32_t slot = draw();
    if (!ahead_.empty()) {
      __builtin_prefetch(&instances_[slot]);
      coming_ = slot;
      std::swap(slot, ahead_[++turn_ % kAhead]);
    }
    ++live_;
    return tag_of(slot, ++instances_[slot]);
  }
  /// A slot that allocate() will give soon, or 0. The caller may prefetch the entry of that slot.
  [[nodiscard]] std::uint32_t coming() const { return coming_; }

  /// The same index under its next instance. tag: a live one.
  [[nodiscard]] Stag renew(Stag tag) { return Stag::from(tag.index(), ++instances_[slot_of(tag.index())]); }
  /// The same index under the given instance; the next renew() continues from it.
  [[nodiscard]] Stag rename(Stag tag, std::uint8_t instance) {
    instances_[slot_of(tag.index())] = instance;
    return Stag::from(tag.index(), instance);
  }

  /// tag: a live one.
  void release(Stag tag) {
    SPLITNIC_CHECK(live_ > 0 && slot_of(tag.index()) < slots());
    --live_;
    resting_[rested_++ & (slots() - 1)] = slot_of(tag.index());
    if (rested_ - awake_ > rest_slots_) free_.push_back(resting_[awake_++ & (slots() - 1)]);
  }

 private:
  // In a large table, the memory of the next slot is never in the cache. So slots are drawn a few uses ahead.
  static constexpr std::size_t kAhead = 4;
  static constexpr std::size_t kSlotsWorthDrawingAhead = 1024;

  [[nodiscard]] std::uint32_t draw() {
    const auto drawn = static_cast<std::size_t>(random_.below(free_.size()));
    const std::uint32_t slot = free_[drawn];
    free_[drawn] = free_.back();
    free_.pop_back();
    return slot;
  }

  RandomSource& random_;
  std::size_t capacity_;
  std::uint32_t first_;
  std::size_t rest_slots_ = 0;
  std::size_t live_ = 0;
  std::vector<std::uint8_t> instances_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> resting_;  // a ring of released slots, oldest at awake_
  std::size_t rested_ = 0;
  std::size_t awake_ = 0;
  std::vector<std::uint32_t> ahead_;
  std::size_t turn_ = 0;
  std::uint32_t coming_ = 0;
};

}  // namespace splitnic::fabric
