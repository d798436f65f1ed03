// Event channels: what is ready becomes events, and programs get and acknowledge them.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

constexpr std::uint64_t kWake = 1;
constexpr std::uint64_t kTimer = 2;
constexpr std::uint64_t kLastOfChannel = kTimer;

/// A caller sends its request as soon as it is connected, so it comes within this unless the caller is stopped.
constexpr Duration kRequestMax = std::chrono::milliseconds(100);

bool add(int set, int descriptor, std::uint64_t number) {
  epoll_event readable{};
  readable.events = EPOLLIN;
  readable.data.u64 = number;
  return epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &readable) == 0;
}

itimerspec at(Time deadline) {
  itimerspec when{};  // zero: never
  if (deadline == kNever) return when;
  const auto since = std::max(deadline.time_since_epoch(), Duration(1));
  when.it_value.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(since).count();
  when.it_value.tv_nsec = (since % std::chrono::seconds(1)).count();
  return when;
}

}  // namespace

std::unique_ptr<Channel> Channel::open(Library& library) {
  auto channel = std::make_unique<Channel>(library);
  channel->set_ = os::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  channel->wake_ = os::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  channel->timer_ = os::UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  channel->last_number_ = kLastOfChannel;
  if (!channel->set_ || !channel->wake_ || !channel->timer_) return nullptr;
  if (!add(channel->set_.get(), channel->wake_.get(), kWake) ||
      !add(channel->set_.get(), channel->timer_.get(), kTimer)) {
    return nullptr;
  }
  channel->fd = channel->set_.get();
  return channel;
}

void Channel::settle_wake() {
  eventfd_t count = 0;
  if (waiting_.empty()) {
    eventfd_read(wake_.get(), &count);
  } else {
    eventfd_write(wake_.get(), 1);
  }
}

void Channel::push(std::unique_ptr<Event> event) {
  waiting_.push_back(std::move(event));
  settle_wake();  // each event is an edge for those who watch with EPOLLET
}

std::unique_ptr<Event> Channel::take() {
  if (waiting_.empty()) look();
  if (waiting_.empty()) {
    errno = trouble != 0 ? std::exchange(trouble, 0) : EAGAIN;
    return nullptr;
  }
  auto event = std::move(waiting_.front());
  waiting_.pop_front();
  if (waiting_.empty()) settle_wake();
  return event;
}

std::uint64_t Channel::watch(int descriptor, Identifier& identifier, Caller* caller) {
  const std::uint64_t number = ++last_number_;
  if (!add(set_.get(), descriptor, number)) return 0;
  watched_[number] = {&identifier, caller};
  return number;
}

