#include "common/os/log.h"

#include <algorithm>

#include <spdlog/details/os.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include "common/os/line_writer.h"
#include "common/os/printable.h"

namespace splitnic::os {
namespace {

constexpr Duration kWindow = std::chrono::seconds(1);

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info ";
    case LogLevel::kWarning:
      return "warn ";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      break;
  }
  return "off  ";
}

}  // namespace

/// spdlog adds the time to the lines; the LineWriter writes them.
class Log::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(int descriptor) : writer_(descriptor) {}
  bool write_waiting() {
    const std::lock_guard lock(mutex_);
    return writer_.flush();
  }
  bool waiting() {
    const std::lock_guard lock(mutex_);
    return writer_.waiting();
  }
  std::uint64_t lost() {
    const std::lock_guard lock(mutex_);
    return writer_.lost();
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string_view text(line.data(), line.size());
    while (text.ends_with('\n')) text.remove_suffix(1);
    writer_.write(text);
  }
  void flush_() override {}

  LineWriter writer_;
};

std::optional<LogLevel> parse_log_level(std::string_view text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning" || text == "warn") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  if (text == "off") return LogLevel::kOff;
  return std::nullopt;
}

Log::Log(const std::string& subject, LogOptions options) : subject_(printable(subject)), options_(std::move(options)) {
  if (options_.write) return;
  sink_ = std::make_shared<Sink>(options_.descriptor);
  logger_ = std::make_shared<spdlog::logger>(subject_, sink_);
  logger_->set_pattern("%H:%M:%S.%e %v");
}

// Without this the log would never report lines suppressed after the last line of their key.
Log::~Log() {
  for (const auto& [key, lines] : recurring_) {
    for (const auto& [line, recurring] : lines) {
      if (recurring.since != 0) write(LogLevel::kInfo, fmt::format("{} ({} more times)", line, recurring.since));
    }
  }
  for (const auto& [key, window] : windows_) {
    if (window.suppressed != 0)
      write(LogLevel::kInfo, fmt::format("{}: suppressed {} similar", key, window.suppressed));
  }
}

std::optional<std::uint64_t> Log::admit(std::string_view key) {
  const Time now = options_.clock();
  const std::lock_guard lock(windows_mutex_);
  auto found = windows_.find(key);
  if (found == windows_.end()) {
    const std::string_view slot = windows_.size() < kMaxKeys ? key : std::string_view("other messages");
    found = windows_.try_emplace(std::string(slot), Window{now}).first;
  }
  Window& window = found->second;
  if (now - window.began >= kWindow) {
    window.began = now;
    window.written = 0;
  }
  if (window.written >= options_.limit_per_second) {
    ++window.suppressed;
    return std::nullopt;
  }
  ++window.written;
  return std::exchange(window.suppressed, 0);
}

void Log::recurring(LogLevel level, std::string_view line, std::string_view key) {
  if (!enabled(level)) return;
  std::uint64_t since = 0;
  {
    const Time now = options_.clock();
    const std::lock_guard lock(windows_mutex_);
    auto lines = recurring_.find(key);
    if (lines == recurring_.end()) {
      // The keys are bounded, too; all further keys share one.
      const std::string_view slot = recurring_.size() < kMaxKeys ? key : std::string_view("other messages");
      lines = recurring_.try_emplace(std::string(slot)).first;
    }
    const auto found = lines->second.find(line);
    if (found == lines->second.end()) {
      forget_oldest(lines->second);
      lines->second.emplace(line, Recurring{now});
    } else {
      ++found->second.since;
      if (now - found->second.written < options_.recurring_interval) return;
      found->second.written = now;
      since = std::exchange(found->second.since, 0);
    }
  }
  if (since == 0) return limited(key, level, "{}", line);
  limited(key, level, "{} ({} times since it was last reported)", line, since);
}

void Log::forget_oldest(Lines& lines) {
  if (lines.size() < kMaxRecurring) return;
  lines.erase(std::ranges::min_element(lines, {}, [](const auto& line) { return line.second.written; }));
}

void Log::prepare_thread() { static_cast<void>(spdlog::details::os::thread_id()); }

bool Log::flush() { return !sink_ || sink_->write_waiting(); }

bool Log::waiting() const { return sink_ && sink_->waiting(); }

std::uint64_t Log::lost() const { return sink_ ? sink_->lost() : 0; }

void Log::write(LogLevel level, std::string_view text) {
  if (!enabled(level)) return;
  const std::string line = fmt::format("{} {}: {}", level_name(level), subject_, printable(text));
  if (options_.write) {
    options_.write(line);
  } else {
    logger_->info(spdlog::string_view_t(line.data(), line.size()));
  }
}

}  // namespace splitnic::os
