#include "common/os/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

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
  logger_ = std::make_shared<spdlog::logger>(subject_, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger_->set_pattern("%H:%M:%S.%e %v");
  logger_->flush_on(spdlog::level::trace);
}

// What was suppressed after the last line of its key would otherwise never be told.
Log::~Log() {
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
