#pragma once

#include <string>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// Notices when a path appears or is replaced (inotify). It watches the folder of the path, or the nearest folder above
/// it that exists. The kernel can run out of watches, and some file systems report nothing, so the owner looks now and
/// then as well. Thread: the owner.
class PathWatch {
 public:
  explicit PathWatch(std::string path);

  /// Takes the pending events. True if the path may have changed: check it, then call this again when descriptor() is
  /// readable. A folder that appeared or went counts too. The first call returns true.
  bool changed();
  /// Ignores what happens until changed() is called again, which then returns true.
  void pause();
  /// Readable when something has happened; -1 while paused, and if the kernel gives no inotify.
  [[nodiscard]] int descriptor() const { return paused_ ? -1 : events_.get(); }

 private:
  /// Watches the nearest folder, and the name in it that leads to the path. True: another watch than before.
  bool watch();
  /// Takes the pending events. True: one of them is about the path.
  bool take_events();

  std::string path_;
  UniqueFd events_;
  bool paused_ = false;
  int watched_ = -1;  // inotify's number; -1: none
  std::string name_;  // in that folder: the next part of the path
};

}  // namespace splitnic::os
