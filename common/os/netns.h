#pragma once

#include <string>
#include <string_view>

#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::os {

/// which: the name of a namespace of `ip netns add NAME` (/run/netns/NAME), the path of one (it contains a '/'), or the
/// pid of a process in it. A name that consists of digits takes precedence over a pid. Errors: an impossible name, no
/// such namespace or process, no permission.
Result<UniqueFd> open_netns(std::string_view which);

/// Opens the calling thread's own namespace.
Result<UniqueFd> open_current_netns();

/// Moves the calling thread permanently, and with it the threads that it creates later. Call it before any other thread
/// exists to move the whole process.
Result<void> enter_netns(std::string_view which);
Result<void> enter_netns(int descriptor);

/// Whether two descriptors refer to the same namespace.
bool same_netns(int one, int other);

/// Keeps the calling thread in another network namespace during its lifetime. The same thread must destroy it.
/// Descriptors opened meanwhile (netlink sockets, TAP queues) stay in that namespace.
class ScopedNetns {
 public:
  /// target: a namespace's descriptor (of /run/netns/NAME, or TUNGETDEVNETNS for a TAP that was moved), lent for the
  /// call. Nothing happens, and no right is needed, if the thread is there already.
  static Result<ScopedNetns> enter(int target);

  ScopedNetns(ScopedNetns&&) noexcept = default;
  ScopedNetns& operator=(ScopedNetns&&) = delete;
  ~ScopedNetns();

 private:
  explicit ScopedNetns(UniqueFd home) : home_(std::move(home)) {}
  UniqueFd home_;  ///< empty: the thread did not move
};

}  // namespace splitnic::os
