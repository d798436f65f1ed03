#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/hostile/board.h"

namespace splitnic::fabric::hostile {

inline constexpr std::size_t kGreetingBytes = 128;

/// Byte i of the honest initiator's n-th send.
constexpr std::byte greeting_byte(std::uint64_t n, std::size_t i) { return static_cast<std::byte>(n * 31 + i * 7); }

/// Runs the honest initiator. It writes, reads back, counts with atomics and sends, one operation after another, until
/// the board says to finish, and verifies each operation. Returns the exit status: 0 if all results were right.
int run_honest_host(const std::string& path, Board& board, std::uint64_t seed);

}  // namespace splitnic::fabric::hostile
