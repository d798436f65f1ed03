#include "common/os/event_loop.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/os/message_io.h"
#include "common/os/signal_queue.h"
#include "common/os/wait_set.h"

namespace splitnic::os {
namespace {

namespace asio = boost::asio;

// How long control requests and signals may wait: this many rounds of work, or this long without work.
constexpr std::uint32_t kServiceIterations = 64;
constexpr Duration kServiceInterval = std::chrono::milliseconds(10);

// Between packets of the same conversation the loop sleeps with one plain system call. Asio needs several system calls
// to sleep, which pays only in a longer pause than this. Asio's servers wait until then.
constexpr Duration kBriefSleep = std::chrono::milliseconds(10);
// After so many brief sleeps in which nothing came, the loop is idle: it spares itself that wake-up until something
// comes soon again.
constexpr unsigned kBriefInVain = 2;

}  // namespace

/// The Asio side. Asio does not get the tasks' descriptors one by one, but one WaitSet. Tasks replace descriptors
/// without notice (a reconnect may even get the same number), and Asio's registrations would not survive this.
struct EventLoop::Edge {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> keep_running{context.get_executor()};
  std::unique_ptr<SignalQueue> signals;
  asio::posix::stream_descriptor signal_watch{context};
  WaitSet wait_set;
  asio::posix::stream_descriptor watched{context, wait_set.descriptor()};
  std::vector<pollfd> brief_waits;
  bool waiting = false;
  std::atomic<bool> stopped{false};
  std::function<void()> hangup;
  int signal = 0;

  ~Edge() {
    // Their owners close them.
    static_cast<void>(watched.release());
    if (signals) static_cast<void>(signal_watch.release());
  }

  void watch_signals(std::function<void()> on_hangup) {
    std::signal(SIGPIPE, SIG_IGN);
    hangup = std::move(on_hangup);
    std::vector<int> numbers{SIGINT, SIGTERM};
    struct sigaction present {};
    const bool ignored = ::sigaction(SIGHUP, nullptr, &present) == 0 && present.sa_handler == SIG_IGN;
    if (!ignored) numbers.push_back(SIGHUP);  // ignored: nohup
    signals = std::make_unique<SignalQueue>(numbers);
    signal_watch.assign(signals->descriptor());
    await_signal();
  }

  void await_signal() {
    signal_watch.async_wait(asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
      if (error) return;
      while (const int number = signals->take()) {
        if (number == SIGHUP && hangup) {
          hangup();
          continue;
        }
        signal = number;
        stopped.store(true, std::memory_order_relaxed);
        while (signals->take() != 0) {  // one is enough
        }
        return signals->stop();
      }
      await_signal();
    });
  }

  /// Errors: the kernel can't watch them all.
  Result<void> set_descriptors(const std::vector<int>& descriptors) {
    const auto updated = wait_set.update(descriptors);
    if (updated && !*updated) return {};
    // Asio registers the descriptor in an epoll of its own, which may be refused for the same reasons.
    static_cast<void>(watched.release());
    waiting = false;
    if (!updated) return tl::unexpected(updated.error());
    boost::system::error_code refused;
    watched.assign(wait_set.descriptor(), refused);
    if (!refused) return {};
    static_cast<void>(watched.release());
    wait_set.forget();
    return fail("watching the wait set: {}", refused.message());
  }

  // True when a descriptor, the deadline or a signal ended the sleep; false when the time for a short sleep was over.
  // Nothing is registered, so it doesn't matter which files the descriptors referred to last time.
  bool sleep_briefly(const std::vector<int>& descriptors, Time deadline) {
    brief_waits.clear();
    for (const int descriptor : descriptors) brief_waits.push_back({descriptor, POLLIN, 0});
    // The last one. A wait for it at Asio's side does not see it in time.
    if (signals) brief_waits.push_back({signals->descriptor(), POLLIN, 0});
    const Duration left = deadline == kNever ? kBriefSleep : deadline - monotonic_now();
    const Duration patience = std::clamp(left, Duration(0), kBriefSleep);
    const timespec timeout{0, patience.count()};
    const int ready = ::ppoll(brief_waits.data(), brief_waits.size(), &timeout, nullptr);
    if (signals && ready > 0 && brief_waits.back().revents != 0) context.poll();
    return ready != 0 || left < kBriefSleep;
  }

  // A wait stays outstanding until it completes, even if the loop wakes up for other reasons. A new wait checks the
  // state and not the edge: if the descriptor is readable already, the wait completes at once.
  void wait() {
    if (waiting) return;
    waiting = true;
    watched.async_wait(asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
      if (error == asio::error::operation_aborted) return;  // the descriptor has been replaced
      SPLITNIC_CHECK(!error);
      waiting = false;
    });
  }
};

EventLoop::EventLoop(EventLoopOptions options)
    : edge_(std::make_unique<Edge>()),
      spin_(options.spin_max, options.spin_budget),
      leave_core_(options.spin_max > Duration(0) ? std::move(options.leave_core) : nullptr),
      on_trouble_(std::move(options.on_trouble)) {
  if (options.handle_signals) edge_->watch_signals(std::move(options.on_hangup));
}

EventLoop::~EventLoop() = default;

void EventLoop::add(Task& task) { tasks_.push_back(&task); }

asio::io_context& EventLoop::context() { return edge_->context; }

void EventLoop::stop() {
  edge_->stopped.store(true, std::memory_order_relaxed);
  asio::post(edge_->context, [] {});  // ends a sleep
}

