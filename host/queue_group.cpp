#include "host/queue_group.h"

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::host {

QueueGroup::QueueGroup(std::size_t further) {
  for (std::size_t queue = 0; queue < further; ++queue) {
    auto member = std::make_unique<Member>();
    member->bell = os::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!member->bell) throw StartupError{fmt::format("creating an eventfd: {}", os::errno_text())};
    members_.push_back(std::move(member));
  }
}

void QueueGroup::set_terms(std::uint64_t cookie, const NicOffloads& offloads) {
  {
    const std::lock_guard lock(mutex_);
    terms_ = {.generation = terms_.generation + 1, .cookie = cookie, .offloads = offloads};
    generation_.store(terms_.generation, std::memory_order_release);  // G1
  }
  for (std::size_t queue = 0; queue < members_.size(); ++queue) wake(queue);
}

QueueGroup::Terms QueueGroup::terms() const {
  const std::lock_guard lock(mutex_);
  return terms_;
}

void QueueGroup::wake(std::size_t queue) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t told =
      ::write(members_[queue]->bell.get(), &one, sizeof one);  // a full counter is readable, too
  // G2 (release): stored after the write to the eventfd; pairs with G2 in heard(). Without it heard() could clear the
  // flag before the write, and the descriptor would stay readable with nobody to empty it.
  members_[queue]->rung.store(true, std::memory_order_release);
}

void QueueGroup::heard(std::size_t queue) {
  Member& member = *members_[queue];
  if (!member.rung.load(std::memory_order_relaxed)) return;
  member.rung.exchange(false, std::memory_order_acquire);  // G2
  std::uint64_t count = 0;
  const iovec part{&count, sizeof count};
  [[maybe_unused]] const ssize_t taken = ::preadv2(member.bell.get(), &part, 1, -1, 0);
}

void QueueGroup::report(std::size_t queue, const Report& report) {
  const std::lock_guard lock(mutex_);
  members_[queue]->last = report;
}

QueueGroup::Sum QueueGroup::sum() const {
  const std::lock_guard lock(mutex_);
  Sum sum;
  for (const auto& member : members_) {
    const Report& last = member->last;
    sum.queues_up += last.up ? 1 : 0;
    sum.totals += last.totals;
    sum.counters += last.counters;
    sum.oversized += last.oversized;
    sum.unfinished += last.unfinished;
  }
  return sum;
}

}  // namespace splitnic::host
