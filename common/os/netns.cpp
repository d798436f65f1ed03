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

Result<UniqueFd> open_netns(std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.size() > 255 ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos) {
    return fail("'{}' can't be the name of a network namespace", name);
  }
  UniqueFd descriptor(::open(("/run/netns/" + std::string(name)).c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor) return descriptor;
  if (errno == ENOENT) return fail("no network namespace named {} (there is no /run/netns/{})", name, name);
  return fail("opening the network namespace {}: {}", name, errno_text());
}

Result<UniqueFd> open_current_netns() {
  UniqueFd descriptor(::open(kThreadNetns, O_RDONLY | O_CLOEXEC));
  if (descriptor) return descriptor;
  return fail("opening {}: {}", kThreadNetns, errno_text());
}

Result<void> enter_netns(std::string_view name) {
  const Result<UniqueFd> descriptor = open_netns(name);
  if (!descriptor) return tl::unexpected(descriptor.error());
  return move_to(descriptor->get(), fmt::format("the network namespace {}", name));
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
  if (auto moved = enter_netns(target); !moved) return tl::unexpected(moved.error());
  return ScopedNetns(std::move(*home));
}

// A thread that could not return would go on in the wrong namespace unnoticed; the kernel gives no reason to refuse.
ScopedNetns::~ScopedNetns() {
  if (home_) CHECK(::setns(home_.get(), CLONE_NEWNET) == 0);
}

}  // namespace splitnic::os
