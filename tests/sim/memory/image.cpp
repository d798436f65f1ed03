#include "image.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace splitnic::sim {

std::size_t bytes_of(const Pieces& pieces) {
  std::size_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes;
  return total;
}

Pieces part_of(const Pieces& pieces, std::size_t offset, std::size_t bytes) {
  Pieces part;
  for (const Piece& piece : pieces) {
    if (offset >= piece.bytes) {
      offset -= piece.bytes;
      continue;
    }
    const std::size_t here = std::min(bytes, piece.bytes - offset);
    if (here == 0) break;
    part.push_back({piece.image, piece.offset + offset, here});
    bytes -= here;
    offset = 0;
  }
  return part;
}

bool overlap(const Piece& left, const Piece& right) {
  return left.image == right.image && left.offset < right.offset + right.bytes &&
         right.offset < left.offset + left.bytes;
}

Image::Image(std::string name, fabric::PeerMemory memory) : name_(std::move(name)) { adopt(memory); }

std::byte Image::actual(std::size_t offset) const {
  std::byte byte{};
  memory_.copy_out(offset, std::span(&byte, 1));
  return byte;
}

void Image::adopt(fabric::PeerMemory memory) {
  memory_ = memory;
  expected_.resize(memory.size());
  copy_.resize(memory.size());
  memory_.copy_out(0, expected_);
}

void Image::store(std::size_t offset, std::span<const std::byte> bytes) {
  memory_.store_bytes(offset, bytes);
  std::ranges::copy(bytes, expected_.begin() + static_cast<std::ptrdiff_t>(offset));
}

void Image::fill(const Piece& piece, RandomSource& random) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < piece.bytes; ++i, word >>= 8U) {
    if (i % 8 == 0) word = random.next();
    expected_[piece.offset + i] = static_cast<std::byte>(word);
  }
  memory_.store_bytes(piece.offset, std::span(expected_).subspan(piece.offset, piece.bytes));
}

std::size_t Image::first_difference() {
  if (expected_.empty()) return 0;  // of an end without a bridge
  memory_.copy_out(0, copy_);
  if (std::memcmp(copy_.data(), expected_.data(), size()) == 0) return size();
  return static_cast<std::size_t>(std::ranges::mismatch(copy_, expected_).in1 - copy_.begin());
}

Arena::Arena(RandomSource& random) : memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, kBytes))) {
  if (memory_ == nullptr) throw std::bad_alloc();
  std::ranges::generate(memory(), [&random] { return static_cast<std::byte>(random.next()); });
}

Arena::~Arena() { std::free(memory_); }

}  // namespace splitnic::sim