/// Before each close: a forked child may hold a copy of the descriptor, and then closing alone does not end the watch.
void Channel::unwatch(std::uint64_t number, int descriptor) {
  silent_callers_.erase(number);
  if (watched_.erase(number) != 0) epoll_ctl(set_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

void Channel::await_request(std::uint64_t number) {
  if (!watched_.contains(number)) return;
  silent_callers_.insert(number);
  silent_until_ = monotonic_now() + kRequestMax;
}

int Channel::request_within(Time give_up) const {
  const Time now = monotonic_now();
  const Time until = std::min(silent_until_, give_up);
  if (silent_callers_.empty() || now >= until) return 0;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(until - now).count());
}

Time Channel::set_deadline(Identifier& identifier, Time deadline) {
  const auto before = deadlines_.extract(&identifier);
  if (deadline == kNever && before.empty()) return kNever;
  if (deadline != kNever) deadlines_[&identifier] = deadline;
  Time earliest = kNever;
  for (const auto& [waiting, when] : deadlines_) earliest = std::min(earliest, when);
  const itimerspec when = at(earliest);
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  return before.empty() ? kNever : before.mapped();
}

std::span<const epoll_event> Channel::ready_now(std::span<epoll_event> room) const {
  const int count = epoll_wait(set_.get(), room.data(), static_cast<int>(room.size()), 0);
  return room.first(static_cast<std::size_t>(std::max(count, 0)));
}

/// What one identifier does may end another one, so each is looked up again.
bool Channel::serve(std::span<const epoll_event> ready, bool listeners, std::uint64_t last_number) {
  bool served = false;
  for (const epoll_event& one : ready) {
    const auto found = watched_.find(one.data.u64);
    if (found == watched_.end() || one.data.u64 > last_number) continue;
    const auto [identifier, caller] = found->second;
    const bool listens = caller != nullptr || identifier->state == State::listening;
    if (listens != listeners) continue;
    identifier->on_ready(caller);
    served = true;
  }
  return served;
}

/// One round over what is ready. Connections come before listeners: a peer says that it is ready for one connection
/// before it asks for the next, and the order in which the kernel names descriptors is not that.
void Channel::look() {
  std::array<epoll_event, 64> room{};
  const auto ready = ready_now(room);
  const std::uint64_t newest = last_number_;
  serve(ready, false, newest);
  const std::size_t before = waiting_.size();
  serve(ready, true, newest);
  if (const std::size_t requested = waiting_.size(); requested != before) {
    // Who has asked since ready_now() has said something of an earlier connection just before, or the kernel had more
    // to name than there was room for. Of the new connections, the program gets the requests first.
    std::array<epoll_event, 64> more{};
    for (std::size_t rounds = watched_.size() / more.size() + 1; rounds != 0; --rounds) {
      if (!serve(ready_now(more), false, newest)) break;
    }
    const auto of_round = waiting_.begin() + static_cast<std::ptrdiff_t>(before);
    std::rotate(of_round, of_round + static_cast<std::ptrdiff_t>(requested - before), waiting_.end());
  }
  if (std::ranges::any_of(ready, [](const epoll_event& one) { return one.data.u64 == kTimer; })) take_time();
}

void Channel::take_time() {
  const Time now = monotonic_now();
  std::vector<Identifier*> due;
  for (const auto& [identifier, deadline] : deadlines_) {
    if (deadline <= now) due.push_back(identifier);
  }
  for (Identifier* identifier : due) {
    static_cast<void>(set_deadline(*identifier, kNever));
    identifier->on_time(now);
  }
}

void Channel::end(std::unique_ptr<Channel> channel) {
  const std::lock_guard guard(channel->library.lock);
  discard(std::exchange(channel->waiting_, {}));
  channel->set_.reset();
  channel->wake_.reset();
  channel->timer_.reset();
  if (channel->identifiers_ == 0) {
    retire(std::move(channel));
  } else {
    static_cast<void>(channel.release());  // the last identifier's
  }
}

void Channel::remove_identifier() {
  if (--identifiers_ == 0 && ended()) retire(std::unique_ptr<Channel>(this));
}

void Channel::retire(std::unique_ptr<Channel> channel) {
  Library& library = channel->library;
  library.ended[library.ended_count++ % library.ended.size()] = std::move(channel);
}

int get_event(rdma_event_channel* channel, rdma_cm_event** event) {
  Channel& from = Channel::of(channel);
  Time give_up = kNever;
  for (;;) {
    int request_within = 0;
    {
      const std::lock_guard guard(from.library.lock);
      if (from.ended()) break;
      if (auto next = from.take()) {
        ++next->owner->events_reported;
        if (next->membership != 0) next->owner->finish_join(*next);
        *event = next.release();
        return 0;
      }
      if (errno != EAGAIN) return -1;
      if (give_up == kNever) give_up = monotonic_now() + kRequestMax;
      request_within = from.request_within(give_up);
    }
    const bool blocks = (fcntl(channel->fd, F_GETFL) & O_NONBLOCK) == 0;
    // A caller has made the descriptor readable, and its request is on its way. Programs (Ceph, librpma) that poll the
    // descriptor do not expect to find no event, so the request is awaited. Further callers may come first; the call
    // returns in time however many there are.
    if (!blocks && request_within == 0) return refuse(EAGAIN);
    pollfd readable{channel->fd, POLLIN, 0};
    if (poll(&readable, 1, blocks ? -1 : request_within) < 0 && blocks) return -1;
  }
  // As if the channel had ended a moment later, while this thread waited: nothing wakes it any more.
  return poll(nullptr, 0, -1);
}

int await_completion(rdma_cm_id* id) {
  if (id->event != nullptr) {
    rdma_ack_cm_event(id->event);
    id->event = nullptr;
  }
  if (get_event(id->channel, &id->event) != 0) return -1;
  const int status = id->event->status;
  if (status == 0) return 0;
  if (id->event->event == RDMA_CM_EVENT_REJECTED) return refuse(ECONNREFUSED);
  return refuse(status < 0 ? -status : ECONNREFUSED);
}

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
  Library* library = Library::get();
  if (library == nullptr) return nullptr;
  try {
    return Channel::open(*library).release();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  Channel::end(std::unique_ptr<Channel>(&Channel::of(channel)));
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (channel == nullptr || event == nullptr) return refuse(EINVAL);
  return guarded([&] { return get_event(channel, event); });
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return refuse(EINVAL);
  const std::unique_ptr<Event> ended(static_cast<Event*>(event));
  const std::lock_guard guard(ended->owner->library.lock);
  ++ended->owner->events_acknowledged;
  if (ended->membership != 0) ended->owner->acknowledge_join(ended->membership);
  ended->owner->library.acknowledged.notify_all();
  return 0;
}

const char* rdma_event_str(rdma_cm_event_type event) {
  static constexpr std::array kNames{
      "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",      "RDMA_CM_EVENT_ROUTE_RESOLVED",
      "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",     "RDMA_CM_EVENT_REJECTED",
      "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
      "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
  const auto index = static_cast<std::size_t>(event);
  return index < kNames.size() ? kNames[index] : "UNKNOWN EVENT";
}

}  // extern "C"

}  // namespace splitnic::rdmacm
