#include "fabric/bridge/shm_listener.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "common/os/close_elsewhere.h"
#include "common/os/errno_text.h"
#include "common/os/message_io.h"
#include "common/os/passed_descriptors.h"
#include "fabric/bridge/attested_peer.h"
#include "fabric/bridge/shm_memory.h"

namespace splitnic::fabric {
namespace {

constexpr int kAcceptsPerPoll = 64;
constexpr int kEventsPerPoll = 64;
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
/// How long a host may take to hang up after it got the hang-up datagram.
constexpr Duration kHangUpLimit = std::chrono::seconds(1);
constexpr Duration kCloseAgain = std::chrono::milliseconds(100);

// What an event of the epoll is about; any other number is that of a bridge that hung up.
constexpr std::uint64_t kNewCaller = 0;
constexpr std::uint64_t kBridgeEnded = 1;
constexpr std::uint64_t kCallerSpoke = 2;
constexpr std::uint64_t kFirstBridge = 3;

/// Sends the reply with the descriptors, if any. The socket is new, so either everything fits or the host has gone.
bool send_reply(int socket, const ShmReply& reply, std::span<const int> descriptors) {
  return os::send_with_descriptors(socket, std::as_bytes(std::span(&reply, 1)), descriptors, MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof reply);
}

ShmReply reply_with(ShmSetupStatus status) {
  ShmReply reply{};
  reply.magic = kShmSetupMagic;
  reply.version = kShmSetupVersion;
  reply.status = static_cast<std::uint32_t>(status);
  return reply;
}

bool in_supplementary_groups(int socket, const std::vector<gid_t>& groups) {
  std::array<gid_t, 1024> of_peer{};
  socklen_t bytes = sizeof of_peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, of_peer.data(), &bytes) != 0) return false;
  const auto known = std::span(of_peer).first(bytes / sizeof(gid_t));
  return std::ranges::find_first_of(known, groups) != known.end();
}

bool has_hung_up(int socket) { return (os::events_now(socket, POLLRDHUP) & (POLLHUP | POLLRDHUP | POLLERR)) != 0; }

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + ShmMemory::kHeaderBytes - 1) / ShmMemory::kHeaderBytes * ShmMemory::kHeaderBytes;
}

}  // namespace

struct ShmListener::Made {
  std::unique_ptr<ShmMemory> of_host;
  std::unique_ptr<ShmMemory> of_unit;
  std::unique_ptr<UnitDoorbell> doorbell;
  os::UniqueFd host_socket;
};

/// Where bridges leave their parts when they end, on any thread.
struct ShmListener::Returns {
  std::mutex mutex;  // protects the next two
  std::vector<std::pair<std::uint64_t, ShmParts>> parts;
  bool open = true;  ///< the listener is there
  os::UniqueFd event;

  void give_back(std::uint64_t number, ShmParts given) {
    const std::lock_guard lock(mutex);
    if (!open) return;  // `given` ends here
    parts.emplace_back(number, std::move(given));
    const std::uint64_t one = 1;
    static_cast<void>(!write(event.get(), &one, sizeof one));
  }
};

Result<std::unique_ptr<ShmListener>> ShmListener::listen(ShmListenOptions options) {
  const bool others = !options.allow_uids.empty() || !options.allow_gids.empty();
  auto socket = os::UnixListener::listen(options.path, others ? 0666 : 0600);
  if (!socket) return tl::unexpected(socket.error());
  // Connections inherit it. Kernels that don't know it leave the work to read_hello().
  if (options.refuse_descriptors) static_cast<void>(os::refuse_descriptors(socket->descriptor()));
  os::UniqueFd events(epoll_create1(EPOLL_CLOEXEC));
  os::UniqueFd returned(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!events || !returned) return fail("cannot watch {}: {}", options.path, os::errno_text());
  std::unique_ptr<ShmListener> listener(
      new ShmListener(std::move(options), std::move(*socket), std::move(events), std::move(returned)));
  if (!listener->watch(listener->socket_.descriptor(), EPOLLIN, kNewCaller) ||
      !listener->watch(listener->returns_->event.get(), EPOLLIN, kBridgeEnded)) {
    return fail("cannot watch {}: {}", listener->options_.path, os::errno_text());
  }
  return listener;
}

