#include "fabric/bridge/shm_listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/os/errno_text.h"
#include "fabric/bridge/shm_memory.h"

namespace splitnic::fabric {
namespace {

constexpr int kAcceptsPerPoll = 64;
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

/// Sends the reply with the descriptors, if any. The socket is new, so either everything fits or the host has gone.
bool send_reply(int socket, const ShmReply& reply, std::span<const int> descriptors) {
  iovec piece{const_cast<ShmReply*>(&reply), sizeof reply};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kShmSetupDescriptors * sizeof(int))> control{};
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof reply);
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

}  // namespace

Result<std::unique_ptr<ShmListener>> ShmListener::listen(ShmListenOptions options) {
  const bool others = !options.allow_uids.empty() || !options.allow_gids.empty();
  auto socket = os::UnixListener::listen(options.path, others ? 0666 : 0600);
  if (!socket) return tl::unexpected(socket.error());
  os::UniqueFd events(epoll_create1(EPOLL_CLOEXEC));
  if (!events) return fail("cannot watch {}: {}", options.path, os::errno_text());
  std::unique_ptr<ShmListener> listener(new ShmListener(std::move(options), std::move(*socket), std::move(events)));
  if (!listener->watch_listener(true)) {
    return fail("cannot watch {}: {}", listener->options_.path, os::errno_text());
  }
  return listener;
}

ShmListener::ShmListener(ShmListenOptions options, os::UnixListener socket, os::UniqueFd events)
    : options_(std::move(options)), socket_(std::move(socket)), events_(std::move(events)) {}

ShmListener::~ShmListener() = default;

bool ShmListener::watch_listener(bool on) {
  epoll_event event{};
  event.events = EPOLLIN;
  return epoll_ctl(events_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, socket_.descriptor(), &event) == 0;
}

std::size_t ShmListener::poll(Time now) {
  const std::uint64_t before = setting_up_.size() + accepted_.size();
  std::size_t moved = 0;
  if (now >= accept_again_ && watch_listener(true)) accept_again_ = kNever;
  if (accept_again_ == kNever) {
    for (int i = 0; i < kAcceptsPerPoll && accept_one(now); ++i) ++moved;
  }
  std::erase_if(setting_up_, [&](Caller& caller) {
    if (read_hello(caller) == Progress::done) return true;
    if (now < caller.deadline) return false;
    ++counters_.closed_silent;
    return true;
  });
  return moved + (setting_up_.size() + accepted_.size() != before ? 1 : 0);
}

/// False: no connection is waiting.
bool ShmListener::accept_one(Time now) {
  Caller caller;
  caller.socket = os::UniqueFd(accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!caller.socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_accepting(now);
    return errno == ECONNABORTED || errno == EINTR;
  }
  ucred who{};
  socklen_t bytes = sizeof who;
  if (getsockopt(caller.socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) {
    ++counters_.closed_hung_up;
    return true;
  }
  caller.who.pid = who.pid;
  caller.who.uid = who.uid;
  caller.who.gid = who.gid;
  if (!permitted(caller)) {
    refuse(caller, ShmSetupStatus::not_permitted, counters_.refused_credentials);
    return true;
  }
  caller.deadline = now + options_.hello_limit;
  // A host that sends its hello at once, as ours does, never waits behind silent connections.
  if (read_hello(caller) == Progress::done) return true;
  if (setting_up_.size() >= options_.max_setting_up) {
    setting_up_.pop_front();
    ++counters_.closed_excess;
  }
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, caller.socket.get(), &event) != 0) {
    ++counters_.refused_resources;
    return true;
  }
  setting_up_.push_back(std::move(caller));
  return true;
}

/// Stops watching the listening socket for a while. Without a free descriptor the socket would stay readable, and the
/// owner could not sleep.
void ShmListener::pause_accepting(Time now) {
  ++counters_.accept_paused;
  if (watch_listener(false)) accept_again_ = now + kAcceptPause;
}

