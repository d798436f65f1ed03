#pragma once

#include "common/os/log.h"

namespace splitnic::testing {

/// A log for code under test whose lines no test looks at.
inline os::Log& quiet_log() {
  static os::Log log("test", {.level = os::LogLevel::kOff});
  return log;
}

}  // namespace splitnic::testing
