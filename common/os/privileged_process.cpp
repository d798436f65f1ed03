#include "common/os/privileged_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/os/blocked_signals.h"
#include "common/os/errno_text.h"
#include "common/os/message_io.h"
#include "common/os/passed_descriptors.h"
#include "common/os/timespec.h"

namespace splitnic::os {
namespace {

// The first byte of an answer.
constexpr std::byte kDone{0};
constexpr std::byte kRefused{1};

/// How long the first request() waits for what send() has sent. Often that takes some milliseconds.
constexpr int kBusyMs = 1000;
/// How long a request may go on after the requester has ended.
constexpr Duration kLastRequestLimit = std::chrono::seconds(2);
constexpr const char* kEnded = "the privileged process has ended";

/// Whether the descriptor is readable, or has hung up, within so many milliseconds. Signals may prolong the wait.
bool readable(int descriptor, int patience_ms) {
  pollfd state{descriptor, POLLIN, 0};
  const timespec patience = timespec_of(std::chrono::milliseconds(patience_ms));
  int ready = 0;
  while ((ready = ::ppoll(&state, 1, &patience, nullptr)) < 0 && errno == EINTR) {
  }
  return ready > 0;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + std::min(text.size(), kMaxPrivilegedBytes)};
}

/// Sends an answer; a requester that has ended needs none.
void send_answer(int socket, const Result<PrivilegedMessage>& answer) {
  std::vector<std::byte> bytes{answer ? kDone : kRefused};
  std::vector<int> descriptors;
  const std::vector<std::byte> body = answer ? answer->bytes : bytes_of(answer.error().message);
  bytes.insert(bytes.end(), body.begin(), body.end());
  if (answer) {
    for (const UniqueFd& descriptor : answer->descriptors) descriptors.push_back(descriptor.get());
  }
  static_cast<void>(send_with_descriptors(socket, bytes, descriptors, 0));
}

/// The end of the privileged process. Its two threads may both reach it: the first one does the last work.
class LastWork {
 public:
  explicit LastWork(const std::function<void()>& work) : work_(work) {}
  [[noreturn]] void finish() {
    while (begun_.exchange(true)) ::ppoll(nullptr, 0, nullptr, nullptr);  // the other thread ends the process
    if (work_) work_();
    ::_exit(0);
  }

 private:
  const std::function<void()>& work_;
  std::atomic<bool> begun_{false};
};

/// Ends the process when the requester has ended, although a request still waits for a disk, perhaps for ever.
void watch_requester(int socket, LastWork& last, std::latch& begun) {
  begun.count_down();
  pollfd hang_up{socket, 0, 0};
  while (::ppoll(&hang_up, 1, nullptr, nullptr) < 0 && errno == EINTR) {
  }
  const timespec limit = timespec_of(kLastRequestLimit);
  ::ppoll(nullptr, 0, &limit, nullptr);
  last.finish();
}

/// The new process, which never returns.
[[noreturn]] void live(UniqueFd socket, const PrivilegedWork& work) {
  ::prctl(PR_SET_NAME, kPrivilegedProcessName);
  const int kept = ::fcntl(socket.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (kept > STDERR_FILENO + 1) ::close_range(STDERR_FILENO + 1, static_cast<unsigned>(kept) - 1, 0);
  ::close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
  static_cast<void>(socket.release());
  try {
    if (work.begin) work.begin();
    LastWork last(work.end);
    std::latch begun(1);
    std::thread(watch_requester, kept, std::ref(last), std::ref(begun)).detach();
    begun.wait();  // the calls with which a thread begins need not be permitted
    if (work.confine) work.confine();
    send_answer(kept, PrivilegedMessage{});
    serve_privileged(kept, work.service);
    last.finish();
  } catch (const StartupError& error) {
    std::fprintf(stderr, "splitnic: the privileged process: %s\n", error.message.c_str());
    ::_exit(1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "splitnic: the privileged process: %s\n", error.what());
    ::_exit(1);
  }
}

}  // namespace

void serve_privileged(int socket, const PrivilegedService& service) {
  std::array<std::byte, kMaxPrivilegedBytes> bytes{};
  for (;;) {
    auto received = receive_with_descriptors(socket, bytes, kMaxPrivilegedDescriptors, MSG_TRUNC);
    if (received.bytes < 0 && errno == EINTR) continue;
    if (received.bytes <= 0) return;
    const auto length = static_cast<std::size_t>(received.bytes);
    if (length > bytes.size() || received.more) {
      send_answer(socket,
                  fail("a request has at most {} bytes and {} descriptors", bytes.size(), kMaxPrivilegedDescriptors));
      continue;
    }
    const auto body = std::span(bytes).first(length);
    send_answer(socket, service({{body.begin(), body.end()}, std::move(received.descriptors)}));
  }
}

Result<std::unique_ptr<PrivilegedProcess>> PrivilegedProcess::start(const PrivilegedWork& work) {
  auto forked = fork(work);
  if (!forked) return forked;
  if (const auto begun = (*forked)->wait_until_begun(); !begun) return tl::unexpected(begun.error());
  return forked;
}

Result<std::unique_ptr<PrivilegedProcess>> PrivilegedProcess::fork(const PrivilegedWork& work) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail("starting the privileged process: {}", errno_text());
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  // A terminal's Ctrl-C and a service manager's SIGTERM reach the new process, too, perhaps before it has run. It ends
  // after the requester.
  std::optional<BlockedSignals> blocked(std::in_place);
  const pid_t process = ::fork();
  if (process == 0) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_IGN);
  }
  blocked.reset();
  if (process < 0) return fail("starting the privileged process: {}", errno_text());
  if (process == 0) {
    ours.reset();
    live(std::move(theirs), work);
  }
  theirs.reset();
  UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));  // none before Linux 5.3
  return std::unique_ptr<PrivilegedProcess>(new PrivilegedProcess(std::move(ours), std::move(end), work.patience));
}

