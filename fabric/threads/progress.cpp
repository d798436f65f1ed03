#include "fabric/threads/progress.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/check.h"
#include "common/os/errno_text.h"
#include "common/os/timespec.h"
#include "common/os/uncancelled.h"

namespace splitnic::fabric {
namespace {

// How often a caller polls before it leaves the rest to the thread.
constexpr int kPollsBeforeSleep = 4;

/// Edge-triggered: what has come, and callers deal with, wakes the thread once. EPOLL_CTL_MOD looks at the descriptor
/// itself: if it is still readable then, that is an edge.
bool watch_edges(const os::UniqueFd& epoll, int how, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = Progress::kOwnTokens | static_cast<std::uint64_t>(descriptor);
  return ::epoll_ctl(epoll.get(), how, descriptor, &event) == 0;
}

}  // namespace

Result<std::unique_ptr<Progress>> Progress::make(ChannelAdapter& adapter, const SharedAdapterOptions& options) {
  const auto timer = [] { return os::UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)); };
  Descriptors made{os::UniqueFd(::epoll_create1(EPOLL_CLOEXEC)), timer(), timer(),
                   os::UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))};
  const auto watched = [&](const os::UniqueFd& one) {
    return one && watch_edges(made.epoll, EPOLL_CTL_ADD, one.get());
  };
  if (!made.epoll || !watched(made.timer) || !watched(made.glances) || !watched(made.bell)) {
    return fail("cannot create the descriptors of a progress thread: {}", os::errno_text());
  }
  return std::unique_ptr<Progress>(new Progress(adapter, options, std::move(made)));
}

Progress::Progress(ChannelAdapter& adapter, const SharedAdapterOptions& options, Descriptors descriptors)
    : adapter_(adapter),
      options_(options),
      descriptors_(std::move(descriptors)),
      next_glance_(options.takeover_min),
      takeover_(options.takeover_min) {
  if (!options.single_threaded) give_to_thread();
}

Result<void> Progress::add(PathNumber path, CellLink& link) {
  const int descriptor = link.descriptor();
  const bool shared =
      std::ranges::any_of(links_, [=](const Attached& other) { return other.descriptor == descriptor; });
  if (descriptor >= 0 && !shared && !watch_edges(descriptors_.epoll, EPOLL_CTL_ADD, descriptor)) {
    return fail("cannot watch a link: {}", os::errno_text());
  }
  links_.push_back({path, &link, descriptor});
  any_without_descriptor_ = any_without_descriptor_ || descriptor < 0;
  return {};
}

void Progress::remove(PathNumber path) {
  const auto found = std::ranges::find(links_, path, &Attached::path);
  if (found == links_.end()) return;
  const int descriptor = found->descriptor;
  links_.erase(found);
  const bool shared =
      std::ranges::any_of(links_, [=](const Attached& other) { return other.descriptor == descriptor; });
  if (descriptor < 0 || shared) return;
  std::erase(fired_, descriptor);
  SPLITNIC_CHECK(::epoll_ctl(descriptors_.epoll.get(), EPOLL_CTL_DEL, descriptor, nullptr) == 0);
}

CellLink* Progress::find(PathNumber path) const {
  const auto found = std::ranges::find(links_, path, &Attached::path);
  return found == links_.end() ? nullptr : found->link;
}

std::size_t Progress::drive(Time now) {
  const std::size_t moved = adapter_.poll_links(now);
  return moved + adapter_.poll(now);
}

bool Progress::poll_for_caller(Time now) {
  ++empty_polls_;
  if (driver() == Driver::asleep) {
    if (++polls_asleep_ < kPollsBeforeTakeover) return false;
    give_to_callers(now);
  }
  count_poll();
  const AdapterTurn turn = adapter_.take_turn(now);
  if (turn.moved != 0) empty_polls_ = 0;
  return !turn.rested;
}

std::size_t Progress::drive_for_caller(Time now) {
  if (driver() == Driver::asleep) give_to_callers(now);
  count_poll();
  return adapter_.take_turn(now).moved;
}

void Progress::drive_beside(Time now) {
  if (driver() != Driver::callers) return;
  count_poll();
  static_cast<void>(adapter_.take_turn(now));
}

void Progress::announce(Time now) {
  if (options_.single_threaded) {
    adapter_.notify();
  } else if (driver() == Driver::asleep) {
    stay_asleep(now);
  }
}

void Progress::announce_post(Time now) {
  if (driver() == Driver::asleep && ++posts_asleep_ >= kPostsBeforeTakeover) give_to_callers(now);
  announce(now);
}

/// The thread sleeps on; what has changed is begun, announced and armed for.
void Progress::stay_asleep(Time now) {
  int polls = 0;
  while (polls < kPollsBeforeSleep && drive(now) != 0) ++polls;
  const bool armed = polls < kPollsBeforeSleep && adapter_.rearm();
  const Time until = armed ? next_deadline(now) : now;
  if (until <= now) {
    disarm();
    give_to_thread();
  } else if (until < timer_at_) {
    set_timer(until);
  }
}

