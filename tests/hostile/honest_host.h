#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/hostile/board.h"

namespace splitnic::fabric::hostile {

inline constexpr std::size_t kGreetingBytes = 128;

/// Byte i of the honest initiator's n-th send.
constexpr std::byte greeting_byte(std::uint64_t n, std::size_t i) { return static_cast<std::byte>(n * 31 + i * 7); }

/// The honest initiator's life: writes, reads back, counts with atomics and sends, one operation after the other, until
/// told to finish; verifies each. Its exit status: 0, or something else where one of them was not as it has to be.
int run_honest_host(const std::string& path, Board& board, std::uint64_t seed);

}  // namespace splitnic::fabric::hostile
