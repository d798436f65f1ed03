#pragma once

#include <sched.h>

#include <filesystem>
#include <vector>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// The cores of this machine, by the caches that they share. Thread: any; nothing changes after the start.
class NearCores {
 public:
  /// folder: where the kernel describes its processors. A core that it does not describe is near to all.
  explicit NearCores(const std::filesystem::path& folder = "/sys/devices/system/cpu");

  /// Those of `cores` that share the largest cache with `core`, without itself. core: 0 .. CPU_SETSIZE - 1.
  [[nodiscard]] cpu_set_t near_to(int core, const cpu_set_t& cores) const;

 private:
  std::vector<cpu_set_t> sharing_;  // by core; what is missing is near to all
};

/// Moves a thread to a core near its own. Thread: the one that makes this.
class CoreLeaver {
 public:
  /// near is lent. Opens the thread's status in /proc, so that leave() needs no more than preadv2 and
  /// sched_setaffinity, whatever a filter of system calls permits.
  explicit CoreLeaver(const NearCores& near);

  /// Moves to one of the near cores that the thread may run on. Afterwards it may run on the same ones as before.
  /// False: there is none, or the kernel refuses.
  [[nodiscard]] bool leave() const;

 private:
  const NearCores& near_;
  UniqueFd status_;
};

}  // namespace splitnic::os
