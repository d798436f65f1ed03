#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace splitnic::fabric {

/// Slots of a work queue, allocated once. Positions only grow (64 bits); a position's slot is position mod capacity.
/// The user keeps the positions, and never has more than capacity() of them live.
template <class T>
class Ring {
 public:
  /// At least `least` slots, rounded up to a power of two.
  explicit Ring(std::size_t least)
      : mask_(std::bit_ceil(least == 0 ? 1 : least) - 1), slots_(std::make_unique<T[]>(mask_ + 1)) {}

  /// The slots, for a loop that looks at many.
  class Places {
   public:
    [[nodiscard]] T& operator[](std::uint64_t position) const { return slots_[position & mask_]; }

   private:
    friend class Ring;
    Places(T* slots, std::size_t mask) : slots_(slots), mask_(mask) {}
    T* slots_;
    std::size_t mask_;
  };
  [[nodiscard]] Places places() { return Places(slots_.get(), mask_); }

  [[nodiscard]] std::size_t capacity() const { return mask_ + 1; }
  [[nodiscard]] T& operator[](std::uint64_t position) { return slots_[position & mask_]; }
  [[nodiscard]] const T& operator[](std::uint64_t position) const { return slots_[position & mask_]; }

 private:
  std::size_t mask_;
  std::unique_ptr<T[]> slots_;
};

}  // namespace splitnic::fabric
