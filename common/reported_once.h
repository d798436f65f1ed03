#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>

namespace splitnic {

/// Remembers the reported lines, so that an attempt that fails repeatedly reports each reason once. Keeps the last
/// kMaxLines lines. Thread: the owner's.
class ReportedOnce {
 public:
  static constexpr std::size_t kMaxLines = 16;

  /// True if the caller should report this line: it is not among the lines kept since the last clear().
  [[nodiscard]] bool first_time(const std::string& line) {
    if (std::find(lines_.begin(), lines_.end(), line) != lines_.end()) return false;
    if (lines_.size() == kMaxLines) lines_.pop_front();
    lines_.push_back(line);
    return true;
  }
  /// Call it when an attempt has succeeded: the next failure is reported again.
  void clear() { lines_.clear(); }

 private:
  std::deque<std::string> lines_;
};

}  // namespace splitnic
