#include "common/os/runtime_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "common/os/errno_text.h"
#include "common/os/unix_listener.h"

namespace splitnic::os {
namespace {

bool is_private_directory(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & 077U) == 0;
}

}  // namespace

std::vector<std::string> runtime_directories() {
  std::vector<std::string> directories;
  if (::geteuid() == 0) directories.emplace_back("/run/splitnic");
  const char* session = std::getenv("XDG_RUNTIME_DIR");
  if (session != nullptr && *session == '/') directories.push_back(std::string(session) + "/splitnic");
  directories.push_back(fmt::format("/tmp/splitnic-{}", ::geteuid()));
  return directories;
}

Result<std::string> make_runtime_directory(const std::vector<std::string>& candidates) {
  std::string reason = "no candidates";
  for (const auto& directory : candidates) {
    if (::mkdir(directory.c_str(), 0700) == 0) return directory;
    // Root of a user namespace may not write to /run, and XDG_RUNTIME_DIR may be gone: the next one will do.
    if (errno != EEXIST) {
      reason = fmt::format("{}: {}", directory, errno_text());
      continue;
    }
    if (is_private_directory(directory)) return directory;
    return fail("{}: exists, but is not a directory that is ours alone (mode 0700)", directory);
  }
  return fail("no directory for run-time files: {}", reason);
}

std::string default_control_path(const std::string& directory, std::string_view role) {
  return fmt::format("{}/{}-{}.sock", directory, role, ::getpid());
}

std::vector<std::string> find_control_sockets(const std::vector<std::string>& directories) {
  std::vector<std::string> live;
  for (const auto& directory : directories) {
    if (!is_private_directory(directory)) continue;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string path = entry->path().string();
      if (entry->path().extension() != ".sock") continue;
      const SocketState state = probe_socket(path);
      if (state == SocketState::kLive) live.push_back(path);
      if (state == SocketState::kStale) remove_stale_socket(path);
    }
  }
  std::sort(live.begin(), live.end());
  return live;
}

}  // namespace splitnic::os
