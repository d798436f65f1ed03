#include "fabric/endnode/fabric_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/runtime_directory.h"
#include "common/os/unique_fd.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kLongestName = 32;
constexpr std::string_view kPrefix = "fabric-";
constexpr mode_t kOpenToOthers = 077;
constexpr mode_t kShared = 0770;
constexpr mode_t kSharedFile = 0660;

bool is_valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, [](unsigned char character) {
    return std::isalnum(character) != 0 || character == '-' || character == '_' || character == '.';
  });
}

Result<void> check_name(std::string_view name) {
  if (is_valid_name(name)) return {};
  return fail("a fabric's name has 1 to {} letters, digits, '-', '_' and '.': \"{}\"", kLongestName, name);
}

std::string shared_folder(std::string_view shared, std::string_view name) {
  return fmt::format("{}/shared-{}", shared, name);
}

/// A directory, no link to one, that only root can have made and changed.
bool is_roots(const std::string& path, mode_t forbidden, struct stat& status) {
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 &&
         (status.st_mode & forbidden) == 0;
}

/// nullopt: no fabric is shared in this folder. Errors: this user can't see whether one is.
Result<std::optional<gid_t>> sharing_group(const std::string& folder, std::string_view shared) {
  struct stat status {};
  if (!is_roots(std::string(shared), 022, status)) return std::nullopt;
  if (!is_roots(folder, 07, status)) {
    if (::lstat(folder.c_str(), &status) != 0 && errno != ENOENT) {
      return fail("{}: can't see whether the fabric is shared: {}", folder, os::errno_text());
    }
    return std::nullopt;
  }
  return (status.st_mode & 070) == 070 ? std::optional(status.st_gid) : std::nullopt;
}

/// Whether the members of a group that is not root's may enter a folder of root's.
bool is_open_to(gid_t group, const struct stat& status) {
  return (status.st_mode & (status.st_gid == group ? S_IXGRP : S_IXOTH)) != 0;
}

bool is_member(gid_t group) {
  if (::geteuid() == 0 || ::getegid() == group) return true;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  groups.resize(static_cast<std::size_t>(std::max(::getgroups(static_cast<int>(groups.size()), groups.data()), 0)));
  return std::ranges::find(groups, group) != groups.end();
}

/// The opened one gets these rights, whatever the umask.
bool give(const os::UniqueFd& opened, gid_t group, mode_t mode) {
  return opened && ::fchown(opened.get(), 0, group) == 0 && ::fchmod(opened.get(), mode) == 0;
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
  if (auto valid = check_name(name); !valid) return tl::unexpected(valid.error());
  return os::make_private_directory({.name = std::string(kPrefix) + std::string(name),
                                     .holds = "the fabric",
                                     .remedy = "set XDG_RUNTIME_DIR to a directory of this user"},
                                    candidates);
}

Result<FabricFolders> fabric_folders(std::string_view name, const std::vector<std::string>& candidates,
                                     std::string_view shared) {
  auto own = make_fabric_directory(name, candidates);
  if (!own) return tl::unexpected(own.error());
  const std::string folder = shared_folder(shared, name);
  const auto group = sharing_group(folder, shared);
  if (!group) return tl::unexpected(group.error());
  if (!*group) return FabricFolders{*own, *own};
  if (!is_member(**group)) {
    return fail("{}: the fabric is shared by group {}, of which this user is no member", folder, **group);
  }
  return FabricFolders{folder, std::move(*own)};
}

Result<FabricFolders> chosen_fabric_folders() {
  const char* name = std::getenv("SPLITNIC_FABRIC");
  return fabric_folders(name != nullptr ? name : kDefaultFabric);
}

Result<std::string> share_fabric(std::string_view name, gid_t group, std::string_view shared) {
  if (auto valid = check_name(name); !valid) return tl::unexpected(valid.error());
  if (::geteuid() != 0) return fail("only root can share a fabric with a group");
  if (group == static_cast<gid_t>(-1)) return fail("{} is no group's number", group);  // fchown: as it is
  const std::string parent(shared);
  struct stat status {};
  const bool made = ::mkdir(parent.c_str(), 0700) == 0;
  if (made ? ::chmod(parent.c_str(), 0755) != 0 : errno != EEXIST) return fail("{}: {}", parent, os::errno_text());
  if (!is_roots(parent, 022, status)) return fail("{}: is not a directory that only root may write to", parent);
  if (!is_open_to(group, status)) {
    return fail("{}: group {} can't enter it (mode {:04o}); try chmod 755", parent, group, status.st_mode & 07777U);
  }
  std::string folder = shared_folder(shared, name);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return fail("{}: {}", folder, os::errno_text());
  const os::UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return fail("{}: {}", folder, os::errno_text());
  for (const std::string_view file : {kLocalIdsFile, kBindingsFile}) {
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    if (!give(os::UniqueFd(::openat(directory.get(), file.data(), flags, 0600)), group, kSharedFile)) {
      return fail("{}/{}: {}", folder, file, os::errno_text());
    }
  }
  if (!give(directory, group, kShared)) return fail("{}: {}", folder, os::errno_text());
  return folder;
}

std::vector<FabricFolder> find_fabric_directories(const std::vector<std::string>& candidates, std::string_view shared) {
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
      if (!ours) continue;
      FabricFolder folder{file.substr(kPrefix.size()), entry->path().string(), entry->path().string()};
      const std::string meeting = shared_folder(shared, folder.name);
      const auto group = sharing_group(meeting, shared);
      if (group && *group && is_member(**group)) folder.meeting = meeting;
      found.push_back(std::move(folder));
    }
  }
  std::ranges::sort(found, {}, &FabricFolder::name);
  return found;
}

}  // namespace splitnic::fabric
