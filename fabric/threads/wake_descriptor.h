#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/uncancelled.h"
#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::fabric {

/// A descriptor that is readable from set() to clear(); each set() is an edge for those who watch with EPOLLET. Others
/// may poll it and change O_NONBLOCK; neither call ever blocks, and neither is a cancellation point. Thread: one at a
/// time.
class WakeDescriptor {
 public:
  /// Errors: no descriptors.
  [[nodiscard]] static Result<WakeDescriptor> make() {
    os::UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    if (!event) return fail("cannot create an eventfd: {}", os::errno_text());
    return WakeDescriptor(std::move(event));
  }

  void set() {
    readable_ = true;
    const os::Uncancelled whole;
    const std::uint64_t one = 1;
    static_cast<void>(!::write(event_.get(), &one, sizeof one));  // it counts to 2^64 - 2: there is room
  }
  void clear() {
    if (!std::exchange(readable_, false)) return;
    const os::Uncancelled whole;
    std::uint64_t count = 0;
    iovec piece{&count, sizeof count};
    // RWF_NOWAIT: a program that has read it, which it must not, is no reason to block.
    static_cast<void>(!::preadv2(event_.get(), &piece, 1, -1, RWF_NOWAIT));
  }
  [[nodiscard]] int get() const { return event_.get(); }

 private:
  explicit WakeDescriptor(os::UniqueFd event) : event_(std::move(event)) {}

  os::UniqueFd event_;
  bool readable_ = false;
};

}  // namespace splitnic::fabric
