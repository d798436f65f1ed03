#pragma once

#include <string>
#include <string_view>

#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::os {

/// which: the name of a namespace made by `ip netns add NAME` (/run/netns/NAME), the path of one (it holds a '/'), or
/// the pid of a process in it; a name of digits comes before a pid. Errors: a name that can't be one, no such
/// namespace or process, no permission.
Result<UniqueFd> open_netns(std::string_view which);

/// The calling thread's own.
Result<UniqueFd> open_current_netns();

/// Moves the calling thread, and threads that it makes afterwards, for good. Before any other thread exists: the
/// process.
Result<void> enter_netns(std::string_view which);
Result<void> enter_netns(int descriptor);

/// Whether two descriptors stand for the same namespace.
bool same_netns(int one, int other);

/// The calling thread in another network namespace for as long as this lives; destroyed by the same thread.
/// What was opened meanwhile (netlink sockets, TAP queues) stays in that namespace.
class ScopedNetns {
 public:
  /// target: a namespace's descriptor (of /run/netns/NAME, or TUNGETDEVNETNS for a TAP that was moved), lent for the
  /// call.
  static Result<ScopedNetns> enter(int target);

  ScopedNetns(ScopedNetns&&) noexcept = default;
  ScopedNetns& operator=(ScopedNetns&&) = delete;
  ~ScopedNetns();

 private:
  explicit ScopedNetns(UniqueFd home) : home_(std::move(home)) {}
  UniqueFd home_;
};

}  // namespace splitnic::os
