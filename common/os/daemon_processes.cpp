#include "common/os/daemon_processes.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "common/os/privileged_process.h"
#include "common/os/read_file.h"

namespace splitnic::os {
namespace {

constexpr std::size_t kMaxCommandLineBytes = std::size_t{1} << 16U;
constexpr std::size_t kMaxNameBytes = 64;

std::optional<pid_t> parse_pid(const std::string& text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc{} || end != text.data() + text.size() || pid <= 0) return std::nullopt;
  return pid;
}

/// The word at `from` of a command line; a zero byte ends each word.
std::string word_at(const std::string& command_line, std::size_t from) {
  return command_line.substr(from, command_line.find('\0', from) - from);
}

/// "host" or "iounit"; empty for any other program. A process that has ended has no command line.
std::string role_of(const std::string& command_line) {
  const auto end = command_line.find('\0');
  if (end == std::string::npos) return {};
  if (std::filesystem::path(command_line.substr(0, end)).filename() != "splitnic") return {};
  const std::string role = word_at(command_line, end + 1);
  return role == "host" || role == "iounit" ? role : std::string();
}

/// The name that the process has given itself, or its program's.
std::string name_of(const std::string& process) {
  const auto text = read_file(process + "/comm", kMaxNameBytes);
  return text ? text->substr(0, text->find('\n')) : std::string();
}

}  // namespace

std::vector<DaemonProcess> find_daemon_processes(const std::string& proc) {
  std::vector<DaemonProcess> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(proc, error), end; !error && entry != end; entry.increment(error)) {
    const auto pid = parse_pid(entry->path().filename().string());
    if (!pid) continue;
    const auto command_line = read_file(entry->path().string() + "/cmdline", kMaxCommandLineBytes);
    struct stat status {};
    if (!command_line || ::stat(entry->path().c_str(), &status) != 0) continue;
    std::string role = role_of(*command_line);
    // A daemon's privileged process has the daemon's command line.
    if (!role.empty() && name_of(entry->path().string()) != kPrivilegedProcessName)
      found.push_back({*pid, status.st_uid, std::move(role)});
  }
  std::ranges::sort(found, {}, &DaemonProcess::pid);
  return found;
}

}  // namespace splitnic::os
