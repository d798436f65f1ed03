#pragma once

#include <functional>

#include "common/work_meter.h"

namespace splitnic::os {

/// The calling thread's processor time.
[[nodiscard]] Duration thread_processor_time();

/// Measures the work of one thread by the monotonic clock, which costs no system call. Long laps may hold time in which
/// the kernel ran other threads. For them the meter asks the kernel for the thread's processor time, and leaves out
/// what the thread did not get. Thread: the measured one.
class ThreadMeter final : public WorkMeter {
 public:
  /// clock: of the times that start() gets; processor_time: of the thread, never goes back.
  explicit ThreadMeter(std::function<Time()> clock = monotonic_now,
                       std::function<Duration()> processor_time = thread_processor_time)
      : clock_(std::move(clock)), processor_time_(std::move(processor_time)) {}
  void start(Time now) override;
  Duration lap(std::size_t work) override;

 private:
  /// How much of the time since the last look the thread did not get.
  Duration look(Time now);

  std::function<Time()> clock_;
  std::function<Duration()> processor_time_;
  Time lap_start_{};
  Time looked_at_{};
  Duration used_{};  // processor time at looked_at_
};

}  // namespace splitnic::os
