#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/os/unique_fd.h"
#include "fabric/placement/board.h"

namespace splitnic::fabric {

/// A file whose pages a range of the process's memory is.
struct SharedFile {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;  ///< of the range's first byte
  std::string path{};        ///< as /proc/self/maps shows it
};

/// The file behind [memory, memory + size), if all of it is in one MAP_SHARED mapping. Costs two system calls; on
/// kernels before 6.11 the time to read /proc/self/maps. Thread: any.
[[nodiscard]] std::optional<SharedFile> shared_file_behind(std::span<const std::byte> memory);
/// A descriptor of the file for peers to open, itself good for nothing else (O_PATH): its close ends none of the
/// process's record locks on the file, as that of another would. Found by the file's name, or by a descriptor that the
/// process has. None: there is none, or the file is not a regular one in memory or on a local disk (tmpfs, ext4, XFS).
[[nodiscard]] os::UniqueFd open_shared_file(const SharedFile& file);

/// A part of a peer's file in this process. It stays mapped as long as the object; a hostile peer may truncate the
/// file, so every access is by guarded_copy().
struct PeerFile {
  Mapping mapping;
  std::uint64_t first = 0;  ///< offset in the file of the mapping's first byte
};

/// Maps the region's part of the file that process `pid` has open as region.descriptor. nullopt: this process may not
/// open the file, it is another file than the peer says, it is of another kind than above, or it is shorter; or the
/// kernel gives no thread a table of descriptors of its own, without which the record locks that this process may hold
/// on the file would end here (before Linux 5.9). Costs a thread. Thread: any.
[[nodiscard]] std::optional<PeerFile> map_peer_file(pid_t pid, const BoardRegion& region, bool writable);

}  // namespace splitnic::fabric
