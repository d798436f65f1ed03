#pragma once

#include <filesystem>
#include <string>

namespace splitnic::os {

/// The folder that holds what has this path; "." for a name alone.
inline std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// What has this path is called so in its folder.
inline std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace splitnic::os
