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

/// Where a Log writes, and the clock of its rate limit. Tests replace both.
struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  /// Maximum number of lines with the same key per second.
  std::uint32_t limit_per_second = 5;
  /// How long the log only counts a recurring line before it writes the line again.
  Duration recurring_interval = std::chrono::minutes(10);
  /// Receives each line without time and newline. If empty, the log writes to `descriptor`, with the time of day in
  /// front.
  std::function<void(std::string_view line)> write{};
  std::function<Time()> clock = monotonic_now;
  /// stderr, except in tests. Lent.
  int descriptor = 2;
};

/// Lines for people: "12:03:04.123 info host web1: link up". Cores receive it by reference; there is no global one. The
/// log replaces control characters in the text, because much of the text comes from peers. It never waits for the
/// reader of the log: it loses and counts lines that find no room (LineWriter). Any thread.
class Log {
 public:
  /// subject: the name of the daemon in each line, "host web1".
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

  /// For events that peers can cause at will. The log writes at most limit_per_second lines with one key each second.
  /// The next line that it writes ends in "(suppressed n similar)". key: one per call site, or per call site and peer.
  /// The text is formatted only when it is written.
  template <class... Args>
  void limited(std::string_view key, LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (!enabled(level)) return;
    const std::optional<std::uint64_t> suppressed = admit(key);
    if (!suppressed) return;
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    if (*suppressed != 0) text += fmt::format(" (suppressed {} similar)", *suppressed);
    write(level, text);
  }

  /// For events that a peer can cause without end. The log writes a line the first time and then counts equal lines.
  /// After recurring_interval it writes the next one again, with their number. Different lines with one key share one
  /// limit, as in limited(); the log remembers kMaxRecurring lines of a key and forgets the one written longest ago.
  void recurring(LogLevel level, std::string_view line, std::string_view key = "recurring lines");

  /// A thread that may write lines after the filter of system calls has closed calls this before: its first line asks
  /// the kernel for the thread's number.
  static void prepare_thread();

  /// Writes waiting lines while there is room. True if no line waits any more.
  bool flush();
  [[nodiscard]] bool waiting() const;
  /// Lines that were lost because nobody read them, or because the disk was full.
  [[nodiscard]] std::uint64_t lost() const;

  [[nodiscard]] bool enabled(LogLevel level) const { return level >= options_.level; }

 private:
  struct Window {
    Time began{};
    std::uint32_t written = 0;
    std::uint64_t suppressed = 0;
  };
  /// The number of keys is bounded, too; all further keys share one window.
  static constexpr std::size_t kMaxKeys = 4096;
  static constexpr std::size_t kMaxRecurring = 16;

  struct Recurring {
    Time written{};
    std::uint64_t since = 0;
  };
  using Lines = std::map<std::string, Recurring, std::less<>>;
  class Sink;

  std::optional<std::uint64_t> admit(std::string_view key);
  static void forget_oldest(Lines& lines);
  void write(LogLevel level, std::string_view text);

  std::string subject_;
  LogOptions options_;
  std::shared_ptr<Sink> sink_;
  std::shared_ptr<spdlog::logger> logger_;
  std::mutex windows_mutex_;  // protects the two maps
  std::map<std::string, Window, std::less<>> windows_;
  std::map<std::string, Lines, std::less<>> recurring_;  // by key
};

}  // namespace splitnic::os
