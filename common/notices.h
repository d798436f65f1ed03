#pragma once

#include <string>

namespace splitnic {

/// Receives lines for people from a core, which knows no logger. Called on the core's thread.
class Notices {
 public:
  virtual ~Notices() = default;
  virtual void notice(const std::string& line) = 0;
  /// For events that a peer can cause again and again, for example a refused hello: the same line may be reported once
  /// and only counted afterwards.
  virtual void recurring_notice(const std::string& line) { notice(line); }
};

}  // namespace splitnic
