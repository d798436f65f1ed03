#include "fabric/endnode/group_watch.h"

#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>

#include "common/os/errno_text.h"
#include "common/os/timespec.h"
#include "fabric/endnode/fabric_directory.h"

namespace splitnic::fabric {

Result<GroupWatch> GroupWatch::open(const std::string& directory) {
  os::UniqueFd events(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  // A process that ends has given up its locks before its files are closed.
  constexpr std::uint32_t kEvents = IN_ATTRIB | IN_CLOSE_WRITE | IN_DONT_FOLLOW;
  const std::string path = fmt::format("{}/{}", directory, kLocalIdsFile);
  if (!events || ::inotify_add_watch(events.get(), path.c_str(), kEvents) < 0) return open_timer();
  return GroupWatch(std::move(events));
}

Result<GroupWatch> GroupWatch::open_timer() {
  os::UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  itimerspec every{};
  every.it_interval = every.it_value = os::timespec_of(kLookInterval);
  if (!timer || ::timerfd_settime(timer.get(), 0, &every, nullptr) != 0) {
    return fail("cannot follow the fabric's groups: {}", os::errno_text());
  }
  return GroupWatch(std::move(timer));
}

/// One read takes all that a timer has, and up to 256 events of inotify; identical ones that wait are one.
void GroupWatch::clear() const {
  alignas(inotify_event) std::array<char, 4096> events;
  static_cast<void>(!::read(events_.get(), events.data(), events.size()));
}

}  // namespace splitnic::fabric
