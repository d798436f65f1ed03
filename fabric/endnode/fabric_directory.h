#pragma once

#include <sys/types.h>

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

/// A fabric is one user's, unless root has made a folder for several users: `shared-NAME` in kSharedFabrics, of root
/// and a group, with mode 0770. Then the members of the group meet there. They trust each other not to remove or
/// replace what is there; everything else, such as what their endnodes count, stays in each user's own folder.
inline constexpr std::string_view kSharedFabrics = "/run/splitnic";
struct FabricFolders {
  std::string meeting{};  ///< where endnodes find each other: sockets, locks
  std::string own{};      ///< make_fabric_directory(); the same unless several users share the fabric
};
/// Errors: make_fabric_directory()'s; the fabric is shared, and this user is not a member of its group; this user can't
/// see whether it is shared.
[[nodiscard]] Result<FabricFolders> fabric_folders(std::string_view name,
                                                   const std::vector<std::string>& candidates = fabric_directories(),
                                                   std::string_view shared = kSharedFabrics);
/// The folders of the fabric that the environment names (SPLITNIC_FABRIC), or of the default one.
[[nodiscard]] Result<FabricFolders> chosen_fabric_folders();
/// The folder and the files with locks, for a group; what is there already gets these rights. Only root can. Errors:
/// the name, the group's number, a kSharedFabrics that the group can't enter, the system.
[[nodiscard]] Result<std::string> share_fabric(std::string_view name, gid_t group,
                                               std::string_view shared = kSharedFabrics);
/// The files with locks in the folder where endnodes meet: who holds which local ID, and which address (fabric/rdmacm).
inline constexpr std::string_view kLocalIdsFile = "local-ids";
inline constexpr std::string_view kBindingsFile = "bindings";

/// A fabric's folder that is there.
struct FabricFolder {
  std::string name{};       ///< of the fabric
  std::string directory{};  ///< this user's own
  std::string meeting{};    ///< FabricFolders::meeting
};
/// Those of this user that make_fabric_directory() would use, by name.
[[nodiscard]] std::vector<FabricFolder> find_fabric_directories(
    const std::vector<std::string>& candidates = fabric_directories(), std::string_view shared = kSharedFabrics);

}  // namespace splitnic::fabric
