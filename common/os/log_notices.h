#pragma once

#include <string>
#include <string_view>

#include "common/notices.h"
#include "common/os/log.h"

namespace splitnic::os {

/// Writes a core's notices to a log, at most LogOptions::limit_per_second of each source each second, because peers can
/// cause them at will. Thread: the core's.
class LogNotices final : public Notices {
 public:
  /// log: lent; outlives this.
  explicit LogNotices(Log& log, LogLevel level = LogLevel::kInfo) : log_(log), level_(level) {}
  /// No peer chooses the text, so there are few different lines, and one that comes often hides no other.
  void notice(const std::string& line) override { log_.limited(line, level_, "{}", line); }
  /// Writes one line for a run of equal notices, with Log::recurring.
  void recurring_notice(const std::string& line) override { log_.recurring(level_, line); }
  void notice_from(std::string_view source, const std::string& line) override {
    log_.limited(source, level_, "{}", line);
  }
  void recurring_notice_from(std::string_view source, const std::string& line) override {
    log_.recurring(level_, line, source);
  }

 private:
  Log& log_;
  LogLevel level_;
};

}  // namespace splitnic::os
