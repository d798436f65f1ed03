#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace splitnic::fabric {

inline constexpr std::string_view kDefaultFabric = "default";

/// Where fabrics of this user are looked for, best first: os::session_directory(), /run/splitnic for root,
/// /tmp/splitnic-UID.
[[nodiscard]] std::vector<std::string> fabric_directories();

/// The folder in which the endnodes of the fabric `name` find each other, made if it is missing: `fabric-NAME` with
/// mode 0700 in the first of `candidates` that does not belong to another user. Symbolic links, and folders that are
/// open to others, are errors. name: 1 to 32 letters, digits, '-', '_' and '.'.
[[nodiscard]] Result<std::string> make_fabric_directory(
    std::string_view name = kDefaultFabric, const std::vector<std::string>& candidates = fabric_directories());

/// A fabric's folder that is there.
struct FabricFolder {
  std::string name{};  ///< of the fabric
  std::string directory{};
};
/// Those of this user that make_fabric_directory() would use, by name.
[[nodiscard]] std::vector<FabricFolder> find_fabric_directories(
    const std::vector<std::string>& candidates = fabric_directories());

}  // namespace splitnic::fabric
