#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "common/random.h"
#include "common/result.h"
#include "fabric/bridge/link.h"

namespace splitnic::fabric {

/// A link inside one process, between queue pairs of one adapter or of two. One adapter attaches both ends, as two
/// paths; or two adapters attach one each, also on two threads: an end belongs to the thread that polls it. The rings
/// are those of a bridge, in memory that no other process has. So a post puts cells into a bounded ring, never runs the
/// responder, and is refused when the ring is full.
class Loopback {
 public:
  /// The memory of one end: rings, and buffers that the other end may write directly.
  static constexpr std::size_t kDefaultBytes = 1U << 20U;

  /// bytes: of each end, a multiple of 4096. options, random: by end; random is lent, and drawn from by the end's
  /// owner. Errors: no memory, no descriptors.
  [[nodiscard]] static Result<std::unique_ptr<Loopback>> create(const std::array<LinkOptions, 2>& options,
                                                                const std::array<RandomSource*, 2>& random,
                                                                std::size_t bytes = kDefaultBytes);

  /// index: 0 or 1. Each is polled by its owner, and comes up when both are.
  [[nodiscard]] FabricLink& end(std::size_t index) { return *links_.at(index); }

 private:
  Loopback() = default;

  std::array<std::unique_ptr<Bridge>, 2> bridges_;
  std::array<std::unique_ptr<FabricLink>, 2> links_;
};

}  // namespace splitnic::fabric