ShmListener::ShmListener(ShmListenOptions options, os::UnixListener socket, os::UniqueFd events, os::UniqueFd returned)
    : options_(std::move(options)),
      socket_(std::move(socket)),
      events_(std::move(events)),
      limits_(options_.limits),
      returns_(std::make_shared<Returns>()),
      next_number_(kFirstBridge) {
  returns_->event = std::move(returned);
}

ShmListener::~ShmListener() {
  {
    const std::lock_guard lock(returns_->mutex);
    returns_->open = false;
  }
  // Who looks at once finds nobody listening, however long the close takes.
  ::shutdown(socket_.descriptor(), SHUT_RDWR);
  // Connections that nobody has accepted hold what their callers attached, too.
  close_later(socket_.take_descriptor());
  for (Caller& caller : setting_up_) close_later(std::move(caller.socket));
  static_cast<void>(os::close_elsewhere(std::move(closing_)));
}

bool ShmListener::watch(int descriptor, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

std::size_t ShmListener::poll(Time now) {
  const ShmListenerCounters before = counters_;
  const std::size_t held = bridges_.size();
  take_events(now);
  take_back(now);
  std::size_t moved = held - bridges_.size();
  if (now >= accept_again_ && watch(socket_.descriptor(), EPOLLIN, kNewCaller)) accept_again_ = kNever;
  if (accept_again_ == kNever) {
    for (int i = 0; i < kAcceptsPerPoll && accept_one(now); ++i) ++moved;
  }
  std::erase_if(setting_up_, [&](Caller& caller) {
    if (serve(caller, now) == Progress::waiting) return false;
    close_later(std::move(caller.socket));
    ++moved;
    return true;
  });
  moved += counters_.connected != before.connected ? 1 : 0;
  if (moved == 0) prefaults_.poll(now);
  if (!closing_.empty()) closing_ = os::close_elsewhere(std::exchange(closing_, {}));
  close_again_ = closing_.empty() ? kNever : now + kCloseAgain;
  return moved;
}

void ShmListener::take_events(Time now) {
  std::array<epoll_event, kEventsPerPoll> events{};
  const int count = epoll_wait(events_.get(), events.data(), kEventsPerPoll, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    if (tag >= kFirstBridge) note_hang_up(tag, now);
  }
}

void ShmListener::note_hang_up(std::uint64_t number, Time now) {
  const auto found = bridges_.find(number);
  if (found == bridges_.end()) return;
  Held& held = found->second;
  if (held.parts) return end(number, std::move(*held.parts), now);
  held.hung_up->store(true, std::memory_order_relaxed);
  // The state stays, and so would the event.
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, held.socket, nullptr);
  ends_soon(held);
  ++hang_ups_;
}

/// Its host has hung up, or it was given back: its place will be free.
void ShmListener::ends_soon(Held& held) {
  if (!std::exchange(held.ends_soon, true)) ++ending_soon_;
}

/// Takes the parts that the bridges' users have given back. A host that is still there gets the hang-up datagram and
/// some time to hang up, because it may not have read the last messages yet.
void ShmListener::take_back(Time now) {
  std::vector<std::pair<std::uint64_t, ShmParts>> given;
  {
    const std::lock_guard lock(returns_->mutex);
    given.swap(returns_->parts);
    std::uint64_t count = 0;
    static_cast<void>(os::read_some(returns_->event.get(), std::as_writable_bytes(std::span(&count, 1))));
  }
  for (auto& [number, parts] : given) {
    Held& held = bridges_.at(number);
    if (held.hung_up->load(std::memory_order_relaxed)) {
      end(number, std::move(parts), now);
      continue;
    }
    static_cast<void>(os::send_bytes(held.socket, {}, MSG_DONTWAIT));
    held.parts = std::move(parts);
    ends_.emplace_back(now + kHangUpLimit, number);
    ends_soon(held);
  }
  while (!ends_.empty() && now >= ends_.front().first) {
    const auto found = bridges_.find(ends_.front().second);
    ends_.pop_front();
    if (found != bridges_.end()) end(found->first, std::move(*found->second.parts), now);
  }
}

/// Unmapping takes time, and happens here and not in the thread that used the bridge.
void ShmListener::end(std::uint64_t number, ShmParts parts, Time now) {
  const Held held = std::move(bridges_.at(number));
  bridges_.erase(number);
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, held.socket, nullptr);  // fails if it is not there
  // Hosts can keep the memory mapped, or its descriptors unread in their socket, when they have hung up.
  parts.local->discard();
  parts.peer->discard();
  limits_.release(held.user, held.bytes, now);
  if (held.ends_soon) --ending_soon_;
}

