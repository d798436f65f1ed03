#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fabric/bridge/anchor.h"
#include "tests/hostile/board.h"

namespace splitnic::fabric::hostile {

/// The owner's memory, which the tests compare as a whole: ranges to register, with canaries between and around them.
/// All memory that the hostile initiator may not read is filled with one word. The initiator searches for this word in
/// everything that it receives.
class Arena {
 public:
  static constexpr std::size_t kBytes = 512U << 10U;
  static constexpr std::uint64_t kSecret = 0x5ec2e75ec2e75ec2;

  // The ranges of the hostile initiator, named as in Introduction; then those of the honest initiator.
  static constexpr MemoryRange kOpen{64U << 10U, 16U << 10U};
  static constexpr MemoryRange kReadable{96U << 10U, 8U << 10U};
  static constexpr MemoryRange kWritable{112U << 10U, 8U << 10U};
  static constexpr MemoryRange kLocal{128U << 10U, 8U << 10U};
  static constexpr MemoryRange kForeign{144U << 10U, 8U << 10U};
  static constexpr MemoryRange kOthers{160U << 10U, 8U << 10U};
  static constexpr MemoryRange kWindowed{176U << 10U, 16U << 10U};
  static constexpr MemoryRange kWindow{180U << 10U, 4U << 10U};
  static constexpr MemoryRange kStale{200U << 10U, 8U << 10U};
  static constexpr MemoryRange kReceives{216U << 10U, 8U << 10U};
  static constexpr MemoryRange kSink{232U << 10U, 4U << 10U};
  static constexpr MemoryRange kHonest{256U << 10U, kHonestBytes};
  static constexpr MemoryRange kHonestReceives{336U << 10U, 8U << 10U};

  Arena();

  [[nodiscard]] std::span<std::byte> at(const MemoryRange& range) {
    return std::span(memory_).subspan(range.offset, range.bytes);
  }
  /// Describes the first changed byte outside of the ranges that may be written; empty: there is none.
  [[nodiscard]] std::string damage() const;

 private:
  std::vector<std::byte> memory_;
  std::vector<std::byte> before_;
};

}  // namespace splitnic::fabric::hostile
