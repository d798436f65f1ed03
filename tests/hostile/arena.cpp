#include "tests/hostile/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace splitnic::fabric::hostile {
namespace {

constexpr std::array kMayBeRead{Arena::kOpen, Arena::kReadable, Arena::kWindow};
// Owner::judge_memory() compares the honest initiator's region with its model, byte by byte.
constexpr std::array kMayBeWritten{Arena::kOpen, Arena::kWritable, Arena::kWindow,        Arena::kReceives,
                                   Arena::kSink, Arena::kHonest,   Arena::kHonestReceives};

bool in_any(std::span<const MemoryRange> ranges, std::size_t offset) {
  return std::ranges::any_of(ranges, [offset](const MemoryRange& range) {
    return offset >= range.offset && offset - range.offset < range.bytes;
  });
}

}  // namespace

Arena::Arena() : memory_(kBytes), before_(kBytes) {
  for (std::size_t offset = 0; offset < kBytes; offset += sizeof kSecret) {
    const std::uint64_t word = in_any(kMayBeRead, offset) ? offset : kSecret;
    std::memcpy(&memory_[offset], &word, sizeof word);
  }
  std::ranges::fill(at(kHonest), std::byte{0});
  before_ = memory_;
}

std::string Arena::damage() const {
  for (std::size_t offset = 0; offset < kBytes; ++offset) {
    if (memory_[offset] == before_[offset] || in_any(kMayBeWritten, offset)) continue;
    return fmt::format("byte {:#x} of the arena was {:#04x} and is {:#04x}", offset,
                       std::to_integer<unsigned>(before_[offset]), std::to_integer<unsigned>(memory_[offset]));
  }
  return {};
}

}  // namespace splitnic::fabric::hostile
