#include "common/os/near_cores.h"

#include <fcntl.h>

#include <charconv>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <system_error>

#include "common/os/read_file.h"

namespace splitnic::os {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestText = 64 << 10;

cpu_set_t all_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &cores);
  return cores;
}

std::optional<std::size_t> core_of(std::string_view text) {
  std::size_t core = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), core);
  if (error != std::errc{} || end != text.data() + text.size() || core >= CPU_SETSIZE) return std::nullopt;
  return core;
}

/// "0-3,8", as the kernel writes lists of cores; nullopt: something else.
std::optional<cpu_set_t> cores_of(std::string_view list) {
  while (!list.empty() && list.back() == '\n') list.remove_suffix(1);
  if (list.empty()) return std::nullopt;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const auto part : std::views::split(list, ',')) {
    const std::string_view range(part.begin(), part.end());
    const auto dash = range.find('-');
    const auto first = core_of(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : core_of(range.substr(dash + 1));
    if (!first || !last) return std::nullopt;
    for (std::size_t core = *first; core <= *last; ++core) CPU_SET(core, &cores);
  }
  return cores;
}

/// Those that share the cache of the highest level with a core.
cpu_set_t sharing_with(const fs::path& core) {
  cpu_set_t sharing = all_cores();
  for (int index = 0;; ++index) {  // the kernel lists them from the first level to the last
    const auto list = read_file(core / "cache" / ("index" + std::to_string(index)) / "shared_cpu_list", kLongestText);
    if (!list) return sharing;
    if (const auto cores = cores_of(*list)) sharing = *cores;
  }
}

/// status: a thread's, in /proc. nullopt: it doesn't say.
std::optional<cpu_set_t> permitted_cores(int status) {
  constexpr std::string_view kField = "\nCpus_allowed_list:\t";
  const auto text = read_file(status, "a thread's status", kLongestText);
  if (!text) return std::nullopt;
  const auto field = text->find(kField);
  if (field == std::string::npos) return std::nullopt;
  const std::string_view list = std::string_view(*text).substr(field + kField.size());
  return cores_of(list.substr(0, list.find('\n')));
}

}  // namespace

NearCores::NearCores(const fs::path& folder) {
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    const auto described = folder / ("cpu" + std::to_string(core));
    std::error_code unknown;
    if (!fs::exists(described, unknown)) return;
    sharing_.push_back(sharing_with(described));
  }
}

cpu_set_t NearCores::near_to(int core, const cpu_set_t& cores) const {
  const auto at = static_cast<std::size_t>(core);
  cpu_set_t near = cores;
  if (at < sharing_.size()) CPU_AND(&near, &cores, &sharing_[at]);
  CPU_CLR(at, &near);
  return near;
}

CoreLeaver::CoreLeaver(const NearCores& near)
    : near_(near), status_(::open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC)) {}

bool CoreLeaver::leave() const {
  const int core = ::sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE) return false;
  const auto permitted = permitted_cores(status_.get());
  if (!permitted) return false;
  const cpu_set_t near = near_.near_to(core, *permitted);
  if (CPU_COUNT(&near) == 0 || ::sched_setaffinity(0, sizeof near, &near) != 0) return false;
  // The thread stays where it is now. That can't fail: it may do with all of these cores what it did before.
  static_cast<void>(::sched_setaffinity(0, sizeof *permitted, &*permitted));
  return true;
}

}  // namespace splitnic::os
