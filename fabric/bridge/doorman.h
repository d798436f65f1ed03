#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "fabric/bridge/shm_listener.h"

namespace splitnic::fabric {

/// The helper that stands between strangers and the thread that moves frames. It accepts connections, checks
/// credentials and limits, reads hellos, makes memory and later prefaults it, watches for hang-ups, and closes what
/// strangers attach or leave behind. The owner only ever receives finished bridges, and gives them back by ending them.
/// How the helper runs, as a thread here or as a process with other privileges, is behind this interface: a finished
/// bridge is its credentials, its sizes and four descriptors. Thread: the owner. Source: design, "Trust".
class Doorman {
 public:
  virtual ~Doorman() = default;

  struct Report {
    ShmListenerCounters counters;
    std::string last_error;  ///< of the last connection counted as refused_resources
  };

  /// True until a take() has found nothing. Costs no system call, so call it in every turn.
  [[nodiscard]] virtual bool has_news() const = 0;
  /// The next finished bridge; nullopt: none.
  [[nodiscard]] virtual std::optional<ShmAccepted> take() = 0;
  /// Readable while has_news(): there is a bridge, a host has hung up, or the report has changed.
  [[nodiscard]] virtual int descriptor() const = 0;
  /// What the doorman has done so far; at most a moment old.
  [[nodiscard]] virtual Report report() const = 0;
};

/// The doorman as a thread of this process.
class DoormanThread final : public Doorman {
 public:
  /// Errors: no thread, no descriptors.
  [[nodiscard]] static Result<std::unique_ptr<DoormanThread>> start(std::unique_ptr<ShmListener> listener);
  /// Ends the thread and the listener. Bridges that were taken continue.
  ~DoormanThread() override;
  DoormanThread(const DoormanThread&) = delete;
  DoormanThread& operator=(const DoormanThread&) = delete;

  // D1 (acquire): pairs with D2 in publish(). The lock protects the data; the flag only saves taking the lock.
  [[nodiscard]] bool has_news() const override { return has_news_.load(std::memory_order_acquire); }
  [[nodiscard]] std::optional<ShmAccepted> take() override;
  [[nodiscard]] int descriptor() const override { return news_.get(); }
  [[nodiscard]] Report report() const override;

 private:
  DoormanThread(std::unique_ptr<ShmListener> listener, os::UniqueFd news, os::UniqueFd stop);
  void run();
  /// Moves what the listener has to the owner's side. now: for the limit on reports.
  void publish(Time now);
  void sleep(Time now) const;

  const std::unique_ptr<ShmListener> listener_;  // the thread's
  const os::UniqueFd news_;
  const os::UniqueFd stop_;
  std::uint64_t hang_ups_ = 0;  // the thread's, as are the next two
  Time report_again_{};
  bool report_due_ = false;
  std::atomic<bool> has_news_ = false;
  mutable std::mutex mutex_;  // protects the next two
  std::deque<ShmAccepted> finished_;
  Report report_;
  std::thread thread_;  // last: it uses all others
};

}  // namespace splitnic::fabric