int EventLoop::run() {
  for (;;) {
    const Time now = monotonic_now();
    ++counters_.iterations;
    const std::size_t work = poll_tasks(now);
    serve_if_due(now, work != 0);
    // After serving, because a stop during the service has used up the event that would end the sleep.
    if (edge_->stopped.load(std::memory_order_relaxed)) break;
    if (work == 0) {
      idle(now);
    } else if (idle_since_) {
      end_idle(now);
    }
  }
  edge_->stopped.store(false, std::memory_order_relaxed);
  return std::exchange(edge_->signal, 0);
}

void EventLoop::idle(Time now) {
  if (!idle_since_) begin_idle(now);
  // The loop spins once per pause. After a wake-up without work it sleeps again at once. Yielding is not enough if the
  // peer shares the core: the scheduler may choose the yielding thread again.
  if (now - *idle_since_ < spin_for_ && !peer_waits_for_core()) {
    if (!spins_since_) spins_since_ = now;
    // More than a pause instruction: if the process that produces the next work needs this core, it runs now.
    std::this_thread::yield();
    return;
  }
  if (const auto since = std::exchange(spins_since_, std::nullopt)) {
    spin_.spun_in_vain(now - *since);
    in_vain_.add(now - *since);
  }
  try_to_sleep(now);
}

void EventLoop::begin_idle(Time now) {
  idle_since_ = now;
  MovedFrames moved;
  rests_until_ = Time{};
  for (const Task* task : tasks_) {
    moved += task->moved();
    rests_until_ = std::max(rests_until_, task->rests_until());
  }
  spin_for_ = spin_.begin_pause(now, moved);
  if (now < rests_until_) spin_for_ = Duration(0);
  if (!leave_core_ || !step_aside_.begin_pause(now, now - busy_since_, peer_waits_for_core())) return;
  // Only the loop's thread counts.
  if (leave_core_()) cores_left_.store(cores_left_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void EventLoop::end_idle(Time now) {
  busy_since_ = now;
  if (const auto since = std::exchange(spins_since_, std::nullopt)) paid_.add(now - *since);
  const Time since = *std::exchange(idle_since_, std::nullopt);
  // The end of a rest was known beforehand: it says nothing about when work comes.
  const bool rested = since < rests_until_ && rests_until_ <= now;
  if (!rested) spin_.end_pause(now - since);
}

void EventLoop::Spins::add(Duration time) {
  // Only the loop's thread adds.
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const auto spent = static_cast<std::uint64_t>(time.count());
  nanoseconds.store(nanoseconds.load(std::memory_order_relaxed) + spent, std::memory_order_relaxed);
}

SpinCounters EventLoop::spins() const {
  const auto microseconds = [](const Spins& spins) { return spins.nanoseconds.load(std::memory_order_relaxed) / 1000; };
  return {.spins_paid = paid_.count.load(std::memory_order_relaxed),
          .spins_in_vain = in_vain_.count.load(std::memory_order_relaxed),
          .spin_us_paid = microseconds(paid_),
          .spin_us_in_vain = microseconds(in_vain_),
          .cores_left = cores_left_.load(std::memory_order_relaxed)};
}

std::size_t EventLoop::poll_tasks(Time now) {
  std::size_t work = 0;
  for (Task* task : tasks_) work += task->poll(now);
  return work;
}

bool EventLoop::peer_waits_for_core() {
  return std::ranges::any_of(tasks_, [](Task* task) { return task->peer_waits_for_core(); });
}

// The work that woke the loop comes first. While there is work, servers wait for several rounds of it.
void EventLoop::serve_if_due(Time now, bool busy) {
  ++iterations_since_service_;
  if (iterations_since_service_ < kServiceIterations && (busy || now - served_ < kServiceInterval)) return;
  iterations_since_service_ = 0;
  served_ = now;
  ++counters_.services;
  edge_->context.poll();
}

// Arm, then poll once more: prepare_sleep polls after arming, so any later work rings.
void EventLoop::try_to_sleep(Time now) {
  std::size_t prepared = 0;
  bool agreed = true;
  while (agreed && prepared < tasks_.size()) agreed = tasks_[prepared++]->prepare_sleep(now);
  if (agreed) sleep();
  for (std::size_t at = 0; at < prepared; ++at) tasks_[at]->disarm();
}

void EventLoop::sleep() {
  Time deadline = kNever;
  descriptors_.clear();
  for (const Task* task : tasks_) {
    deadline = std::min(deadline, task->next_deadline());
    task->collect_descriptors(descriptors_);
  }
  ++counters_.sleeps;
  if (slept_briefly(deadline)) return;
  if (const auto watched = edge_->set_descriptors(descriptors_); !watched) {
    // Without the long sleep the loop continues: it sleeps briefly, again and again, and tries this each time.
    ++counters_.sleeps_cut_short;
    brief_in_vain_ = 0;
    if (on_trouble_) on_trouble_("can't sleep for long: " + watched.error().message);
    return;
  }
  edge_->wait_set.set_deadline(deadline);
  edge_->wait();
  const Time asleep = monotonic_now();
  edge_->context.run_one();
  served_ = monotonic_now();
  iterations_since_service_ = 0;
  if (served_ - asleep < kBriefSleep) brief_in_vain_ = 0;
}

/// True: the short pause is over. False: it became a long one, or the loop expects one.
bool EventLoop::slept_briefly(Time deadline) {
  const bool may_be_long = deadline - monotonic_now() > kBriefSleep;
  if (may_be_long && brief_in_vain_ >= kBriefInVain) return false;
  ++counters_.brief_sleeps;
  const bool over = edge_->sleep_briefly(descriptors_, deadline);
  if (may_be_long) brief_in_vain_ = over ? 0 : brief_in_vain_ + 1;
  return over;
}

}  // namespace splitnic::os
