#include "fabric/placement/shared_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/os/blocked_signals.h"
#include "common/range.h"
#include "fabric/memory/mapped_area.h"

namespace splitnic::fabric {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

/// The argument of PROCMAP_QUERY (Linux 6.11), which the headers of Debian 12 do not have yet.
struct ProcmapQuery {
  std::uint64_t size, query_flags, query_address;
  std::uint64_t begin, end, flags, page_bytes, offset, inode;
  std::uint32_t major, minor, name_bytes, build_id_bytes;
  std::uint64_t name_address, build_id_address;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr auto kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr std::uint64_t kProcmapShared = 8;

using PathBuffer = std::array<char, PATH_MAX>;

/// Asks the kernel about one address. nullopt: nothing is mapped there. supported: false if the kernel is too old. The
/// area's path lies in `path`.
std::optional<MappedArea> ask_kernel(std::uint64_t address, PathBuffer& path, bool& supported) {
  const os::UniqueFd maps(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  ProcmapQuery query{};
  query.size = sizeof query;
  query.query_address = address;
  query.name_bytes = std::uint32_t{std::tuple_size_v<PathBuffer>};
  query.name_address = reinterpret_cast<std::uintptr_t>(path.data());
  supported = true;
  if (!maps) return std::nullopt;
  if (ioctl(maps.get(), kProcmapQuery, &query) != 0) {
    supported = errno != ENOTTY;
    return std::nullopt;
  }
  const std::size_t length = query.name_bytes == 0 ? 0 : query.name_bytes - 1;
  return MappedArea{.begin = query.begin,
                    .end = query.end,
                    .shared = (query.flags & kProcmapShared) != 0,
                    .offset = query.offset,
                    .device = makedev(query.major, query.minor),
                    .inode = query.inode,
                    .path = {path.data(), std::min(length, path.size())}};
}

/// nullopt: it is not a shared mapping of a file, or it does not hold all of the memory.
std::optional<SharedFile> file_of(const MappedArea& area, std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  if (!area.shared || area.inode == 0 || begin < area.begin || memory.size() > area.end - begin) return std::nullopt;
  return SharedFile{area.device, area.inode, area.offset + (begin - area.begin), std::string(area.path)};
}

/// A file that a store can't wait for long for: in memory, or on a local disk.
bool is_local_file(int descriptor, std::uint64_t device, std::uint64_t inode, struct stat& status) {
  struct statfs file_system {};
  if (fstat(descriptor, &status) != 0 || fstatfs(descriptor, &file_system) != 0) return false;
  constexpr std::array<std::uint64_t, 3> kLocal{TMPFS_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC};
  const auto kind = static_cast<std::uint64_t>(file_system.f_type) & 0xffff'ffffU;
  return S_ISREG(status.st_mode) && status.st_dev == device && status.st_ino == inode &&
         std::ranges::find(kLocal, kind) != kLocal.end();
}

/// descriptor: in the calling thread's table.
os::UniqueFd open_again(int descriptor, int flags) {
  return os::UniqueFd(open(fmt::format("/proc/thread-self/fd/{}", descriptor).c_str(), flags | O_CLOEXEC));
}

/// Calls work() on a thread that has no descriptors but those that it opens itself, and waits for it. What it closes
/// ends none of the process's record locks: the kernel ends those of the table that the descriptor was in. False: the
/// process gets no such thread (before Linux 5.9, or where a filter of system calls forbids it).
template <class Work>
bool with_own_descriptors(Work&& work) {
  bool own = false;
  const os::BlockedSignals to_others;  // a handler would miss the process's descriptors
  try {
    std::thread([&] {
      own = close_range(0, std::numeric_limits<unsigned>::max(), CLOSE_RANGE_UNSHARE) == 0;
      if (own) work();
    }).join();
  } catch (const std::system_error&) {
    return false;
  }
  return own;
}

/// By one that the process has: for files without a name there is no other way. Other threads close theirs meanwhile,
/// and get new ones by the same numbers, so each file is held before it is looked at.
os::UniqueFd find_descriptor(const SharedFile& file) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return {};
  os::UniqueFd found;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name(entry->d_name);
    int number = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), number).ec != std::errc{}) continue;
    os::UniqueFd held = open_again(number, O_PATH);
    struct stat status {};
    if (!held || !is_local_file(held.get(), file.device, file.inode, status)) continue;
    found = std::move(held);
    break;
  }
  closedir(folder);
  return found;
}

}  // namespace

std::optional<SharedFile> shared_file_behind(std::span<const std::byte> memory) {
  if (memory.empty()) return std::nullopt;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  PathBuffer path;
  bool supported = false;
  const auto area = ask_kernel(begin, path, supported);
  if (supported) return area ? file_of(*area, memory) : std::nullopt;
  std::optional<SharedFile> found;
  visit_mapped_areas([&](const MappedArea& listed) {
    if (begin < listed.begin || begin >= listed.end) return true;
    found = file_of(listed, memory);
    return false;
  });
  return found;
}

os::UniqueFd open_shared_file(const SharedFile& file) {
  os::UniqueFd named(open(file.path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (named && is_local_file(named.get(), file.device, file.inode, status)) return named;
  return find_descriptor(file);
}

namespace {

std::optional<PeerFile> map_file_of(pid_t pid, const BoardRegion& region, bool writable) {
  // A look first: to open a device or a pipe may do something, or wait.
  const os::UniqueFd named(open(fmt::format("/proc/{}/fd/{}", pid, region.descriptor).c_str(), O_PATH | O_CLOEXEC));
  struct stat status {};
  if (!named || !is_local_file(named.get(), region.device, region.inode, status)) return std::nullopt;
  const os::UniqueFd file = open_again(named.get(), writable ? O_RDWR : O_RDONLY);
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (!file || status.st_size < 0 || region.place > kMost) return std::nullopt;
  if (!within(static_cast<std::uint64_t>(status.st_size), {region.place, region.length})) return std::nullopt;
  const std::uint64_t first = region.place / kPageBytes * kPageBytes;
  auto mapping =
      Mapping::of(file.get(), first, static_cast<std::size_t>(region.place - first + region.length), writable);
  if (!mapping) return std::nullopt;
  return PeerFile{std::move(*mapping), first};
}

}  // namespace

std::optional<PeerFile> map_peer_file(pid_t pid, const BoardRegion& region, bool writable) {
  std::optional<PeerFile> mapped;
  static_cast<void>(with_own_descriptors([&] { mapped = map_file_of(pid, region, writable); }));
  return mapped;
}

}  // namespace splitnic::fabric
