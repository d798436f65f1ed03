// The table of sockets over RDMA, their defaults, and how threads wait for them.
#include "fabric/rdmacm/rsocket.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "common/os/uncancelled.h"
#include "fabric/rdmacm/datagram_socket.h"
#include "fabric/rdmacm/stream.h"
#include "fabric/threads/per_process.h"

namespace splitnic::rdmacm {
namespace {

/// An integer of the administrator's; none: no such file, or something else is in it.
std::optional<int> configured(const char* name, int least) {
  std::ifstream file(std::string("/etc/rdma/rsocket/") + name);
  int value = 0;
  if (!(file >> value) || value < least) return std::nullopt;
  return value;
}

RsocketOptions read_defaults() {
  RsocketOptions options;
  options.receive_bytes = configured("mem_default", 1).value_or(options.receive_bytes);
  options.send_bytes = configured("wmem_default", 1).value_or(options.send_bytes);
  options.send_requests = configured("sqsize_default", 1).value_or(options.send_requests);
  options.receive_requests = configured("rqsize_default", 1).value_or(options.receive_requests);
  options.inline_bytes = configured("inline_default", 0).value_or(options.inline_bytes);
  options.io_maps = configured("iomap_size", 0).value_or(options.io_maps);
  return options;
}

/// How long a thread looks again and again before it sleeps.
Duration spin_time() {
  struct Configured {
    const Duration time = std::chrono::microseconds(configured("polling_time", 0).value_or(20));
  };
  static constinit fabric::PerProcess<Configured> of_process;
  return of_process.get().time;
}

/// The descriptor by which other threads wake this one; 0: none yet. It needs no destructor, because a program's end
/// destroys what its main thread has before the sockets are drained, which sleeps once more.
struct OwnEvent {
  int descriptor = -1;
  pid_t process = 0;
};
constinit thread_local OwnEvent own_event;

/// A thread that has no such descriptor is woken by nobody, so it sleeps no longer than this.
constexpr Duration kUnwokenSleep = std::chrono::milliseconds(5);

/// Closes it with the thread. A forked child leaves its copy open: it may have closed what it inherited, and then the
/// number is that of a file of its own.
struct OwnEventEnd {
  ~OwnEventEnd() {
    const OwnEvent last = std::exchange(own_event, OwnEvent{});
    if (last.process == ::getpid()) const os::UniqueFd ended(last.descriptor);
  }
};

/// The descriptor, which is not readable; -1: there is none to be had now, and the next sleep tries again.
int event_of_thread() {
  thread_local const OwnEventEnd end{};
  static_cast<void>(end);
  const os::Uncancelled whole;
  // A forked child must not take the wake-ups of its parent.
  if (own_event.descriptor < 0 || own_event.process != ::getpid())
    own_event = {eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), ::getpid()};
  eventfd_t count = 0;
  if (own_event.descriptor >= 0) eventfd_read(own_event.descriptor, &count);
  return own_event.descriptor;
}

/// Wakes this thread when another one takes news of the sockets, as long as it lives: a thread that is cancelled in its
/// sleep leaves none of them its descriptor, whose number is soon that of something else.
class Sleeper {
 public:
  explicit Sleeper(std::span<Interest> sockets) : sockets_(sockets), event_(event_of_thread()) {}
  ~Sleeper() {
    for (const Interest& one : sockets_) {
      const std::lock_guard guard(one.socket->lock);
      one.socket->remove_sleeper(event_);
    }
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  void add() const {
    if (event_ < 0) return;
    for (const Interest& one : sockets_) {
      const std::lock_guard guard(one.socket->lock);
      one.socket->add_sleeper(event_);
    }
  }
  [[nodiscard]] int event() const { return event_; }

 private:
  std::span<Interest> sockets_;
  int event_;
};

/// -1: a socket was closed meanwhile. after: what is done to each before it is looked at.
template <class Before>
int look_at(std::span<Interest> sockets, Before&& before) {
  int count = 0;
  for (Interest& one : sockets) {
    const std::lock_guard guard(one.socket->lock);
    if (one.socket->closed) return -1;
    before(*one.socket);
    one.found =
        one.transfer != nullptr ? one.socket->ready_for(*one.transfer, one.wanted) : one.socket->ready(one.wanted);
    count += one.found != 0 ? 1 : 0;
  }
  return count;
}

int poll_plain(std::span<pollfd> plain) { return plain.empty() ? 0 : ::poll(plain.data(), plain.size(), 0); }

timespec until(Time deadline) {
  const auto left = std::max(deadline - monotonic_now(), Duration(0));
  return {std::chrono::duration_cast<std::chrono::seconds>(left).count(), (left % std::chrono::seconds(1)).count()};
}

/// Sleeps until something happens on one of them. 0 or an errno.
int sleep(std::span<Interest> sockets, std::span<pollfd> plain, const Sleeper& sleeper, Time deadline) {
  std::vector<pollfd> all(plain.begin(), plain.end());
  for (const Interest& one : sockets) all.push_back({one.socket->descriptor(), POLLIN, 0});
  all.push_back({sleeper.event(), POLLIN, 0});
  if (sleeper.event() < 0) deadline = std::min(deadline, monotonic_now() + kUnwokenSleep);
  const timespec limit = until(deadline);
  return ::ppoll(all.data(), all.size(), deadline == kNever ? nullptr : &limit, nullptr) < 0 ? errno : 0;
}

/// A round of sleeping: arms, looks again, sleeps. How many are ready before it sleeps; 0: something has happened.
Outcome<int> sleep_once(std::span<Interest> sockets, std::span<pollfd> plain, Time deadline) {
  const Sleeper sleeper(sockets);
  sleeper.add();
  int count = look_at(sockets, [](Rsocket& socket) {
    socket.arm();
    socket.progress();
  });
  const int error_number = count == 0 ? sleep(sockets, plain, sleeper, deadline) : 0;
  if (count < 0) return error(EBADF);
  if (error_number != 0) return error(error_number);
  return count;
}

/// In a forked child: the queue pair is the parent's, so nothing of the socket may be destroyed here.
void leave_to_parent(std::shared_ptr<Rsocket> socket) {
  if (socket) static_cast<void>(new std::shared_ptr<Rsocket>(std::move(socket)));
}

}  // namespace

const RsocketOptions& RsocketOptions::defaults() {
  struct Defaults {
    const RsocketOptions options = read_defaults();
  };
  static constinit fabric::PerProcess<Defaults> of_process;
  return of_process.get().options;
}

std::shared_ptr<Rsocket> Rsocket::create(int family, int type) {
  os::UniqueFd set(epoll_create1(EPOLL_CLOEXEC));
  if (!set) return nullptr;
  if (type == SOCK_STREAM) return std::make_shared<Stream>(family, std::move(set));
  return std::make_shared<DatagramSocket>(family, std::move(set));
}

bool Rsocket::renumber() {
  os::UniqueFd renumbered(::fcntl(set_.get(), F_DUPFD_CLOEXEC, 0));
  if (!renumbered) return false;
  set_ = std::move(renumbered);
  return true;
}

bool Rsocket::watch(int descriptor) const {
  epoll_event readable{};
  readable.events = EPOLLIN;
  return epoll_ctl(set_.get(), EPOLL_CTL_ADD, descriptor, &readable) == 0;
}

void Rsocket::wake_sleepers() const {
  const os::Uncancelled whole;
  for (const int event : sleepers_) eventfd_write(event, 1);
}

RsocketTable::RsocketTable() {
  // A child begins with a table that no thread of its parent was changing.
  pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                 [] {
                   ++get().generation_;
                   get().mutex_.unlock();
                 });
}

