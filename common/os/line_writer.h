#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// Writes lines to a descriptor and never waits for its reader. If a pipe, terminal or socket is full, or the disk of a
/// file, the writer buffers at most kMaxWaitingBytes. It loses and counts lines beyond that, and writes a line in their
/// place that says how many. Thread: one at a time.
class LineWriter {
 public:
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{64} << 10U;

  /// descriptor: lent. Its flags stay unchanged, because other processes may share them.
  explicit LineWriter(int descriptor);

  /// line: without its newline, at most kMaxWaitingBytes; the writer cuts off the rest.
  void write(std::string_view line);
  /// Writes buffered lines while there is room. True if no line waits any more.
  bool flush();
  [[nodiscard]] bool waiting() const { return !waiting_.empty() || lost_unreported_ != 0; }
  /// Lines lost so far.
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  enum class Kind : std::uint8_t { file, socket, stream };

  /// Returns how many bytes the descriptor took now. If its reader is gone, all bytes count as taken.
  std::size_t take(std::string_view bytes);
  [[nodiscard]] bool may_take_later(int error) const;
  void push(std::string_view line);

  int descriptor_;
  Kind kind_ = Kind::stream;
  UniqueFd reopened_;  // the same pipe or terminal, reopened with O_NONBLOCK; none if not permitted
  std::deque<std::string> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t lost_unreported_ = 0;
};

}  // namespace splitnic::os
