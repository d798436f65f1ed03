#include "fabric/threads/descriptor_watches.h"

#include <sys/epoll.h>

#include <utility>

#include "common/os/errno_text.h"

namespace splitnic::fabric {

Result<WatchNumber> DescriptorWatches::add(int descriptor, std::function<void()> ready) {
  const std::lock_guard guard(mutex_);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ++last_number_;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    return fail("cannot watch a descriptor: {}", os::errno_text());
  }
  watches_[last_number_] = std::make_shared<const Watch>(Watch{descriptor, std::move(ready)});
  count_.store(watches_.size(), std::memory_order_relaxed);
  return WatchNumber{last_number_};
}

Status DescriptorWatches::remove(WatchNumber number) {
  std::shared_ptr<const Watch> ended;  // what its function holds ends without the lock
  std::unique_lock guard(mutex_);
  const auto found = watches_.find(number.value);
  if (found == watches_.end()) return Status::bad_argument;
  // The owner may have closed it already; then the kernel has forgotten it.
  static_cast<void>(::epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second->descriptor, nullptr));
  ended = std::move(found->second);
  watches_.erase(found);
  count_.store(watches_.size(), std::memory_order_relaxed);
  if (runs_in_ != std::this_thread::get_id()) {
    returned_.wait(guard, [&] { return running_ != number.value; });
  }
  return Status::ok;
}

void DescriptorWatches::ready(std::uint64_t token) {
  std::shared_ptr<const Watch> watch;
  {
    const std::lock_guard guard(mutex_);
    const auto found = watches_.find(token);
    if (found == watches_.end()) return;  // removed since the epoll returned it
    watch = found->second;
    running_ = token;
    runs_in_ = std::this_thread::get_id();
  }
  watch->ready();
  watch.reset();
  {
    const std::lock_guard guard(mutex_);
    running_ = 0;
    runs_in_ = {};
  }
  returned_.notify_all();
}

}  // namespace splitnic::fabric
