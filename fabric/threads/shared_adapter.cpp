#include "fabric/threads/shared_adapter.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <vector>

#include "common/check.h"
#include "common/os/blocked_signals.h"
#include "common/os/timespec.h"
#include "fabric/threads/biased_lock.h"
#include "fabric/threads/companions.h"
#include "fabric/threads/descriptor_watches.h"
#include "fabric/threads/fork_mark.h"
#include "fabric/threads/per_process.h"
#include "fabric/threads/progress.h"
#include "fabric/threads/wake_descriptor.h"

namespace splitnic::fabric {
namespace {

// How long the thread serves before it looks at the watched descriptors, too.
constexpr int kTurnsInARow = 64;
// How often a single thread that polls looks at the watched descriptors.
constexpr Duration kWatchesEvery = std::chrono::milliseconds(1);

Waited sleep_on(int epoll, int descriptor, Time until) {
  std::array descriptors{pollfd{descriptor, POLLIN, 0}, pollfd{epoll, POLLIN, 0}};  // ppoll ignores -1
  const timespec limit =
      os::timespec_of(until == kNever ? Duration(0) : std::max(until - monotonic_now(), Duration(0)));
  const int ready = ::ppoll(descriptors.data(), descriptors.size(), until == kNever ? nullptr : &limit, nullptr);
  if (ready < 0) return Waited::interrupted;
  return ready == 0 ? Waited::timeout : Waited::ready;
}

bool readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

/// Of this process, without those that have one thread.
Companions& companions() {
  static constinit PerProcess<Companions> of_process;
  return of_process.get();
}

}  // namespace

struct SharedAdapter::State final : Companion {
  State(const AdapterOptions& with, RandomSource& random, const SharedAdapterOptions& how, ForkMark mark_of,
        WakeDescriptor events_of)
      : options(how),
        lock(how.single_threaded),
        mark(std::move(mark_of)),
        events(std::move(events_of)),
        adapter(with, random) {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] Result<void> start();
  template <class Post>
  Status post(Post&& one);
  template <class Request, class Post>
  Status post_list(std::span<const Request> requests, std::size_t& posted, Post&& one);
  /// A caller has posted. Posts that were placed whole leave nothing to do.
  void announce_posts() {
    if (progress->wants_announcement() && adapter.has_unannounced()) progress->announce_post(clock.read());
  }
  void run();
  void serve();
  void take_fired(int timeout_ms);
  void take_fired_once();
  void poll_watches(Time now);
  void serve_while_another_waits() override;
  [[nodiscard]] Waited wait(int descriptor, Time until);
  [[nodiscard]] Waited wait_alone(int descriptor, Time until);
  /// Of callers that poll. While they drive the adapter, the thread asks for a reading of the clock at least at the end
  /// of each takeover time; a single thread that polls now and then has only itself.
  [[nodiscard]] Time polling_time() {
    if (options.single_threaded) return clock.read();
    if (!time_has_passed.load(std::memory_order_relaxed)) return clock.now();
    time_has_passed.store(false, std::memory_order_relaxed);
    return clock.read();
  }
  [[nodiscard]] WakeDescriptor* channel(ChannelNumber number) const {
    const auto found = channels.find(number);
    return found == channels.end() ? nullptr : found->second.get();
  }
  /// Under the lock.
  void note_poller() {
    const pthread_t self = ::pthread_self();
    if (poller.load(std::memory_order_relaxed) != self) poller.store(self, std::memory_order_relaxed);
  }
  /// The channel's descriptor is readable only while it has a notification.
  void clear_if_empty(ChannelNumber number) {
    WakeDescriptor* wake = channel(number);
    if (wake != nullptr && !adapter.has_notification(number)) wake->clear();
  }

