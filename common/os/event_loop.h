#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/time.h"

namespace boost::asio {
class io_context;
}

namespace splitnic::os {

/// A core driven by an EventLoop. Thread: the loop's.
class Task {
 public:
  virtual ~Task() = default;
  /// Does a bounded amount of work; returns how much. Zero means that there was none, not that it was done.
  virtual std::size_t poll(Time now) = 0;
  /// Arms whatever wakes it up, then looks again: false means that there is work, so don't sleep.
  virtual bool prepare_sleep(Time now) = 0;
  /// Disarms. Follows every prepare_sleep, also one that answered false.
  virtual void disarm() = 0;
  /// Whoever brings the next work is awake and waits for this thread's core, so that looking on only delays it.
  [[nodiscard]] virtual bool peer_waits_for_core() { return false; }
  /// When poll wants to run again even if nothing happens. In the past only while poll has work.
  [[nodiscard]] virtual Time next_deadline() const = 0;
  /// Appends the descriptors whose readability means work. Asked before each sleep; they may differ every time.
  virtual void collect_descriptors(std::vector<int>& out) const = 0;
};

struct EventLoopOptions {
  /// The longest time that the loop looks on without work before it sleeps (--spin-us).
  Duration spin_max = std::chrono::microseconds(50);
  /// SIGINT, SIGTERM and SIGHUP end run(); SIGPIPE is ignored. A SIGHUP that was ignored before (nohup) stays ignored.
  bool handle_signals = true;
  /// Where given, SIGHUP calls this, on the loop's thread, and run() goes on.
  std::function<void()> on_hangup{};
};

struct EventLoopCounters {
  std::uint64_t iterations = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t services = 0;  ///< looks at the io_context while busy
};

/// The edge around poll-driven cores: polls while there is work, looks on for a short adaptive time, then sleeps until
/// a descriptor, a deadline, a signal, or something of the io_context (the control socket). Costs nothing while idle.
/// Thread: one, except stop().
class EventLoop {
 public:
  /// Throws StartupError if the kernel gives no descriptors.
  explicit EventLoop(EventLoopOptions options = {});
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Lent; must outlive run(). Not during run().
  void add(Task& task);

  /// For servers on the same thread. They are looked after every 64 rounds while the tasks are busy, and within 10
  /// ms of a pause.
  [[nodiscard]] boost::asio::io_context& context();

  /// Until stop() or a signal; returns the signal, 0 for stop(). A second signal then kills the process as usual, so
  /// that nobody has to wait for a tear-down that hangs.
  int run();

  /// Any thread, or a task.
  void stop();

  [[nodiscard]] const EventLoopCounters& counters() const { return counters_; }

 private:
  struct Edge;

  std::size_t poll_tasks(Time now);
  void serve_if_due(Time now, bool busy);
  [[nodiscard]] bool peer_waits_for_core();
  void try_to_sleep(Time now);
  void sleep();

  std::unique_ptr<Edge> edge_;
  std::vector<Task*> tasks_;
  std::vector<int> descriptors_;
  Duration spin_max_;
  EventLoopCounters counters_;
  Time served_{};
  std::uint32_t iterations_since_service_ = 0;
};

}  // namespace splitnic::os
