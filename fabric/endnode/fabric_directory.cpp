#include "fabric/endnode/fabric_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/os/runtime_directory.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kLongestName = 32;
constexpr std::string_view kPrefix = "fabric-";
constexpr mode_t kOpenToOthers = 077;

bool is_valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, [](unsigned char character) {
    return std::isalnum(character) != 0 || character == '-' || character == '_' || character == '.';
  });
}

}  // namespace

std::vector<std::string> fabric_directories() {
  std::vector<std::string> directories;
  if (std::string session = os::session_directory(); !session.empty()) directories.push_back(std::move(session));
  if (::geteuid() == 0) directories.emplace_back("/run/splitnic");
  directories.push_back(fmt::format("/tmp/splitnic-{}", ::geteuid()));
  return directories;
}

Result<std::string> make_fabric_directory(std::string_view name, const std::vector<std::string>& candidates) {
  if (!is_valid_name(name)) {
    return fail("a fabric's name has 1 to {} letters, digits, '-', '_' and '.': \"{}\"", kLongestName, name);
  }
  return os::make_private_directory({.name = std::string(kPrefix) + std::string(name),
                                     .holds = "the fabric",
                                     .remedy = "set XDG_RUNTIME_DIR to a directory of this user"},
                                    candidates);
}

std::vector<FabricFolder> find_fabric_directories(const std::vector<std::string>& candidates) {
  std::vector<FabricFolder> found;
  for (const std::string& candidate : candidates) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(candidate, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string file = entry->path().filename().string();
      struct stat status {};
      if (!file.starts_with(kPrefix) || ::lstat(entry->path().c_str(), &status) != 0) continue;
      const bool ours =
          S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & kOpenToOthers) == 0;
      if (ours) found.push_back({file.substr(kPrefix.size()), entry->path().string()});
    }
  }
  std::ranges::sort(found, {}, &FabricFolder::name);
  return found;
}

}  // namespace splitnic::fabric
