#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace splitnic::fabric {

/// One mapping of the process's memory, as the kernel lists it.
struct MappedArea {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  ///< of the last byte, plus one
  bool readable = false;
  bool writable = false;
  bool shared = false;       ///< MAP_SHARED
  std::uint64_t offset = 0;  ///< in the file, in bytes
  dev_t device = 0;          ///< of the file
  std::uint64_t inode = 0;   ///< 0: no file
  std::string_view path{};   ///< of the file, or the kernel's name for the mapping; lent
};

/// A line of /proc/self/maps without its end: "7f0000000000-7f0000001000 rw-s 00000000 00:01 1234   /memfd:name
/// (deleted)"; see proc_pid_maps(5). nullopt: it is none.
[[nodiscard]] std::optional<MappedArea> parse_mapped_area(std::string_view line);

/// Calls `visit` for each mapping of the process, by ascending addresses, until it returns false. For none where /proc
/// isn't mounted. If other threads map and unmap meanwhile, an address may be listed twice.
void visit_mapped_areas(const std::function<bool(const MappedArea&)>& visit);

}  // namespace splitnic::fabric