void Progress::hand_over(Time now) {
  if (options_.single_threaded) return;
  if (driver() == Driver::thread) note_polls_seen();  // the thread need not ask who polls
  if (driver() != Driver::callers) return;
  ++counters_.hand_overs;
  int polls = 0;
  while (polls < kPollsBeforeSleep && drive(now) != 0) ++polls;
  if (polls == kPollsBeforeSleep || !try_sleep(now)) give_to_thread();
}

SharedAdapterCounters Progress::counters() const {
  SharedAdapterCounters counters = counters_;
  counters.polls = polls();
  return counters;
}

/// What changes meanwhile makes the thread look once more than it need, or a period later: who makes callers the driver
/// sets the other timer, and nobody but the thread touches this one.
bool Progress::callers_go_on(std::uint64_t token) {
  if (token < kOwnTokens) return false;  // the number of something else
  const auto descriptor = static_cast<int>(token & ~kOwnTokens);
  const bool glance = descriptor == descriptors_.glances.get();
  if (!glance && descriptor != descriptors_.timer.get()) return false;
  if (driver() != Driver::callers) return glance;
  if (!polled_unseen()) return false;
  note_polls_seen();
  next_glance_ = std::min(2 * next_glance_, options_.takeover_max);
  // At a multiple of the time, so that the threads of both ends disturb their callers together, not one after the
  // other.
  const Duration soonest = monotonic_now().time_since_epoch() + next_glance_ / 2;
  itimerspec when{};
  when.it_value = os::timespec_of(soonest + next_glance_ - soonest % next_glance_);
  SPLITNIC_CHECK(::timerfd_settime(descriptors_.glances.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0);
  return true;
}

void Progress::fired(std::uint64_t token) {
  const auto descriptor = static_cast<int>(token & ~kOwnTokens);
  bool of_link = false;
  for (const Attached& each : links_) {
    if (each.descriptor != descriptor) continue;
    of_link = true;
    adapter_.attend(each.path);
  }
  const bool known = std::ranges::find(fired_, descriptor) != fired_.end();
  if (of_link && !known) fired_.push_back(descriptor);
}

bool Progress::thread_turn(Time now) {
  if (driver() == Driver::callers && now < timer_at_) return false;  // woken by what callers have dealt with
  if (driver() != Driver::asleep && polled_unseen()) {
    const Duration longer = std::min(2 * takeover_, options_.takeover_max);
    drives_now(Driver::callers);
    note_polls_seen();
    takeover_ = longer;
    set_timer(now + takeover_);
    return false;
  }
  if (driver() == Driver::asleep) disarm();
  if (driver() == Driver::callers) ++counters_.thread_takeovers;
  drives_now(Driver::thread);
  note_polls_seen();
  takeover_ = options_.takeover_min;
  next_glance_ = options_.takeover_min;
  ++counters_.thread_polls;
  return drive(now) != 0 || !try_sleep(now);
}

bool Progress::try_sleep(Time now) {
  Time until = now;
  if (!prepare_sleep(now, until)) return false;
  drives_now(Driver::asleep);
  polls_asleep_ = posts_asleep_ = 0;
  set_timer(until);
  return true;
}

bool Progress::prepare_sleep(Time now, Time& until) {
  const bool armed = adapter_.prepare_sleep();
  until = armed ? next_deadline(now) : now;
  if (until <= now) {
    disarm();
    return false;
  }
  for (const int descriptor : fired_) SPLITNIC_CHECK(watch_edges(descriptors_.epoll, EPOLL_CTL_MOD, descriptor));
  fired_.clear();
  return true;
}

void Progress::disarm() { adapter_.disarm(); }

Time Progress::next_deadline(Time now) const {
  const Time deadline = std::min(adapter_.next_deadline(), adapter_.next_link_deadline(now));
  const auto cannot_wake = [](const Attached& each) { return each.descriptor < 0 && each.link->up(); };
  const bool look_again = any_without_descriptor_ && std::ranges::any_of(links_, cannot_wake);
  return look_again ? std::min(deadline, now + options_.takeover_min) : deadline;
}

void Progress::give_to_thread() {
  drives_now(Driver::thread);
  note_polls_seen();
  kick();
}

void Progress::give_to_callers(Time now) {
  disarm();
  ++counters_.caller_takeovers;
  drives_now(Driver::callers);
  note_polls_seen();
  takeover_ = options_.takeover_min;
  set_timer(now + takeover_);
}

void Progress::kick() {
  const os::Uncancelled whole;
  const std::uint64_t one = 1;
  static_cast<void>(
      !::write(descriptors_.bell.get(), &one, sizeof one));  // only a full counter refuses: then it is readable
}

void Progress::set_timer(Time at) {
  if (at == timer_at_) return;
  timer_at_ = at;
  itimerspec when{};
  // Zero would mean "off".
  if (at != kNever) when.it_value = os::timespec_of(std::max(at.time_since_epoch(), Duration(1)));
  SPLITNIC_CHECK(::timerfd_settime(descriptors_.timer.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0);
}

}  // namespace splitnic::fabric
