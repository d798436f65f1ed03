#include "fabric/bridge/doorman.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <cstdint>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

#include "common/os/blocked_signals.h"
#include "common/os/errno_text.h"
#include "common/os/message_io.h"
#include "common/os/timespec.h"

namespace splitnic::fabric {
namespace {

/// Refused connections wake the owner at most this often: strangers can cause them without end.
constexpr Duration kReportInterval = std::chrono::milliseconds(100);

std::uint64_t total(const ShmListenerCounters& counters) {
  using Members = boost::describe::describe_members<ShmListenerCounters, boost::describe::mod_public>;
  std::uint64_t sum = 0;
  boost::mp11::mp_for_each<Members>([&](auto member) { sum += counters.*member.pointer; });
  return sum;
}

void signal_event(int event) {
  const std::uint64_t one = 1;
  static_cast<void>(!write(event, &one, sizeof one));
}

}  // namespace

Result<std::unique_ptr<DoormanThread>> DoormanThread::start(std::unique_ptr<ShmListener> listener) {
  os::UniqueFd news(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  os::UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!news || !stop) return fail("cannot start the doorman: {}", os::errno_text());
  listener->note_own_user();
  std::unique_ptr<DoormanThread> doorman(new DoormanThread(std::move(listener), std::move(news), std::move(stop)));
  try {
    const os::BlockedSignals blocked;
    doorman->thread_ = std::thread([self = doorman.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return fail("cannot start the doorman: {}", error.what());
  }
  return doorman;
}

DoormanThread::DoormanThread(std::unique_ptr<ShmListener> listener, os::UniqueFd news, os::UniqueFd stop)
    : listener_(std::move(listener)), news_(std::move(news)), stop_(std::move(stop)) {}

DoormanThread::~DoormanThread() {
  signal_event(stop_.get());
  if (thread_.joinable()) thread_.join();
}

std::optional<ShmAccepted> DoormanThread::take() {
  const std::lock_guard lock(mutex_);
  if (finished_.empty()) {
    // Under the lock, so that no news comes between the two.
    has_news_.store(false, std::memory_order_relaxed);
    std::uint64_t count = 0;
    static_cast<void>(os::read_some(news_.get(), std::as_writable_bytes(std::span(&count, 1))));
    return std::nullopt;
  }
  ShmAccepted next = std::move(finished_.front());
  finished_.pop_front();
  return next;
}

Doorman::Report DoormanThread::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

void DoormanThread::run() {
  while (os::events_now(stop_.get(), POLLIN) == 0) {
    const Time now = monotonic_now();
    listener_->poll(now);
    publish(now);
    sleep(now);
  }
}

void DoormanThread::publish(Time now) {
  std::deque<ShmAccepted> finished;
  while (auto next = listener_->take()) finished.push_back(std::move(*next));
  const bool hung_up = std::exchange(hang_ups_, listener_->hang_ups()) != listener_->hang_ups();
  const bool urgent = hung_up || !finished.empty();
  const std::lock_guard lock(mutex_);
  const auto& counters = listener_->counters();
  report_due_ = report_due_ || total(counters) != total(report_.counters);
  report_ = {counters, listener_->last_error()};
  std::ranges::move(finished, std::back_inserter(finished_));
  if (!urgent && (!report_due_ || now < report_again_)) return;
  report_due_ = false;
  report_again_ = now + kReportInterval;
  // D2 (release): see D1.
  has_news_.store(true, std::memory_order_release);
  signal_event(news_.get());
}

void DoormanThread::sleep(Time now) const {
  pollfd waits[] = {{listener_->descriptor(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  const Time deadline = std::min(listener_->next_deadline(), report_due_ ? report_again_ : kNever);
  const timespec limit = os::timespec_of(deadline == kNever ? Duration(0) : std::max(deadline - now, Duration(0)));
  static_cast<void>(::ppoll(waits, 2, deadline == kNever ? nullptr : &limit, nullptr));
}

}  // namespace splitnic::fabric
