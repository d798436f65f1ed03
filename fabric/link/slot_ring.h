#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/wire/slot.h"

/// What both ends of a slot ring know: slot_sender.h and slot_receiver.h.
namespace splitnic::fabric {

/// Where the pieces of one slot ring lie. Offsets in bytes, multiples of 64.
struct SlotRingPlace {
  std::size_t slots_offset = 0;  ///< in the receiver's memory
  std::size_t slot_lines = 0;    ///< a power of two, 8 .. kMaxSlotLines
  std::size_t payload_offset = 0;
  std::size_t payload_lines = 0;  ///< a power of two, 8 .. kMaxPayloadLines
  std::size_t tail_offset = 0;    ///< of the tail line, in the sender's memory
};
inline constexpr std::size_t kMinRingLines = 8;
inline constexpr std::size_t kMaxSlotLines = std::size_t{1} << 15U;
inline constexpr std::size_t kMaxPayloadLines = std::size_t{1} << 24U;

/// The tail line, pushed by the receiver into the sender's memory; counts since the epoch began.
///
///     0             8            16        24
///    +-------------+------------+---------+-------------- -
///    | answers  64 | settled 64 | tail 64 | unused 40 bytes
///    +-------------+------------+---------+-------------- -
///
/// tail: how many lines it has consumed; their room is the sender's again. settled: how many lines it has dealt with:
/// each slot before was taken, or its refusal was sent in the opposite ring. answers: how many lines of the opposite
/// ring it had sent by then, those refusals among them. settled is stored after answers: a sender that loads settled
/// first, and believes it only after it has read the opposite ring as far as answers says, has read every refusal of a
/// slot before settled. settled may stay behind the tail while a refusal finds no room; so neither direction ever waits
/// for the other, even if both are full.
inline constexpr std::size_t kTailAnswersAt = 0;
inline constexpr std::size_t kTailSettledAt = 8;
inline constexpr std::size_t kTailAt = 16;

[[nodiscard]] constexpr std::uint64_t lines_of(std::size_t bytes) { return (bytes + kSlotLine - 1) / kSlotLine; }

/// What a line's sequence word is: its number since the epoch began, from a seed of both epochs. Bit 31 of the seed is
/// set, so that zeroed memory is no slot before the ring's number has grown by 2^31 lines, when nothing is zero any
/// more.
[[nodiscard]] constexpr std::uint32_t line_sequence(std::uint32_t seed, std::uint64_t line) {
  return (seed | 0x8000'0000U) + static_cast<std::uint32_t>(line);
}
/// The seed as line 0 has it: line_sequence() of any line is so much more.
class LineSequences {
 public:
  LineSequences() = default;
  explicit LineSequences(std::uint32_t seed) : first_(line_sequence(seed, 0)) {}
  [[nodiscard]] std::uint32_t of(std::uint64_t line) const { return first_ + static_cast<std::uint32_t>(line); }

 private:
  std::uint32_t first_ = line_sequence(0, 0);
};

/// CHECKs that offsets and lengths are as SlotRingPlace says, and returns it.
[[nodiscard]] const SlotRingPlace& checked_place(const SlotRingPlace& place);

}  // namespace splitnic::fabric
