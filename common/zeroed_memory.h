#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace splitnic {

/// Zeroed memory that nobody has touched: of a large block, each page takes memory of the machine from its first use
/// on. For buffers whose number is fixed early and of which most are hardly ever used. Aligned for every type of the
/// language. Thread: as the bytes.
class ZeroedMemory {
 public:
  /// Throws std::bad_alloc.
  explicit ZeroedMemory(std::size_t bytes) : memory_(static_cast<std::byte*>(std::calloc(bytes, 1))), bytes_(bytes) {
    if (!memory_ && bytes != 0) throw std::bad_alloc();
  }
  ZeroedMemory(const ZeroedMemory&) = delete;
  ZeroedMemory& operator=(const ZeroedMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

}  // namespace splitnic