  const SharedAdapterOptions options;
  mutable BiasedLock lock;  // protects the following, up to `watches`
  const ForkMark mark;
  WakeDescriptor events;
  std::map<ChannelNumber, std::unique_ptr<WakeDescriptor>> channels;
  std::map<PathNumber, std::shared_ptr<CellLink>> links;
  ChannelAdapter adapter;
  std::unique_ptr<Progress> progress;
  PollingClock clock;  // so that no time that the adapter hears of is before the last one
  std::atomic<bool> time_has_passed{false};
  std::atomic<pthread_t> poller{};  // the thread that polled completions last
  std::unique_ptr<DescriptorWatches> watches;
  Time watches_next{};  // of a single thread, as is the next
  bool in_watch = false;
  std::atomic<bool> stopping{false};
  std::thread thread;
};

SharedAdapter::State::~State() {
  if (!thread.joinable()) return;
  companions().remove(*this);
  stopping.store(true, std::memory_order_relaxed);
  progress->kick();
  thread.join();
}

Result<void> SharedAdapter::State::start() {
  auto made = Progress::make(adapter, options);
  if (!made) return tl::unexpected(made.error());
  progress = std::move(*made);
  watches = std::make_unique<DescriptorWatches>(progress->descriptor());
  adapter.set_event_wake([this] { events.set(); });
  if (options.single_threaded) return {};
  const os::BlockedSignals signals;
  try {
    thread = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return fail("cannot start a progress thread: {}", error.what());
  }
  companions().add(*this);
  return {};
}

void SharedAdapter::State::run() {
  while (!stopping.load(std::memory_order_relaxed)) take_fired(-1);
}

/// Waits for events of the epoll, and deals with them.
void SharedAdapter::State::take_fired(int timeout_ms) {
  std::array<epoll_event, 16> fired;
  const int count = ::epoll_wait(progress->descriptor(), fired.data(), static_cast<int>(fired.size()), timeout_ms);
  SPLITNIC_CHECK(count >= 0 || errno == EINTR);
  const auto events_fired = std::span(fired).first(static_cast<std::size_t>(std::max(count, 0)));
  const auto own = [](const epoll_event& event) { return event.data.u64 >= Progress::kOwnTokens; };
  if (!options.single_threaded && count == 1 && progress->callers_go_on(fired[0].data.u64)) {
    time_has_passed.store(true, std::memory_order_relaxed);
    return;
  }
  if (std::ranges::any_of(events_fired, own)) {
    lock.lock_in_background();
    const std::lock_guard guard(lock, std::adopt_lock);
    for (const epoll_event& event : events_fired) {
      if (own(event)) progress->fired(event.data.u64);
    }
  }
  if (!options.single_threaded) serve();
  for (const epoll_event& event : events_fired) {
    if (!own(event)) watches->ready(event.data.u64);
  }
}

void SharedAdapter::State::serve() {
  for (int turn = 0; turn < kTurnsInARow; ++turn) {
    {
      lock.lock_in_background();
      const std::lock_guard guard(lock, std::adopt_lock);
      if (!progress->thread_turn(clock.read())) return;
    }
    if (stopping.load(std::memory_order_relaxed)) return;
    lock.let_others_in();
  }
  progress->kick();  // to come back soon
}

/// What the thread would do, if there is none.
void SharedAdapter::State::poll_watches(Time now) {
  if (!options.single_threaded || now < watches_next) return;
  watches_next = now + kWatchesEvery;
  if (watches->any()) take_fired_once();
}

/// Without a thread. A watch's function that leads here again has been called by it.
void SharedAdapter::State::take_fired_once() {
  if (in_watch) return;
  in_watch = true;
  take_fired(0);
  in_watch = false;
}

void SharedAdapter::State::serve_while_another_waits() {
  if (poller.load(std::memory_order_relaxed) != ::pthread_self() || !lock.try_lock()) return;
  const std::lock_guard guard(lock, std::adopt_lock);
  progress->drive_beside(clock.read());
}

Waited SharedAdapter::State::wait(int descriptor, Time until) {
  if (options.single_threaded) return wait_alone(descriptor, until);
  {
    const std::lock_guard guard(lock);
    progress->hand_over(clock.read());
  }
  return sleep_on(-1, descriptor, until);
}

Waited SharedAdapter::State::wait_alone(int descriptor, Time until) {
  for (;;) {
    const Time now = clock.read();
    const bool worked = progress->drive(now) != 0;
    if (readable(descriptor)) return Waited::ready;
    if (now >= until) return Waited::timeout;
    Time wake_at = now;
    if (worked || !progress->prepare_sleep(now, wake_at)) continue;
    const Waited ended = sleep_on(progress->descriptor(), descriptor, std::min(until, wake_at));
    progress->disarm();
    if (ended == Waited::interrupted) return ended;
    take_fired_once();
  }
}

Result<std::unique_ptr<SharedAdapter>> SharedAdapter::create(const AdapterOptions& adapter, RandomSource& random,
                                                             const SharedAdapterOptions& options) {
  SPLITNIC_CHECK(options.takeover_min >= std::chrono::microseconds(1));
  SPLITNIC_CHECK(options.takeover_max >= options.takeover_min);
  auto mark = ForkMark::make();
  if (!mark) return tl::unexpected(mark.error());
  auto events = WakeDescriptor::make();
  if (!events) return tl::unexpected(events.error());
  auto state = std::make_unique<State>(adapter, random, options, std::move(*mark), std::move(*events));
  if (auto started = state->start(); !started) return tl::unexpected(started.error());
  return std::unique_ptr<SharedAdapter>(new SharedAdapter(std::move(state)));
}

SharedAdapter::SharedAdapter(std::unique_ptr<State> state) : state_(std::move(state)) {}

SharedAdapter::~SharedAdapter() {
  // A child has no such thread, perhaps a lock that is held for ever, and rings that the parent uses.
  if (forked()) static_cast<void>(state_.release());
}

ChannelAdapter& SharedAdapter::adapter() { return state_->adapter; }

bool SharedAdapter::forked() const { return state_->mark.forked(); }

SharedAdapter::Use::Use(SharedAdapter& on, bool of_posts) : on_(on), of_posts_(of_posts) {
  SPLITNIC_CHECK(!on.forked());
  on.state_->lock.lock();
}

SharedAdapter::Use::~Use() {
  State& state = *on_.state_;
  if (of_posts_) {
    state.announce_posts();
  } else if (state.progress->wants_announcement()) {
    state.progress->announce(state.clock.read());
  }
  state.lock.unlock();
}

template <class Post>
Status SharedAdapter::State::post(Post&& one) {
  const std::lock_guard guard(lock);
  const Status status = one();
  announce_posts();
  return status;
}

template <class Request, class Post>
Status SharedAdapter::State::post_list(std::span<const Request> requests, std::size_t& posted, Post&& one) {
  posted = 0;
  return post([&] {
    Status status = Status::ok;
    while (posted < requests.size() && status == Status::ok) {
      status = one(requests[posted]);
      if (status == Status::ok) ++posted;
    }
    return status;
  });
}

Status SharedAdapter::post_send(QpNumber queue_pair, const WorkRequest& request) {
  return state_->post([&] { return adapter().post_send(queue_pair, request); });
}

Status SharedAdapter::post_send(QpNumber queue_pair, std::span<const WorkRequest> requests, std::size_t& posted) {
  return state_->post([&] { return adapter().post_send(queue_pair, requests, posted); });
}

Status SharedAdapter::post_receive(QpNumber queue_pair, const ReceiveRequest& request) {
  return state_->post([&] { return adapter().post_receive(queue_pair, request); });
}

Status SharedAdapter::post_receive(QpNumber queue_pair, std::span<const ReceiveRequest> requests, std::size_t& posted) {
  return state_->post([&] { return adapter().post_receive(queue_pair, requests, posted); });
}

Status SharedAdapter::post_shared_receive(SrqNumber queue, const ReceiveRequest& request) {
  return state_->post([&] { return adapter().post_shared_receive(queue, request); });
}

Status SharedAdapter::post_shared_receive(SrqNumber queue, std::span<const ReceiveRequest> requests,
                                          std::size_t& posted) {
  return state_->post_list(
      requests, posted, [&](const ReceiveRequest& request) { return adapter().post_shared_receive(queue, request); });
}

std::size_t SharedAdapter::poll_completions(CqNumber queue, std::span<Completion> out, bool goes_on) {
  if (goes_on) {
    const std::lock_guard guard(state_->lock);
    return adapter().poll_completions(queue, out, true);
  }
  state_->lock.let_others_in();
  Time now;
  bool yields = false;
  bool looks_around = false;
  {
    const std::lock_guard guard(state_->lock);
    state_->note_poller();
    std::size_t found = adapter().poll_completions(queue, out);
    if (found == 0) {
      now = state_->polling_time();
      if (state_->progress->poll_for_caller(now)) found = adapter().poll_completions(queue, out);
    }
    if (found != 0) {
      state_->progress->found_completions();
      return found;
    }
    yields = state_->progress->should_yield();
    looks_around = state_->progress->should_look_around();
  }
  if (looks_around && !state_->options.single_threaded) companions().serve_others(*state_);
  state_->poll_watches(now);
  if (yields) std::this_thread::yield();
  return 0;
}

Status SharedAdapter::arm(CqNumber queue, Arm what) {
  const std::lock_guard guard(state_->lock);
  const Status status = adapter().arm(queue, what);
  if (status == Status::ok) state_->progress->hand_over(state_->clock.read());
  return status;
}

std::size_t SharedAdapter::progress() {
  state_->lock.let_others_in();
  Time now;
  std::size_t moved = 0;
  {
    const std::lock_guard guard(state_->lock);
    now = state_->clock.read();
    moved = state_->progress->drive_for_caller(now);
  }
  state_->poll_watches(now);
  return moved;
}

Result<PathNumber> SharedAdapter::add_link(std::shared_ptr<CellLink> link) {
  const Use guard(*this);
  const auto path = adapter().attach(*link);
  if (!path) return fail("the adapter has no path left");
  if (auto added = state_->progress->add(*path, *link); !added) {
    static_cast<void>(adapter().detach(*path));
    return tl::unexpected(added.error());
  }
  state_->links[*path] = std::move(link);
  return *path;
}

Status SharedAdapter::remove_link(PathNumber path) {
  std::shared_ptr<CellLink> ended;  // without the lock
  const Use guard(*this);
  const auto found = state_->links.find(path);
  if (found == state_->links.end()) return Status::bad_argument;
  ended = std::move(found->second);
  state_->links.erase(found);
  state_->progress->remove(path);
  return adapter().detach(path);
}

bool SharedAdapter::with_link(PathNumber path, const std::function<void(CellLink&)>& look) {
  const Use guard(*this);
  const auto found = state_->links.find(path);
  if (found == state_->links.end()) return false;
  look(*found->second);
  adapter().follow(path);
  return true;
}

Result<ChannelNumber> SharedAdapter::create_completion_channel() {
  auto made = WakeDescriptor::make();
  if (!made) return tl::unexpected(made.error());
  auto wake = std::make_unique<WakeDescriptor>(std::move(*made));
  const std::lock_guard guard(state_->lock);
  const auto number = adapter().create_completion_channel([descriptor = wake.get()] { descriptor->set(); });
  if (!number) return fail("the adapter has no completion channel left");
  state_->channels[*number] = std::move(wake);
  return *number;
}

int SharedAdapter::channel_descriptor(ChannelNumber channel) const {
  const std::lock_guard guard(state_->lock);
  const WakeDescriptor* wake = state_->channel(channel);
  return wake == nullptr ? -1 : wake->get();
}

std::optional<CqNumber> SharedAdapter::take_notification(ChannelNumber channel) {
  const std::lock_guard guard(state_->lock);
  const auto queue = adapter().take_notification(channel);
  state_->clear_if_empty(channel);
  return queue;
}

Waited SharedAdapter::wait_notification(ChannelNumber channel, Time until) {
  const int descriptor = channel_descriptor(channel);
  return descriptor < 0 ? Waited::timeout : state_->wait(descriptor, until);  // ppoll would ignore it, and sleep on
}

Status SharedAdapter::destroy_completion_queue(CqNumber queue, ChannelNumber channel) {
  const Use guard(*this);
  const Status status = adapter().destroy_completion_queue(queue);
  state_->clear_if_empty(channel);
  return status;
}

Status SharedAdapter::destroy_completion_channel(ChannelNumber channel) {
  const std::lock_guard guard(state_->lock);
  const Status status = adapter().destroy_completion_channel(channel);
  if (status == Status::ok) state_->channels.erase(channel);
  return status;
}

int SharedAdapter::event_descriptor() const { return state_->events.get(); }

std::size_t SharedAdapter::poll_events(std::span<AsyncEvent> out) {
  const std::lock_guard guard(state_->lock);
  const std::size_t count = adapter().poll_events(out);
  if (!adapter().has_events()) state_->events.clear();
  return count;
}

Waited SharedAdapter::wait_event(Time until) { return state_->wait(state_->events.get(), until); }

Result<WatchNumber> SharedAdapter::watch(int descriptor, std::function<void()> ready) {
  return state_->watches->add(descriptor, std::move(ready));
}

Status SharedAdapter::unwatch(WatchNumber number) { return state_->watches->remove(number); }

SharedAdapterCounters SharedAdapter::counters() const {
  const std::lock_guard guard(state_->lock);
  SharedAdapterCounters counters = state_->progress->counters();
  counters.contended = state_->lock.contended();
  counters.biases = state_->lock.biases();
  counters.revocations = state_->lock.revocations();
  return counters;
}

}  // namespace splitnic::fabric
