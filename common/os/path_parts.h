#pragma once

#include <filesystem>
#include <string>

namespace splitnic::os {

/// The path of the folder that this path lies in; "." for a name alone, "/" for "/" itself.
inline std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// The last part of the path: the name in its folder.
inline std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace splitnic::os