/// False: no connection is waiting.
bool ShmListener::accept_one(Time now) {
  Caller caller;
  caller.socket = os::UniqueFd(accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!caller.socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_accepting(now);
    return errno == ECONNABORTED || errno == EINTR;
  }
  const auto who = attested_peer(caller.socket.get());
  if (!who) {
    ++counters_.closed_hung_up;
    close_later(std::move(caller.socket));
    return true;
  }
  caller.who = *who;
  caller.deadline = now + options_.hello_limit;
  const bool welcome = permitted(caller);
  if (!welcome) refuse(caller, ShmSetupStatus::not_permitted, counters_.refused_credentials);
  // A host that sends its hello at once, as ours does, never waits behind silent connections.
  if (!welcome || serve(caller, now) == Progress::done) {
    close_later(std::move(caller.socket));
    return true;
  }
  make_room(caller);
  // Edges, because what was read stays in the queue.
  if (!watch(caller.socket.get(), EPOLLIN | EPOLLRDHUP | EPOLLET, kCallerSpoke)) {
    last_error_ = "cannot watch a connection: " + os::errno_text();
    ++counters_.refused_resources;
    close_later(std::move(caller.socket));
    return true;
  }
  setting_up_.push_back(std::move(caller));
  return true;
}

/// Closes the oldest connection of the user who has the most, or of the caller's user if that one has its share.
void ShmListener::make_room(const Caller& caller) {
  std::map<uid_t, std::size_t> counts;
  for (const Caller& other : setting_up_) ++counts[other.who.uid];
  uid_t whose = caller.who.uid;
  if (counts[whose] < options_.max_setting_up_per_user) {
    if (setting_up_.size() < options_.max_setting_up) return;
    whose = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })->first;
  }
  const auto oldest = std::ranges::find(setting_up_, whose, [](const Caller& other) { return other.who.uid; });
  close_later(std::move(oldest->socket));
  setting_up_.erase(oldest);
  ++counters_.closed_excess;
}

/// Stops watching the listening socket for a while. Without a free descriptor the socket would stay readable, and the
/// owner could not sleep.
void ShmListener::pause_accepting(Time now) {
  ++counters_.accept_paused;
  if (epoll_ctl(events_.get(), EPOLL_CTL_DEL, socket_.descriptor(), nullptr) == 0) accept_again_ = now + kAcceptPause;
}

bool ShmListener::permitted(const Caller& caller) const {
  const auto listed = [](const auto& list, auto id) { return std::ranges::find(list, id) != list.end(); };
  return unlimited(caller.who.uid) || listed(options_.allow_uids, caller.who.uid) ||
         listed(options_.allow_gids, caller.who.gid) ||
         in_supplementary_groups(caller.socket.get(), options_.allow_gids);
}

ShmListener::Progress ShmListener::serve(Caller& caller, Time now) {
  if (!caller.hello && read_hello(caller) == Progress::done) return Progress::done;
  if (caller.hello) return answer(caller, now);
  if (now < caller.deadline) return Progress::waiting;
  ++counters_.closed_silent;
  return Progress::done;
}

