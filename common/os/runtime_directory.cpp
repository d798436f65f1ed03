#include "common/os/runtime_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/path_parts.h"

namespace splitnic::os {
namespace {

constexpr mode_t kWritableByOthers = 022;
constexpr mode_t kOpenToOthers = 077;

/// True for a folder (not a link to one) that belongs to this user and has none of the forbidden rights.
bool is_ours(const std::string& path, mode_t forbidden) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & forbidden) == 0;
}

bool is_of_another_user(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid != ::geteuid();
}

/// An absolute path in a variable; empty: there is none.
std::string_view from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value == '/' ? value : std::string_view();
}

/// Root may also read folders of other users that are closed to others.
bool is_readable_control_directory(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && (status.st_mode & kOpenToOthers) == 0 &&
         (status.st_uid == ::geteuid() || ::geteuid() == 0);
}

std::string control_directory(const std::string& directory) { return directory + "/control"; }

/// Creates the folder with exactly these rights, whatever the umask. False, with errno, if it was not created.
bool make_directory(const std::string& path, mode_t mode) {
  return ::mkdir(path.c_str(), mode & 0700U) == 0 && ::chmod(path.c_str(), mode) == 0;
}

/// Like make_directory, but also true for an existing folder; the caller checks its rights.
bool have_directory(const std::string& path, mode_t mode) { return make_directory(path, mode) || errno == EEXIST; }

}  // namespace

std::string session_directory() {
  const std::string session(from_environment("XDG_RUNTIME_DIR"));
  return !session.empty() && is_ours(session, kOpenToOthers) ? session + "/splitnic" : std::string();
}

std::vector<std::string> runtime_directories() {
  std::vector<std::string> directories;
  // Colons separate several folders; the first one is enough.
  const auto service = from_environment("RUNTIME_DIRECTORY");
  if (!service.empty()) directories.emplace_back(service.substr(0, service.find(':')));
  if (::geteuid() == 0) directories.emplace_back("/run/splitnic");
  if (std::string session = session_directory(); !session.empty()) directories.push_back(std::move(session));
  directories.push_back(fmt::format("/tmp/splitnic-{}", ::geteuid()));
  return directories;
}

Result<std::string> make_private_directory(const PrivateDirectory& what, const std::vector<std::string>& candidates) {
  std::string reason = "no candidates";
  for (const auto& directory : candidates) {
    // Root of a user namespace may not write to /run, and XDG_RUNTIME_DIR may not exist: try the next one.
    if (!have_directory(directory, 0755)) {
      reason = fmt::format("{}: {}", directory, errno_text());
      continue;
    }
    if (is_of_another_user(directory)) {
      reason = fmt::format("{}: belongs to another user", directory);
      continue;
    }
    if (!is_ours(directory, kWritableByOthers)) {
      return fail("{}: exists, but is not a directory that only this user may write to; {}", directory, what.remedy);
    }
    const std::string inner = directory + "/" + what.name;
    if (!have_directory(inner, 0700)) {
      reason = fmt::format("{}: {}", inner, errno_text());
      continue;
    }
    if (is_ours(inner, kOpenToOthers)) return inner;
    return fail("{}: exists, but is not a directory that is this user's alone (mode 0700); {}", inner, what.remedy);
  }
  return fail("no directory for {}: {}; {}", what.holds, reason, what.remedy);
}

Result<std::string> make_control_directory(const std::vector<std::string>& candidates) {
  return make_private_directory(
      {.name = "control", .holds = "the control socket", .remedy = "name a control socket elsewhere with --control"},
      candidates);
}

Result<void> make_socket_directory(const std::string& socket_path) {
  const std::string directory = folder_of(socket_path);
  struct stat status {};
  if (::stat(directory.c_str(), &status) == 0 || have_directory(directory, 0755)) return {};
  return fail("{}: {}", directory, errno_text());
}

bool others_can_reach(const std::string& socket_path) {
  struct stat status {};
  return ::stat(folder_of(socket_path).c_str(), &status) == 0 && (status.st_mode & (S_IXGRP | S_IXOTH)) != 0;
}

mode_t socket_mode(const std::string& socket_path) { return others_can_reach(socket_path) ? 0666 : 0600; }

Result<UnixListener> listen_at_default_path(const std::string& directory, std::string_view role) {
  const std::string first = fmt::format("{}/{}-{}", directory, role, ::getpid());
  std::string path = first + ".sock";
  auto listener = UnixListener::listen(path);
  for (unsigned number = 2; number <= kMostWithOnePid; ++number) {
    if (listener || probe_socket(path) != SocketState::kLive) break;
    path = fmt::format("{}-{}.sock", first, number);
    listener = UnixListener::listen(path);
  }
  return listener;
}

Result<std::vector<std::string>> find_control_sockets(const std::vector<std::string>& candidates) {
  std::vector<std::string> found;
  for (const auto& candidate : candidates) {
    const std::string directory = control_directory(candidate);
    if (!is_readable_control_directory(directory)) continue;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string path = entry->path().string();
      if (entry->path().extension() != ".sock") continue;
      const SocketState state = probe_socket(path);
      if (state == SocketState::kLive || state == SocketState::kUnknown) found.push_back(path);
      if (state == SocketState::kStale && is_ours(directory, kOpenToOthers)) remove_stale_socket(path);
    }
    const bool gone = error == std::errc::no_such_file_or_directory;
    if (error && !gone) return fail("{}: {}", directory, error.message());
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());  // RUNTIME_DIRECTORY may be /run/splitnic
  return found;
}

}  // namespace splitnic::os
