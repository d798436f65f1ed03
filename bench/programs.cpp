#include "bench/programs.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::bench {

std::filesystem::path find_program(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto beside = folder / name;
  const auto installed = folder / "../libexec/splitnic-tests/bin" / name;
  const bool is_installed = ::access(beside.c_str(), X_OK) != 0 && ::access(installed.c_str(), X_OK) == 0;
  return is_installed ? installed : beside;
}

std::string peers_folder(const std::string& named) {
  if (named.empty()) return find_program("bench-peer-ring").parent_path().string();
  // With the slash, a file is none.
  if (::access((named + "/").c_str(), X_OK) == 0) return named;
  throw UsageError{fmt::format("--peers: {}: {}", named, os::errno_text())};
}

bool is_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((std::filesystem::path(folder) / name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace splitnic::bench
