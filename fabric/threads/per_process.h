#pragma once

#include <unistd.h>

#include <atomic>
#include <utility>

#include "common/result.h"
#include "fabric/threads/fork_mark.h"

namespace splitnic::fabric {

/// One object for each process. A forked child begins with a new one: its parent's may be in the middle of a change, or
/// be locked by a thread that the child does not have. No object is ever deleted, because threads may use it while the
/// process ends. Meant to be static. Thread: any. Takes no lock, and makes no system call unless the kernel has no
/// MADV_WIPEONFORK.
template <class Object>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  /// The object of this process, which the first call makes.
  [[nodiscard]] Object& get() {
    Holder* known = current_.load();
    while (known == nullptr || !known->of_this_process()) {
      auto* made = new Holder(known);
      if (current_.compare_exchange_strong(known, made)) return made->object;
      delete made;
    }
    return known->object;
  }

 private:
  struct Holder {
    explicit Holder(Holder* parents) : of_parent(parents) {}
    // The mark costs a load, and the process number a system call.
    [[nodiscard]] bool of_this_process() const { return mark ? !mark->forked() : process == ::getpid(); }

    const pid_t process = ::getpid();
    const Result<ForkMark> mark = ForkMark::make();
    Holder* const of_parent;  // stays reachable
    Object object{};
  };

  std::atomic<Holder*> current_{nullptr};
};

}  // namespace splitnic::fabric
