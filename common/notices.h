#pragma once

#include <string>

namespace splitnic {

/// Lines for people, from a core that knows no logger. Called on the core's thread.
class Notices {
 public:
  virtual ~Notices() = default;
  virtual void notice(const std::string& line) = 0;
};

}  // namespace splitnic
