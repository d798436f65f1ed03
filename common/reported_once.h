#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>

namespace splitnic {

/// Which lines have been reported, so that an attempt that fails again and again reports each reason once. Keeps the
/// last kMaxLines of them. Thread: the owner's.
class ReportedOnce {
 public:
  static constexpr std::size_t kMaxLines = 16;

  /// Whether this line is to be reported: it was not among those since the last clear().
  [[nodiscard]] bool first_time(const std::string& line) {
    if (std::find(lines_.begin(), lines_.end(), line) != lines_.end()) return false;
    if (lines_.size() == kMaxLines) lines_.pop_front();
    lines_.push_back(line);
    return true;
  }
  /// The attempt has succeeded: the next failure is news again.
  void clear() { lines_.clear(); }

 private:
  std::deque<std::string> lines_;
};

}  // namespace splitnic
