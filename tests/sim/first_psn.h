#pragma once

#include <cstdint>

#include "common/random.h"

namespace splitnic::sim {

/// The first packet sequence number of a stream. One of three is about to wrap: a run would hardly meet that otherwise.
inline std::uint32_t draw_first_psn(RandomSource& random) {
  const std::uint32_t drawn = random.next32();
  return drawn % 3 == 0 ? drawn | 0xffff'fff0U : drawn;
}

}  // namespace splitnic::sim
