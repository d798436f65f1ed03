#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// Writes lines to a descriptor and never waits for its reader: what does not fit into a pipe, a terminal or a socket
/// waits here, at most kMaxWaitingBytes of it. Lines beyond that are lost and counted; a line in their place says how
/// many. A regular file takes every line at once. Thread: one at a time.
class LineWriter {
 public:
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{64} << 10U;

  /// descriptor: lent, and its flags stay as they are, since other processes may share them.
  explicit LineWriter(int descriptor);

  /// line: without its newline, at most kMaxWaitingBytes, the rest is cut off.
  void write(std::string_view line);
  /// Writes what waits, as far as the reader has made room. True when nothing waits any more.
  bool flush();
  [[nodiscard]] bool waiting() const { return !waiting_.empty() || lost_unreported_ != 0; }
  /// Lines lost so far.
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  enum class Kind : std::uint8_t { file, socket, stream };

  /// Bytes that the descriptor took now. Those of a descriptor that fails (its reader is gone) count as taken.
  std::size_t take(std::string_view bytes);
  void push(std::string_view line);

  int descriptor_;
  Kind kind_ = Kind::stream;
  UniqueFd reopened_;  // the same pipe or terminal with an O_NONBLOCK of its own; none where that is not permitted
  std::deque<std::string> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t lost_unreported_ = 0;
};

}  // namespace splitnic::os
