#pragma once

#include <string>

#include "common/notices.h"
#include "common/os/log.h"

namespace splitnic::os {

/// A core's notices as lines of a log, at most LogOptions::limit_per_second of them each second, since peers can cause
/// them at will. Thread: the core's.
class LogNotices final : public Notices {
 public:
  /// log: lent; outlives this.
  explicit LogNotices(Log& log) : log_(log) {}
  void notice(const std::string& line) override { log_.limited("driver", LogLevel::kInfo, "{}", line); }
  /// One line for a run of the same, by Log::recurring.
  void recurring_notice(const std::string& line) override { log_.recurring(LogLevel::kInfo, line); }

 private:
  Log& log_;
};

}  // namespace splitnic::os
