#pragma once

#include <span>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::os {

/// One descriptor that stands for many descriptors and a deadline. It is readable while any of them is readable or the
/// deadline has passed. It is level-triggered, so an early event is not lost. The descriptors are lent. Between updates
/// their owners may close them or replace them by others with the same number.
class WaitSet {
 public:
  /// Throws StartupError if the kernel gives no descriptors.
  WaitSet();

  /// From now on waits for exactly these descriptors. True if descriptor() now refers to a new file. Closed
  /// descriptors, and descriptors that can't be waited for (regular files), are bugs of the caller.
  /// Errors: the kernel lacks memory, descriptors or watches. Then the set is not complete, descriptor() may be -1, and
  /// the next update() starts anew.
  [[nodiscard]] Result<bool> update(std::span<const int> descriptors);
  /// The next update() starts anew.
  void forget() { complete_ = false; }
  /// kNever means no deadline. After the deadline descriptor() stays readable until a later deadline is set.
  void set_deadline(Time deadline);
  [[nodiscard]] int descriptor() const { return epoll_.get(); }
  /// Some of the descriptors that are readable now, at most out.size(); returns how many. The next call returns others
  /// if there are more.
  [[nodiscard]] std::size_t ready(std::span<int> out) const;

 private:
  enum class Added { yes, present, refused };

  [[nodiscard]] Added add(int descriptor);
  [[nodiscard]] bool still_registered();
  [[nodiscard]] Result<void> rebuild();

  UniqueFd epoll_;
  UniqueFd timer_;
  Time deadline_ = kNever;
  std::vector<int> descriptors_;
  bool complete_ = false;
};

}  // namespace splitnic::os
