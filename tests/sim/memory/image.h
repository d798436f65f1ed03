#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "fabric/bridge/peer_memory.h"

namespace splitnic::sim {

/// Neighbouring bytes of an image.
struct Piece {
  std::size_t image = 0;  ///< its number
  std::size_t offset = 0;
  std::size_t bytes = 0;
};
using Pieces = std::vector<Piece>;

std::size_t bytes_of(const Pieces& pieces);
/// [offset, offset + bytes) of the bytes that the pieces make together.
Pieces part_of(const Pieces& pieces, std::size_t offset, std::size_t bytes);
bool overlap(const Piece& left, const Piece& right);

/// A memory, and what the reference model says that it holds. Nothing may ever differ when the world is at rest.
class Image {
 public:
  Image(std::string name, fabric::PeerMemory memory);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t size() const { return expected_.size(); }
  [[nodiscard]] std::span<std::byte> expected() { return expected_; }
  /// As it is.
  [[nodiscard]] std::byte actual(std::size_t offset) const;
  /// The memory is another one, or laid out anew: what it holds is believed.
  void adopt(fabric::PeerMemory memory);
  /// What the byte holds is believed.
  void adopt(std::size_t offset) { expected_[offset] = actual(offset); }
  /// The process's own store.
  void store(std::size_t offset, std::span<const std::byte> bytes);
  void fill(const Piece& piece, RandomSource& random);

  /// Offset of the first byte that is not as expected; size(): there is none.
  [[nodiscard]] std::size_t first_difference();

 private:
  std::string name_;
  fabric::PeerMemory memory_;
  std::vector<std::byte> expected_;
  std::vector<std::byte> copy_;
};

/// Memory of a process, at the start of a page. No region reaches into its first and last page.
class Arena {
 public:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kPages = 6;
  static constexpr std::size_t kBytes = kPages * kPage;

  explicit Arena(RandomSource& random);
  ~Arena();
  Arena(Arena&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  Arena& operator=(Arena&&) = delete;

  [[nodiscard]] std::span<std::byte> memory() const { return {memory_, kBytes}; }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return memory_ + offset; }

 private:
  std::byte* memory_;
};

}  // namespace splitnic::sim
