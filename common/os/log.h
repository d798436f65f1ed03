#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/time.h"

namespace spdlog {
class logger;
}

namespace splitnic::os {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// "debug", "info", "warning" (or "warn"), "error", "off"; nullopt for anything else.
std::optional<LogLevel> parse_log_level(std::string_view text);

/// Where a Log writes and what clock its rate limit reads. Both replaceable, for tests.
struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  /// Lines with the same key let through per second.
  std::uint32_t limit_per_second = 5;
  /// How long a recurring line is only counted before it is written again.
  Duration recurring_interval = std::chrono::minutes(10);
  /// Given each line without time and newline; empty: `descriptor`, with the time of day in front.
  std::function<void(std::string_view line)> write{};
  std::function<Time()> clock = monotonic_now;
  /// stderr, unless a test says otherwise. Lent.
  int descriptor = 2;
};

/// Lines for people: "12:03:04.123 info  host web1: link up". Handed to cores by reference; there is no global one.
/// Control characters in the text are replaced, since much of it comes from peers. Never waits for whoever reads the
/// log: lines that find no room are lost and counted (LineWriter). Any thread.
class Log {
 public:
  /// subject: who is speaking, "host web1".
  explicit Log(const std::string& subject, LogOptions options = {});
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(LogLevel::kDebug)) write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(LogLevel::kInfo)) write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(LogLevel::kWarning)) write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(LogLevel::kError)) write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }

  /// For whatever peers can cause at will: of the lines with one key at most limit_per_second are written each second;
  /// the next one that is ends in "(suppressed n similar)". key: one per call site, or per call site and peer. The text
  /// is formatted only when it is written.
  template <class... Args>
  void limited(std::string_view key, LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (!enabled(level)) return;
    const std::optional<std::uint64_t> suppressed = admit(key);
    if (!suppressed) return;
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    if (*suppressed != 0) text += fmt::format(" (suppressed {} similar)", *suppressed);
    write(level, text);
  }

  /// For whatever a peer can cause for ever: a line is written the first time; equal ones are counted afterwards, and
  /// one of them is written again after recurring_interval, with their number. Different lines are limited together,
  /// as limited() does.
  void recurring(LogLevel level, std::string_view line);

  /// Writes lines that wait for their reader, as far as there is room now. True when none waits.
  bool flush();
  [[nodiscard]] bool waiting() const;
  /// Lines that were lost because nobody read them.
  [[nodiscard]] std::uint64_t lost() const;

  [[nodiscard]] bool enabled(LogLevel level) const { return level >= options_.level; }

 private:
  struct Window {
    Time began{};
    std::uint32_t written = 0;
    std::uint64_t suppressed = 0;
  };
  /// Keys are bounded too: what is over shares one window.
  static constexpr std::size_t kMaxKeys = 256;

  struct Recurring {
    Time written{};
    std::uint64_t since = 0;
  };
  class Sink;

  std::optional<std::uint64_t> admit(std::string_view key);
  void write(LogLevel level, std::string_view text);

  std::string subject_;
  LogOptions options_;
  std::shared_ptr<Sink> sink_;
  std::shared_ptr<spdlog::logger> logger_;
  std::mutex windows_mutex_;  // of the two maps
  std::map<std::string, Window, std::less<>> windows_;
  std::map<std::string, Recurring, std::less<>> recurring_;
};

}  // namespace splitnic::os
