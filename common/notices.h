#pragma once

#include <string>

namespace splitnic {

/// Lines for people, from a core that knows no logger. Called on the core's thread.
class Notices {
 public:
  virtual ~Notices() = default;
  virtual void notice(const std::string& line) = 0;
  /// For what a peer can cause again and again, a refused hello for example: the same line may be reported once and
  /// only counted afterwards.
  virtual void recurring_notice(const std::string& line) { notice(line); }
};

}  // namespace splitnic
