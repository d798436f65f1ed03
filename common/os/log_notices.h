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
  explicit LogNotices(Log& log, LogLevel level = LogLevel::kInfo) : log_(log), level_(level) {}
  void notice(const std::string& line) override { log_.limited("driver", level_, "{}", line); }
  /// One line for a run of the same, by Log::recurring.
  void recurring_notice(const std::string& line) override { log_.recurring(level_, line); }

 private:
  Log& log_;
  LogLevel level_;
};

}  // namespace splitnic::os
