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

/// Allocates tags for a table of slots() entries. Free indices are drawn at random, so that known tags do not reveal
/// the next one. A released index rests until a quarter of the table has been released after it. Each use of an index
/// takes the next instance, through all 256 from a random first one. Index 0 is never allocated. Thread: the owner.
/// Source: S3 (tag index and instance); design, "Protection".
class TagSpace {
 public:
  static constexpr std::size_t kBytesPerSlot = sizeof(std::uint8_t) + 2 * sizeof(std::uint32_t);

  /// capacity: the maximum of live tags. The table has at least twice as many slots (a power of two), so that resting
  /// indices never take the place of a tag.
  TagSpace(std::size_t capacity, RandomSource& random) : random_(random), capacity_(capacity) {
    const std::size_t slots = std::bit_ceil(2 * capacity + 2);
    SPLITNIC_CHECK_OP(slots, <=, std::size_t{1} << 24U);
    rest_slots_ = slots / 4;
    instances_.resize(slots);
    for (auto& instance : instances_) instance = static_cast<std::uint8_t>(random.next32() & 0xffU);
    free_.reserve(slots);
    for (std::uint32_t index = 1; index < slots; ++index) free_.push_back(index);
    resting_.resize(slots);
    if (slots >= kSlotsWorthDrawingAhead) ahead_.resize(kAhead);
    for (auto& index : ahead_) index = draw();
  }

  [[nodiscard]] std::size_t slots() const { return instances_.size(); }

  /// Number of tags that allocate() can still give.
  [[nodiscard]] std::size_t left() const { return capacity_ - live_; }

  /// nullopt: capacity tags are live.
  [[nodiscard]] std::optional<Stag> allocate() {
    if (live_ == capacity_) return std::nullopt;
    std::uint32_t index = draw();
    if (!ahead_.empty()) {
      __builtin_prefetch(&instances_[index]);
      coming_ = index;
      std::swap(index, ahead_[++turn_ % kAhead]);
    }
    ++live_;
    return Stag::from(index, ++instances_[index]);
  }
  /// An index that allocate() will give soon, or 0. The caller may prefetch the entry of that index.
  [[nodiscard]] std::uint32_t coming() const { return coming_; }

  /// The same index under its next instance. tag: a live one.
  [[nodiscard]] Stag renew(Stag tag) { return Stag::from(tag.index(), ++instances_[tag.index()]); }
  /// The same index under the given instance; the next renew() continues from it.
  [[nodiscard]] Stag rename(Stag tag, std::uint8_t instance) {
    instances_[tag.index()] = instance;
    return Stag::from(tag.index(), instance);
  }

  /// tag: a live one.
  void release(Stag tag) {
    SPLITNIC_CHECK(live_ > 0 && tag.index() < slots());
    --live_;
    resting_[rested_++ & (slots() - 1)] = tag.index();
    if (rested_ - awake_ > rest_slots_) free_.push_back(resting_[awake_++ & (slots() - 1)]);
  }

 private:
  // In a large table, the memory of the next index is never in the cache. So indices are drawn a few uses ahead.
  static constexpr std::size_t kAhead = 4;
  static constexpr std::size_t kSlotsWorthDrawingAhead = 1024;

  [[nodiscard]] std::uint32_t draw() {
    const auto drawn = static_cast<std::size_t>(random_.below(free_.size()));
    const std::uint32_t index = free_[drawn];
    free_[drawn] = free_.back();
    free_.pop_back();
    return index;
  }

  RandomSource& random_;
  std::size_t capacity_;
  std::size_t rest_slots_ = 0;
  std::size_t live_ = 0;
  std::vector<std::uint8_t> instances_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> resting_;  // a ring of released indices, oldest at awake_
  std::size_t rested_ = 0;
  std::size_t awake_ = 0;
  std::vector<std::uint32_t> ahead_;
  std::size_t turn_ = 0;
  std::uint32_t coming_ = 0;
};

}  // namespace splitnic::fabric