bool ShmListener::permitted(const Caller& caller) const {
  const auto listed = [](const auto& list, auto id) { return std::ranges::find(list, id) != list.end(); };
  return caller.who.uid == 0 || caller.who.uid == geteuid() || listed(options_.allow_uids, caller.who.uid) ||
         listed(options_.allow_gids, caller.who.gid) ||
         in_supplementary_groups(caller.socket.get(), options_.allow_gids);
}

ShmListener::Progress ShmListener::read_hello(Caller& caller) {
  // Without a control buffer, the kernel drops any descriptors in the message.
  const ssize_t got = recv(caller.socket.get(), caller.hello + caller.got, kShmSetupBytes - caller.got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::waiting;
  if (got <= 0) {
    ++counters_.closed_hung_up;
    return Progress::done;
  }
  caller.got += static_cast<std::size_t>(got);
  if (caller.got < kShmSetupBytes) return Progress::waiting;
  answer(caller);
  return Progress::done;
}

void ShmListener::answer(Caller& caller) {
  ShmHello hello;
  std::memcpy(&hello, caller.hello, sizeof hello);
  if (hello.magic.value() != kShmSetupMagic) {
    ++counters_.closed_garbage;
    return;
  }
  if (hello.version.value() != kShmSetupVersion) {
    refuse(caller, ShmSetupStatus::other_version, counters_.refused_version);
    return;
  }
  if (hello.reserved.value() != 0) {
    ++counters_.closed_garbage;
    return;
  }
  const auto wanted = [&](std::uint64_t bytes) { return bytes == 0 ? options_.default_bytes : bytes; };
  const auto possible = [&](std::uint64_t bytes) { return bytes >= kShmMinBytes && bytes <= options_.max_bytes; };
  const std::uint64_t local_bytes = wanted(hello.local_bytes.value());
  const std::uint64_t window_bytes = wanted(hello.window_bytes.value());
  if (!possible(local_bytes) || !possible(window_bytes)) {
    refuse(caller, ShmSetupStatus::bad_sizes, counters_.refused_sizes);
    return;
  }
  if (auto error = set_up(caller, local_bytes, window_bytes)) {
    last_error_ = std::move(error->message);
    refuse(caller, ShmSetupStatus::no_resources, counters_.refused_resources);
  }
}

/// Makes new memory and doorbells for the connection, and sends the host its half.
std::optional<Error> ShmListener::set_up(Caller& caller, std::size_t local_bytes, std::size_t window_bytes) {
  const auto whole_pages = [](std::size_t bytes) {
    return (bytes + ShmMemory::kHeaderBytes - 1) / ShmMemory::kHeaderBytes * ShmMemory::kHeaderBytes;
  };
  auto of_host = ShmMemory::create(whole_pages(local_bytes));
  if (!of_host) return of_host.error();
  auto of_unit = ShmMemory::create(whole_pages(window_bytes));
  if (!of_unit) return of_unit.error();
  int bells[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, bells) != 0) {
    return Error{fmt::format("cannot create doorbells: {}", os::errno_text())};
  }
  os::UniqueFd unit_bell(bells[0]);
  const os::UniqueFd host_bell(bells[1]);

  ShmReply reply = reply_with(ShmSetupStatus::ok);
  reply.local_bytes = whole_pages(local_bytes);
  reply.window_bytes = whole_pages(window_bytes);
  const std::array<int, kShmSetupDescriptors> descriptors{(*of_host)->descriptor(), (*of_unit)->descriptor(),
                                                          host_bell.get()};
  if (!send_reply(caller.socket.get(), reply, descriptors)) {
    ++counters_.closed_hung_up;
    return std::nullopt;
  }
  (*of_host)->close_descriptor();
  (*of_unit)->close_descriptor();
  caller.who.bridge = std::make_unique<ShmBridge>(std::move(*of_unit), std::move(*of_host), std::move(unit_bell),
                                                  BridgePeer{caller.who.pid, caller.who.uid, caller.who.gid});
  accepted_.push_back(std::move(caller.who));
  ++counters_.connected;
  return std::nullopt;
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
  return setting_up_.empty() ? accept_again_ : std::min(accept_again_, setting_up_.front().deadline);
}

}  // namespace splitnic::fabric
