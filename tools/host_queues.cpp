#include "tools/host_queues.h"

#include <poll.h>

#include <latch>
#include <optional>
#include <thread>

#include "common/os/blocked_signals.h"
#include "common/os/core_task.h"
#include "fabric/bridge/shm_source.h"
#include "host/queue_driver.h"

namespace splitnic::tools {

namespace {

/// A thread's end would need one more system call than a daemon may make: the thread waits for the end of the process.
[[noreturn]] void wait_for_ever() {
  for (;;) static_cast<void>(::ppoll(nullptr, 0, nullptr, nullptr));
}

fabric::ShmConnectOptions connect_of_queue(fabric::ShmConnectOptions connect) {
  connect.purpose = fabric::ShmPurpose::further_queue;
  connect.features = 0;
  return connect;
}

messaging::SessionOptions session_of_queue(messaging::SessionOptions session, RandomSource& random) {
  session.link.port_address = fabric::PortAddress{random.next() >> 16U};
  return session;
}

}  // namespace

/// One queue. Everything but the end belongs to its thread.
class HostQueues::Queue {
 public:
  Queue(const DaemonOptions& options, const fabric::ShmConnectOptions& connect,
        const messaging::SessionOptions& session, std::size_t number, host::TapQueue& nic, host::QueueGroup& group,
        const os::NearCores& cores, os::Log& log)
      : cores_(cores),
        notices_(log),
        bridges_(connect_of_queue(connect), notices_),
        driver_(session_of_queue(session, random_), number, nic, bridges_, group, random_, notices_),
        loop_(options_of_loop(options, log)),
        task_(driver_) {
    loop_.add(task_);
    nic.on_replaced([&group, number] { group.wake(number); });
    start_thread([this] { run(); }).detach();
    runs_.wait();
  }
  ~Queue() { ended_.wait(); }
  void stop() { loop_.stop(); }
  [[nodiscard]] os::SpinCounters spins() const { return loop_.spins(); }

 private:
  os::EventLoopOptions options_of_loop(const DaemonOptions& options, os::Log& log) {
    auto loop = loop_options_of_thread(options, log);
    loop.leave_core = [this] { return leaver_->leave(); };
    return loop;
  }
  void run() {
    leaver_.emplace(cores_);
    runs_.count_down();
    loop_.run();
    os::shut_down(driver_);
    ended_.count_down();
    wait_for_ever();
  }

  const os::NearCores& cores_;
  std::optional<os::CoreLeaver> leaver_;  // of the queue's thread
  SystemRandom random_;
  os::LogNotices notices_;
  fabric::ShmConnectSource bridges_;
  host::QueueDriver driver_;
  os::EventLoop loop_;
  os::CoreTask<host::QueueDriver> task_;
  std::latch runs_{1};
  std::latch ended_{1};
};

std::unique_ptr<HostQueues> HostQueues::start(const DaemonOptions& options, const fabric::ShmConnectOptions& connect,
                                              const messaging::SessionOptions& session, host::TapNic& tap,
                                              host::HostDriver& driver, const os::NearCores& cores, os::Log& log) {
  const auto& further = tap.further_queues();
  if (further.empty()) return nullptr;
  std::unique_ptr<HostQueues> queues(new HostQueues(further.size()));
  driver.lead(queues->group_);
  const os::BlockedSignals blocked;  // the threads inherit it
  for (std::size_t number = 0; number < further.size(); ++number) {
    queues->queues_.push_back(
        std::make_unique<Queue>(options, connect, session, number, *further[number], queues->group_, cores, log));
  }
  return queues;
}

HostQueues::HostQueues(std::size_t further) : group_(further) {}

HostQueues::~HostQueues() { stop(); }

os::SpinCounters HostQueues::spins() const {
  os::SpinCounters sum;
  for (const auto& queue : queues_) sum += queue->spins();
  return sum;
}

void HostQueues::stop() {
  for (auto& queue : queues_) queue->stop();
  queues_.clear();  // waits for each
}

}  // namespace splitnic::tools
