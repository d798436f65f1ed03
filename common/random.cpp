#include "common/random.h"

#include <sys/random.h>

#include <bit>

#include "common/check.h"
#include "common/os/uncancelled.h"

namespace splitnic {

std::uint64_t RandomSource::below(std::uint64_t bound) {
  SPLITNIC_CHECK(bound > 0);
  // Rejects the tail of the range, which would favour small values.
  const std::uint64_t threshold = (0 - bound) % bound;
  for (;;) {
    const std::uint64_t candidate = next();
    if (candidate >= threshold) return candidate % bound;
  }
}

std::uint64_t SystemRandom::next() {
  if (used_ == std::size(pool_)) {
    const os::Uncancelled whole;
    std::size_t filled = 0;
    auto* bytes = reinterpret_cast<unsigned char*>(pool_);
    while (filled < sizeof pool_) {
      const ssize_t got = getrandom(bytes + filled, sizeof pool_ - filled, 0);
      if (got > 0) filled += static_cast<std::size_t>(got);
    }
    used_ = 0;
  }
  return pool_[used_++];
}

SeededRandom::SeededRandom(std::uint64_t seed) {
  for (auto& word : state_) {
    seed += 0x9e3779b97f4a7c15ULL;
    std::uint64_t mixed = seed;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebULL;
    word = mixed ^ (mixed >> 31U);
  }
}

std::uint64_t SeededRandom::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

}  // namespace splitnic
