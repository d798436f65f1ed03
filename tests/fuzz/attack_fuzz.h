#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/came_up.h"
#include "tests/hostile_sessions/world.h"

/// What the targets have in common that attack a state machine: a hostile end whose link, adapter and channels are
/// valid; the input decides what it says and when. See tests/hostile_sessions/world.h for what must hold meanwhile and
/// afterwards. Included by one file of each target.
namespace splitnic::hostile {

namespace {

bool came_up = false;

int fuzz(Tally (*attack)(Input&, unsigned), const std::uint8_t* data, std::size_t size) {
  Input input({data, std::min<std::size_t>(size, 2048)});
  came_up = attack(input, 1).acts_while_up != 0;
  return 0;
}

}  // namespace

}  // namespace splitnic::hostile

extern "C" bool splitnic_fuzz_came_up() { return splitnic::hostile::came_up; }
