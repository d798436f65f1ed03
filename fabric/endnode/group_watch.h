#pragma once

#include <string>
#include <utility>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::fabric {

/// Tells that members of a fabric's groups may have changed: a membership was announced (LocalIds::announce), or a
/// process has ended that used the fabric's file. If the kernel gives no inotify, it tells so every kLookInterval.
/// Thread: the owner.
class GroupWatch {
 public:
  static constexpr Duration kLookInterval = std::chrono::milliseconds(100);

  /// directory: of the fabric, whose LocalIds are open. Errors: no descriptors.
  [[nodiscard]] static Result<GroupWatch> open(const std::string& directory);
  /// The one without inotify.
  [[nodiscard]] static Result<GroupWatch> open_timer();

  /// Readable when there is something to look at.
  [[nodiscard]] int descriptor() const { return events_.get(); }
  /// Before the look: what changes after it makes the descriptor readable again.
  void clear() const;

 private:
  explicit GroupWatch(os::UniqueFd events) : events_(std::move(events)) {}

  os::UniqueFd events_;
};

}  // namespace splitnic::fabric
