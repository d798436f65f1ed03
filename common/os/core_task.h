#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <vector>

#include "common/moved_frames.h"
#include "common/os/event_loop.h"
#include "common/os/timespec.h"
#include "common/time.h"

namespace splitnic::os {

/// A driver core (iounit::IoUnit, host::HostDriver) as a task of an EventLoop. Thread: the loop's.
template <class Core>
class CoreTask final : public Task {
 public:
  /// core: lent; outlives this.
  explicit CoreTask(Core& core) : core_(core) {}
  std::size_t poll(Time now) override { return core_.poll(now); }
  bool prepare_sleep(Time /*now*/) override { return core_.prepare_sleep(); }
  void disarm() override { core_.disarm(); }
  [[nodiscard]] bool peer_waits_for_core() override { return core_.peer_waits_for_core(); }
  [[nodiscard]] MovedFrames moved() const override { return core_.moved(); }
  [[nodiscard]] Time rests_until() const override {
    if constexpr (requires { core_.rests_until(); }) return core_.rests_until();
    return {};
  }
  [[nodiscard]] Time next_deadline() const override { return core_.next_deadline(); }
  void collect_descriptors(std::vector<int>& out) const override { core_.collect_descriptors(out); }

 private:
  Core& core_;
};

/// Call after the loop has ended. Shuts the core down in good order and polls it for `patience` at most. Returns
/// whether the core has finished. Sleeps between polls without work. Thread: the core's.
template <class Core>
bool shut_down(Core& core, Duration patience = std::chrono::milliseconds(500)) {
  const Time give_up = monotonic_now() + patience;
  const timespec pause = timespec_of(std::chrono::microseconds(100));
  core.begin_shutdown();
  for (Time now = monotonic_now(); !core.finished() && now < give_up; now = monotonic_now()) {
    if (core.poll(now) == 0) static_cast<void>(::ppoll(nullptr, 0, &pause, nullptr));
  }
  return core.finished();
}

}  // namespace splitnic::os