RsocketTable& RsocketTable::get() {
  static auto* const table = new RsocketTable;  // never deleted: threads may use it while the process ends
  return *table;
}

void RsocketTable::insert(const std::shared_ptr<Rsocket>& socket) {
  const std::lock_guard guard(mutex_);
  const auto index = static_cast<std::size_t>(socket->descriptor());
  if (entries_.size() <= index) entries_.resize(index + 1);
  Entry& entry = entries_[index];
  if (entry.generation != generation_) leave_to_parent(std::move(entry.socket));
  entry = {socket, generation_};
}

std::shared_ptr<Rsocket> RsocketTable::find(int descriptor) {
  const std::lock_guard guard(mutex_);
  const auto index = static_cast<std::size_t>(descriptor);
  if (descriptor < 0 || index >= entries_.size() || entries_[index].generation != generation_) return nullptr;
  return entries_[index].socket;
}

std::shared_ptr<Rsocket> RsocketTable::remove(int descriptor, bool& inherited) {
  const std::lock_guard guard(mutex_);
  const auto index = static_cast<std::size_t>(descriptor);
  inherited = false;
  if (descriptor < 0 || index >= entries_.size() || !entries_[index].socket) return nullptr;
  Entry entry = std::move(entries_[index]);
  entries_[index] = {};
  if (entry.generation == generation_) return std::move(entry.socket);
  inherited = true;
  leave_to_parent(std::move(entry.socket));
  ::close(descriptor);
  return nullptr;
}

std::vector<std::shared_ptr<Rsocket>> RsocketTable::all() {
  const std::lock_guard guard(mutex_);
  std::vector<std::shared_ptr<Rsocket>> found;
  for (const Entry& entry : entries_) {
    if (entry.socket && entry.generation == generation_) found.push_back(entry.socket);
  }
  return found;
}

Outcome<int> await(std::span<Interest> sockets, std::span<pollfd> plain, Time deadline) {
  const auto progress = [](Rsocket& socket) { socket.progress(); };
  const auto wake = [](Rsocket& socket) { socket.wake(); };
  bool slept = false;
  for (Time spin_end = kNever;; slept = true) {
    do {
      const int count = slept ? look_at(sockets, wake) : look_at(sockets, progress);
      if (count < 0) return error(EBADF);
      const int others = poll_plain(plain);
      if (others < 0) return error(errno);
      if (count + others > 0) return count + others;
      const Time now = monotonic_now();
      if (now >= deadline) return 0;
      if (spin_end == kNever) spin_end = now + (sockets.empty() ? Duration(0) : spin_time());
      slept = false;
    } while (monotonic_now() < spin_end);
    const auto count = sleep_once(sockets, plain, deadline);
    if (!count) return count;
    spin_end = Time{};
  }
}

}  // namespace splitnic::rdmacm
