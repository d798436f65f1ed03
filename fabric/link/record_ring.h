#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace splitnic::fabric {

/// A bounded FIFO of runs of bytes in private memory, each of them contiguous. Thread: the owner.
class RecordRing {
 public:
  RecordRing() = default;
  /// Takes runs of kShortest .. `longest` bytes, and always one more that makes at most `bytes` altogether.
  RecordRing(std::size_t bytes, std::size_t longest);

  static constexpr std::size_t kShortest = 16;

  /// Room for a run, to be filled and put(); empty: there is none.
  [[nodiscard]] std::span<std::byte> claim(std::size_t bytes);
  /// Appends what was claimed last.
  void put();
  /// The oldest run; empty: there is none. Good until pop().
  [[nodiscard]] std::span<std::byte> front();
  void pop();
  void clear();
  [[nodiscard]] bool empty() const { return head_ == tail_; }
  /// Of the runs inside.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void skip_end();

  std::size_t capacity_ = 0;
  std::size_t longest_ = 0;
  std::unique_ptr<std::byte[]> storage_;
  std::uint64_t head_ = 0;  // positions only grow
  std::uint64_t tail_ = 0;
  std::uint64_t claimed_at_ = 0;
  std::size_t claimed_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace splitnic::fabric