/// Peeks at the hello and leaves it in the queue. A process that takes bytes from the queue also gets the descriptors
/// attached to them, or closes them if it has no room for descriptors. Either way the closes would run in this thread.
ShmListener::Progress ShmListener::read_hello(Caller& caller) {
  std::array<std::byte, kShmHelloBytes> bytes{};
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const ssize_t got = os::receive_message(caller.socket.get(), message, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::waiting;
  if (got <= 0) {
    ++counters_.closed_hung_up;
    return Progress::done;
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    ++counters_.closed_descriptors;
    return Progress::done;
  }
  auto hello = decode_shm_hello(std::span(bytes).first(static_cast<std::size_t>(got)));
  if (hello) {
    caller.hello = std::move(*hello);
    return acceptable(caller) ? Progress::waiting : Progress::done;
  }
  switch (hello.error().fault) {
    case ShmHelloFault::incomplete:
      return Progress::waiting;
    case ShmHelloFault::other_version:
      refuse(caller, ShmSetupStatus::other_version, counters_.refused_version);
      return Progress::done;
    case ShmHelloFault::garbage:
      break;
  }
  ++counters_.closed_garbage;
  return Progress::done;
}

/// Checks a hello against the options; its sizes become those of the memory to make.
bool ShmListener::acceptable(Caller& caller) {
  ShmHelloFields& hello = *caller.hello;
  if (std::ranges::find(options_.purposes, hello.purpose) == options_.purposes.end()) {
    refuse(caller, ShmSetupStatus::purpose_refused, counters_.refused_purpose);
    return false;
  }
  for (std::uint64_t* bytes : {&hello.local_bytes, &hello.window_bytes}) {
    if (*bytes == 0) *bytes = options_.window_bytes;
    if (*bytes < kShmMinBytes || *bytes > options_.window_bytes) {
      refuse(caller, ShmSetupStatus::bad_sizes, counters_.refused_sizes);
      return false;
    }
    *bytes = whole_pages(*bytes);
  }
  return true;
}

ShmListener::Progress ShmListener::answer(Caller& caller, Time now) {
  const Time allowed = limits_.next_setup(caller.who.uid, now);
  if (now < allowed) {
    if (caller.served_at == kNever) ++counters_.setup_delayed;
    caller.served_at = allowed;
    return Progress::waiting;
  }
  if (has_hung_up(caller.socket.get())) {
    ++counters_.closed_hung_up;
    return Progress::done;
  }
  const ShmHelloFields& hello = *caller.hello;
  if (hello.purpose == ShmPurpose::further_queue &&
      count_bridges(ShmPurpose::session, hello.cookie, caller.who.uid) == 0) {
    refuse(caller, ShmSetupStatus::no_session, counters_.refused_session);
    return Progress::done;
  }
  return reserve_and_set_up(caller, now);
}

std::size_t ShmListener::count_bridges(ShmPurpose purpose, std::uint64_t cookie, uid_t user) const {
  return static_cast<std::size_t>(std::ranges::count_if(bridges_, [&](const auto& entry) {
    const Held& held = entry.second;
    return held.purpose == purpose && held.cookie == cookie && held.user == user;
  }));
}

UserLimits::Verdict ShmListener::reserve(const Caller& caller, std::size_t bytes) {
  const ShmHelloFields& hello = *caller.hello;
  const uid_t user = caller.who.uid;
  const bool session_is_full = hello.purpose == ShmPurpose::further_queue &&
                               count_bridges(hello.purpose, hello.cookie, user) >= options_.further_queues;
  return session_is_full ? UserLimits::Verdict::user_places : limits_.reserve(user, bytes, unlimited(user));
}

ShmListener::Progress ShmListener::reserve_and_set_up(Caller& caller, Time now) {
  const std::size_t bytes = caller.hello->local_bytes + caller.hello->window_bytes;
  const auto verdict = reserve(caller, bytes);
  if (verdict != UserLimits::Verdict::reserved) {
    // A host that was killed is back before the old bridge has ended.
    if (ending_soon_ != 0 && now < caller.deadline) {
      caller.served_at = caller.deadline;
      return Progress::waiting;
    }
    const bool full = verdict == UserLimits::Verdict::no_place;
    refuse(caller, full ? ShmSetupStatus::no_place : ShmSetupStatus::user_limit,
           full ? counters_.refused_places : counters_.refused_user_limit);
    return Progress::done;
  }
  auto made = make(caller.hello->local_bytes, caller.hello->window_bytes);
  if (!made) {
    limits_.release(caller.who.uid, bytes, now);
    last_error_ = std::move(made.error().message);
    refuse(caller, ShmSetupStatus::no_resources, counters_.refused_resources);
    return Progress::done;
  }
  hand_over(caller, std::move(*made), bytes, now);
  return Progress::done;
}

/// Makes new memory and doorbells.
Result<ShmListener::Made> ShmListener::make(std::size_t local_bytes, std::size_t window_bytes) const {
  Made made;
  auto of_host = ShmMemory::create(local_bytes);
  if (!of_host) return tl::unexpected(of_host.error());
  auto of_unit = ShmMemory::create(window_bytes);
  if (!of_unit) return tl::unexpected(of_unit.error());
  made.of_host = std::move(*of_host);
  made.of_unit = std::move(*of_unit);
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return fail("cannot create doorbells: {}", os::errno_text());
  }
  os::UniqueFd unit_socket(sockets[0]);
  made.host_socket = os::UniqueFd(sockets[1]);
  os::UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // The host must never be able to queue anything here: closing the socket would close what it attached.
  if (!event || shutdown(unit_socket.get(), SHUT_RD) != 0) {
    return fail("cannot create doorbells: {}", os::errno_text());
  }
  auto doorbell = UnitDoorbell::make(std::move(unit_socket), std::move(event));
  if (!doorbell) return tl::unexpected(doorbell.error());
  made.doorbell = std::move(*doorbell);
  return made;
}

