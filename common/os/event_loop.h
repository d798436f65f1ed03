#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/moved_frames.h"
#include "common/os/adaptive_spin.h"
#include "common/os/step_aside.h"
#include "common/time.h"

namespace boost::asio {
class io_context;
}

namespace splitnic::os {

/// A core driven by an EventLoop. Thread: the loop's.
class Task {
 public:
  virtual ~Task() = default;
  /// Does a bounded amount of work and returns how much. Zero means that there was no work at all.
  virtual std::size_t poll(Time now) = 0;
  /// Arms the doorbells and other sources of wake-ups, then polls once more. False means that there is work, so don't
  /// sleep.
  virtual bool prepare_sleep(Time now) = 0;
  /// Disarms. The loop calls it after every prepare_sleep, also after one that returned false.
  virtual void disarm() = 0;
  /// True if the process that produces the next work is awake and waits for this thread's core. Spinning would only
  /// delay that process.
  [[nodiscard]] virtual bool peer_waits_for_core() { return false; }
  /// What poll() has moved since the start.
  [[nodiscard]] virtual MovedFrames moved() const { return {}; }
  /// Until then the task leaves work where it is, so that more of it gathers, and spinning for that would be in vain.
  /// In the past: it does not.
  [[nodiscard]] virtual Time rests_until() const { return {}; }
  /// The time at which poll must run again even if nothing happens. It is in the past only while poll has work.
  [[nodiscard]] virtual Time next_deadline() const = 0;
  /// Appends the descriptors that are readable when there is work. The loop calls it before each sleep; the descriptors
  /// may differ every time.
  virtual void collect_descriptors(std::vector<int>& out) const = 0;
};

struct EventLoopOptions {
  /// The longest time that the loop spins without work before it sleeps (--spin-us).
  Duration spin_max = std::chrono::microseconds(50);
  /// How many percent of the time spins may take that end in a sleep (--spin-budget).
  unsigned spin_budget = 5;
  /// If set, a loop that may spin, and whose peer waits for its core again and again, calls this to leave the core
  /// (StepAside; CoreLeaver). Set it at one end of a conversation: two would follow each other. Thread: the
  /// loop's. Returns whether it left.
  std::function<bool()> leave_core{};
  /// SIGINT, SIGTERM and SIGHUP end run(); SIGPIPE is ignored. A SIGHUP that was ignored before (nohup) stays ignored.
  bool handle_signals = true;
  /// If set, SIGHUP calls this on the loop's thread, and run() continues.
  std::function<void()> on_hangup{};
  /// If set, gets a line on the loop's thread each time that the kernel refuses to watch the tasks' descriptors, for
  /// lack of memory, descriptors or watches. The loop continues and sleeps for at most 10 ms at a time.
  std::function<void(const std::string&)> on_trouble{};
};

struct EventLoopCounters {
  std::uint64_t iterations = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t brief_sleeps = 0;      ///< of sleeps: those that began with the one system call for short pauses
  std::uint64_t services = 0;          ///< polls of the io_context while busy
  std::uint64_t sleeps_cut_short = 0;  ///< the kernel refused to watch the descriptors
};

/// The edge around poll-driven cores. The loop polls while there is work, spins for a short adaptive time, and then
/// sleeps until a descriptor, a deadline, a signal, or an event of the io_context (the control socket). It uses no CPU
/// time while idle. Thread: one, except stop().
class EventLoop {
 public:
  /// Throws StartupError if the kernel gives no descriptors.
  explicit EventLoop(EventLoopOptions options = {});
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// task is lent and must outlive run(). Do not call during run().
  void add(Task& task);

  /// For servers on the same thread. The loop polls them every 64 rounds while the tasks are busy, and within 10 ms of
  /// a pause.
  [[nodiscard]] boost::asio::io_context& context();

  /// Runs until stop() or a signal. Returns the signal, or 0 after stop(). A second signal then has its usual
  /// effect, unless the thread had blocked it before the loop was made.
  int run();

  /// Any thread or task may call it.
  void stop();

  [[nodiscard]] const EventLoopCounters& counters() const { return counters_; }
  /// At most a moment old. Thread: any.
  [[nodiscard]] SpinCounters spins() const;

 private:
  struct Edge;

  /// Of the spins that paid, or of those in vain. Other threads may read it.
  struct Spins {
    std::atomic<std::uint64_t> count = 0;
    std::atomic<std::uint64_t> nanoseconds = 0;
    void add(Duration time);
  };

  std::size_t poll_tasks(Time now);
  /// There is no work. Spins or sleeps.
  void idle(Time now);
  void begin_idle(Time now);
  void end_idle(Time now);
  void serve_if_due(Time now, bool busy);
  [[nodiscard]] bool peer_waits_for_core();
  void try_to_sleep(Time now);
  void sleep();
  [[nodiscard]] bool slept_briefly(Time deadline);

  std::unique_ptr<Edge> edge_;
  std::vector<Task*> tasks_;
  std::vector<int> descriptors_;
  AdaptiveSpin spin_;
  std::optional<Time> idle_since_;
  Duration spin_for_{};  // at the beginning of this pause
  Time rests_until_{};   // likewise, of the tasks
  std::optional<Time> spins_since_;
  Spins paid_;
  Spins in_vain_;
  StepAside step_aside_;
  std::function<bool()> leave_core_;  // empty: stay
  std::atomic<std::uint64_t> cores_left_ = 0;
  Time busy_since_{};
  std::function<void(const std::string&)> on_trouble_;
  EventLoopCounters counters_;
  Time served_{};
  std::uint32_t iterations_since_service_ = 0;
  unsigned brief_in_vain_ = 0;  // in succession: nothing came in such time
};

}  // namespace splitnic::os
