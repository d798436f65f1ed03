#include "fabric/memory/mapped_area.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <system_error>

#include "common/os/read_file.h"

namespace splitnic::fabric {

std::optional<MappedArea> parse_mapped_area(std::string_view line) {
  MappedArea area;
  const auto number = [&](auto& value, int base, char after) {
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), value, base);
    const auto used = static_cast<std::size_t>(parsed.ptr - line.data());
    if (parsed.ec != std::errc{} || used == line.size() || line[used] != after) return false;
    line.remove_prefix(used + 1);
    return true;
  };
  constexpr std::size_t kRights = 5;
  if (!number(area.begin, 16, '-') || !number(area.end, 16, ' ') || area.begin >= area.end) return std::nullopt;
  if (line.size() < kRights) return std::nullopt;
  area.readable = line[0] == 'r';
  area.writable = line[1] == 'w';
  area.shared = line[3] == 's';
  line.remove_prefix(kRights);
  unsigned major = 0;
  unsigned minor = 0;
  if (!number(area.offset, 16, ' ') || !number(major, 16, ':') || !number(minor, 16, ' ')) return std::nullopt;
  if (!number(area.inode, 10, ' ')) return std::nullopt;
  area.device = makedev(major, minor);
  const std::size_t path = line.find_first_not_of(' ');
  if (path != std::string_view::npos) area.path = line.substr(path);
  return area;
}

void visit_mapped_areas(const std::function<bool(const MappedArea&)>& visit) {
  const auto text = os::read_file("/proc/self/maps", std::numeric_limits<std::size_t>::max());
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (const auto area = parse_mapped_area(rest.substr(0, end)); area && !visit(*area)) return;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace splitnic::fabric