/// Sends the host its half and keeps the unit's. The place is reserved.
void ShmListener::hand_over(Caller& caller, Made made, std::size_t reserved, Time now) {
  const ShmHelloFields& hello = *caller.hello;
  const std::uint64_t number = next_number_++;
  const auto flag = [&](ShmPurpose purpose) {
    return std::ranges::find(options_.purposes, purpose) != options_.purposes.end();
  };
  const std::uint64_t features = flag(ShmPurpose::further_queue) ? kShmFeatureFurtherQueues : 0;
  ShmAccepted accepted;
  accepted.pid = caller.who.pid;
  accepted.uid = caller.who.uid;
  accepted.gid = caller.who.gid;
  accepted.purpose = hello.purpose;
  accepted.cookie = hello.cookie;
  accepted.features = hello.features & features;
  accepted.name = hello.name;
  if (hello.purpose == ShmPurpose::session) {
    while (accepted.cookie == 0) accepted.cookie = random_.next();
  }
  ShmReply reply = reply_with(ShmSetupStatus::ok);
  reply.local_bytes = hello.local_bytes;
  reply.window_bytes = hello.window_bytes;
  reply.cookie = accepted.cookie;
  reply.features = accepted.features;
  const std::array<int, kShmSetupDescriptors> descriptors{made.of_host->descriptor(), made.of_unit->descriptor(),
                                                          made.host_socket.get(), made.doorbell->event()};
  const bool sent = send_reply(caller.socket.get(), reply, descriptors);
  made.of_host->close_descriptor();
  made.of_unit->close_descriptor();
  made.host_socket.reset();

  // From here on it is a bridge, which takes the ordinary way back if it has nobody at the other end.
  Held held{caller.who.uid,
            reserved,
            hello.purpose,
            accepted.cookie,
            made.doorbell->socket(),
            made.doorbell->hang_up_flag(),
            std::nullopt,
            /*ends_soon=*/false};
  // EPOLLHUP needs no request. If the socket can't be watched, take() of the doorbell finds the hang-up.
  static_cast<void>(watch(held.socket, 0, number));
  bridges_.emplace(number, std::move(held));
  ShmParts of_bridge{std::move(made.of_unit), std::move(made.of_host), std::move(made.doorbell)};
  prefaults_.add(of_bridge.local, now, options_.prefault_bytes);
  prefaults_.add(of_bridge.peer, now, options_.prefault_bytes);
  accepted.bridge = std::make_unique<ShmBridge>(
      std::move(of_bridge), caller.who,
      [returns = returns_, number](ShmParts parts) { returns->give_back(number, std::move(parts)); },
      BridgeGroup{.cookie = accepted.cookie, .further = hello.purpose == ShmPurpose::further_queue});
  if (!sent) {
    ++counters_.closed_hung_up;
    return;
  }
  ++counters_.connected;
  accepted_.push_back(std::move(accepted));
}

void ShmListener::refuse(Caller& caller, ShmSetupStatus status, std::uint64_t& counter) {
  ++counter;
  static_cast<void>(send_reply(caller.socket.get(), reply_with(status), {}));
}

std::optional<ShmAccepted> ShmListener::take() {
  if (accepted_.empty()) return std::nullopt;
  ShmAccepted next = std::move(accepted_.front());
  accepted_.pop_front();
  return next;
}

Time ShmListener::next_deadline() const {
  Time next = std::min({accept_again_, close_again_, prefaults_.next_deadline()});
  if (!ends_.empty()) next = std::min(next, ends_.front().first);
  for (const Caller& caller : setting_up_) next = std::min(next, caller.hello ? caller.served_at : caller.deadline);
  return next;
}

}  // namespace splitnic::fabric
