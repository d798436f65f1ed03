#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace splitnic {

/// A core's source of random numbers. Thread: the owner's.
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  /// 64 uniformly distributed bits.
  virtual std::uint64_t next() = 0;
  /// Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound);
  std::uint32_t next32() { return static_cast<std::uint32_t>(next() >> 32U); }
};

/// The kernel's generator (getrandom): unpredictable to peers, for epochs and tags. Buffered, so numbers are cheap.
class SystemRandom final : public RandomSource {
 public:
  std::uint64_t next() override;

 private:
  std::uint64_t pool_[64]{};
  std::size_t used_ = 64;
};

/// Reproducible numbers from a seed (splitmix64 into xoshiro256**): for tests and the simulation, never for production.
class SeededRandom final : public RandomSource {
 public:
  explicit SeededRandom(std::uint64_t seed);
  std::uint64_t next() override;

 private:
  std::uint64_t state_[4];
};

}  // namespace splitnic
