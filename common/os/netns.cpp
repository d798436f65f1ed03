#include "common/os/netns.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include <utility>

#include "common/check.h"
#include "common/os/errno_text.h"

namespace splitnic::os {
namespace {

constexpr const char* kThreadNetns = "/proc/thread-self/ns/net";

Result<void> move_to(int descriptor, std::string_view what) {
  if (::setns(descriptor, CLONE_NEWNET) == 0) return {};
  if (errno == EINVAL) return fail("entering {}: it is no network namespace", what);
  return fail("entering {}: {}", what, errno_text());
}

}  // namespace

Result<UniqueFd> open_netns(std::string_view which) {
  const auto open_path = [](const std::string& path) { return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); };
  const bool is_path = which.find('/') != std::string_view::npos;
  if (which.empty() || which == "." || which == ".." || (!is_path && which.size() > 255) ||
      which.find('\0') != std::string_view::npos) {
    return fail("'{}' can't be the name of a network namespace", which);
  }
  UniqueFd descriptor = open_path(is_path ? std::string(which) : fmt::format("/run/netns/{}", which));
  if (descriptor) return descriptor;
  if (is_path || errno != ENOENT) return fail("opening the network namespace {}: {}", which, errno_text());
  if (which.find_first_not_of("0123456789") != std::string_view::npos) {
    return fail("no network namespace named {} (there is no /run/netns/{})", which, which);
  }
  descriptor = open_path(fmt::format("/proc/{}/ns/net", which));
  if (descriptor) return descriptor;
  if (errno == ENOENT) return fail("no network namespace named {}, and no process {}", which, which);
  return fail("opening the network namespace of process {}: {}", which, errno_text());
}

Result<UniqueFd> open_current_netns() {
  UniqueFd descriptor(::open(kThreadNetns, O_RDONLY | O_CLOEXEC));
  if (descriptor) return descriptor;
  return fail("opening {}: {}", kThreadNetns, errno_text());
}

Result<void> enter_netns(std::string_view which) {
  const Result<UniqueFd> descriptor = open_netns(which);
  if (!descriptor) return tl::unexpected(descriptor.error());
  return move_to(descriptor->get(), fmt::format("the network namespace {}", which));
}

Result<void> enter_netns(int descriptor) { return move_to(descriptor, fmt::format("descriptor {}", descriptor)); }

bool same_netns(int one, int other) {
  struct stat first {};
  struct stat second {};
  return ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

Result<ScopedNetns> ScopedNetns::enter(int target) {
  Result<UniqueFd> home = open_current_netns();
  if (!home) return tl::unexpected(home.error());
  if (same_netns(home->get(), target)) return ScopedNetns(UniqueFd());
  if (auto moved = enter_netns(target); !moved) return tl::unexpected(moved.error());
  return ScopedNetns(std::move(*home));
}

// If the thread could not return, it would continue in the wrong namespace unnoticed. The kernel has no reason to
// refuse.
ScopedNetns::~ScopedNetns() {
  if (home_) SPLITNIC_CHECK(::setns(home_.get(), CLONE_NEWNET) == 0);
}

}  // namespace splitnic::os
