#pragma once

#include <span>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/time.h"

namespace splitnic::os {

/// Many descriptors and a deadline behind one descriptor, which is readable while any of them is readable or the
/// deadline has passed: level-triggered, so nothing that came early is lost.
/// The descriptors are lent, and may be closed or replaced by others of the same number at any time between updates.
class WaitSet {
 public:
  /// Throws StartupError if the kernel gives no descriptors.
  WaitSet();

  /// Waits for exactly these from now on; true if descriptor() stands for a new file. Closed descriptors and ones that
  /// can't be waited for (regular files) are bugs of the caller.
  bool update(std::span<const int> descriptors);
  /// kNever for none. Reaching the deadline keeps descriptor() readable until it is set to a later one.
  void set_deadline(Time deadline);
  [[nodiscard]] int descriptor() const { return epoll_.get(); }

 private:
  bool add(int descriptor);
  bool still_registered();
  void rebuild();

  UniqueFd epoll_;
  UniqueFd timer_;
  Time deadline_ = kNever;
  std::vector<int> descriptors_;
};

}  // namespace splitnic::os