Result<void> PrivilegedProcess::wait_until_begun() {
  const std::lock_guard lock(mutex_);
  return begin();
}

void PrivilegedProcess::on_lost(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_lost_ = std::move(call);
}

Result<void> PrivilegedProcess::begin() {
  if (begun_) return {};
  if (broken_ || !readable(socket_.get(), patience_ms_) || !receive()) {
    broken_ = true;
    return fail("the privileged process did not start");
  }
  begun_ = true;
  return {};
}

Result<PrivilegedMessage> PrivilegedProcess::request(std::span<const std::byte> bytes,
                                                     std::span<const int> descriptors) {
  const std::lock_guard lock(mutex_);
  if (const auto begun = begin(); !begun) return tl::unexpected(begun.error());
  if (auto waited = wait_for_sent(); !waited) return tl::unexpected(waited.error());
  if (broken_ || send_with_descriptors(socket_.get(), bytes, descriptors, 0) < 0) return fail("{}", kEnded);
  if (readable(socket_.get(), patience_ms_)) return receive();
  return lose();
}

/// Answers come in the order of the requests. Only one request blocks its thread, which may forward frames.
Result<void> PrivilegedProcess::wait_for_sent() {
  if (!sent_ || early_ || broken_) return {};
  if (readable(socket_.get(), std::exchange(waited_, true) ? 0 : std::min(kBusyMs, patience_ms_))) {
    early_ = receive();
    return {};
  }
  if (monotonic_now() - sent_at_ >= std::chrono::milliseconds(patience_ms_)) return lose();
  return fail("the privileged process is busy");
}

tl::unexpected<Error> PrivilegedProcess::lose() {
  broken_ = true;
  if (on_lost_) on_lost_();
  return fail("the privileged process does not answer");
}

Result<void> PrivilegedProcess::send(std::span<const std::byte> bytes, std::span<const int> descriptors) {
  const std::lock_guard lock(mutex_);
  SPLITNIC_CHECK(!sent_);
  if (auto begun = begin(); !begun) return begun;
  if (broken_ || send_with_descriptors(socket_.get(), bytes, descriptors, 0) < 0) return fail("{}", kEnded);
  sent_ = true;
  sent_at_ = monotonic_now();
  waited_ = false;
  return {};
}

std::optional<Result<PrivilegedMessage>> PrivilegedProcess::answer(int patience_ms) {
  const std::lock_guard lock(mutex_);
  SPLITNIC_CHECK(sent_);
  if (!early_ && !readable(socket_.get(), broken_ ? 0 : patience_ms)) {
    if (!broken_) return std::nullopt;
    early_ = fail("{}", kEnded);
  }
  sent_ = false;
  if (early_) return std::exchange(early_, std::nullopt);
  return receive();
}

Result<PrivilegedMessage> PrivilegedProcess::receive() {
  std::array<std::byte, 1 + kMaxPrivilegedBytes> room{};
  auto received = receive_with_descriptors(socket_.get(), room, kMaxPrivilegedDescriptors, MSG_DONTWAIT);
  if (received.bytes < 1) return fail("{}", kEnded);
  const auto body = std::span(room).subspan(1, static_cast<std::size_t>(received.bytes) - 1);
  if (room.front() == kDone) return PrivilegedMessage{{body.begin(), body.end()}, std::move(received.descriptors)};
  return fail("{}", std::string(reinterpret_cast<const char*>(body.data()), body.size()));
}

void PrivilegedProcess::end() {
  const std::lock_guard lock(mutex_);
  if (!broken_ && process_end_) {
    socket_.reset();  // ends it, also if it is busy with a request
    readable(process_end_.get(), patience_ms_);
  } else if (!broken_ && send_bytes(socket_.get(), {}, 0) == 0) {
    // An empty request ends it, too; an answer that is on its way comes first.
    while (readable(socket_.get(), patience_ms_) && receive()) {
    }
  }
  broken_ = true;
}

bool PrivilegedProcess::ended() {
  const std::lock_guard lock(mutex_);
  // Its last answer may still wait.
  return broken_ || (events_now(socket_.get(), 0) & (POLLHUP | POLLERR)) != 0;
}

}  // namespace splitnic::os
