#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace splitnic::hostile {

/// The bytes that decide an attack: a fuzzer's, a seed's, or drawn ones. Behind the end there are zeroes.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint32_t half() {
    const std::uint32_t low = byte();
    return low | std::uint32_t{byte()} << 8U;
  }
  std::uint32_t word() {
    const std::uint32_t low = half();
    return low | half() << 16U;
  }
  std::uint64_t double_word() {
    const std::uint64_t low = word();
    return low | std::uint64_t{word()} << 32U;
  }
  /// The value that fits, or one that does not: the next one, the one before, a small one, any.
  std::uint32_t near(std::uint32_t value) {
    const std::uint8_t how = byte();
    if (how < 232) return value;
    if (how < 238) return value + 1;
    if (how < 244) return value - 1;
    return how < 250 ? byte() : word();
  }
  std::uint64_t near_double(std::uint64_t value) {
    const std::uint8_t how = byte();
    if (how < 232) return value;
    if (how < 244) return value + static_cast<std::uint64_t>(std::int64_t{how} - 238);
    return how < 250 ? byte() : double_word();
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace splitnic::hostile
