#include "fabric/bridge/shm_doorbell.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/os/close_elsewhere.h"
#include "common/os/errno_text.h"
#include "common/os/message_io.h"
#include "common/os/passed_descriptors.h"
#include "common/os/uncancelled.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kAtOnce = 8;

/// False: the other end is gone. If its queue is full, a doorbell is pending already.
bool send_packet(int socket) {
  const char bell = 1;
  return os::send_bytes(socket, std::as_bytes(std::span(&bell, 1)), MSG_DONTWAIT) >= 0 ||
         (errno != EPIPE && errno != ECONNRESET && errno != ENOTCONN);
}

/// None: the kernel can't mark a page. Then a hang-up is a close alone.
std::optional<ForkMark> mark_of_maker() {
  auto made = ForkMark::make();
  return made ? std::optional(std::move(*made)) : std::nullopt;
}

/// A close alone would not tell the other end while a forked child of the maker keeps its copy. The child must not hang
/// up for the maker.
void hang_up(int socket, const std::optional<ForkMark>& maker) {
  if (maker && !maker->forked()) ::shutdown(socket, SHUT_RDWR);
}

}  // namespace

void PacketDoorbell::ring() {
  if (!send_packet(socket_.get())) hung_up_ = true;
}

bool PacketDoorbell::take() {
  // One system call takes as many doorbells as are usually pending. A peer that rings endlessly costs no more.
  std::array<mmsghdr, kAtOnce> messages{};
  std::array<iovec, kAtOnce> pieces{};
  std::array<char, kAtOnce> bells{};
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    pieces[i] = {&bells[i], 1};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const os::Uncancelled whole;
  const int got = recvmmsg(socket_.get(), messages.data(), kAtOnce, MSG_DONTWAIT, nullptr);
  if (got < 0) {
    if (errno != EAGAIN && errno != EINTR) hung_up_ = true;
    return false;
  }
  bool rung = false;
  for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
    // No doorbell is an empty datagram: the peer has hung up.
    if (messages[i].msg_len == 0) {
      hung_up_ = true;
    } else {
      rung = true;
    }
  }
  return rung;
}

HostDoorbell::HostDoorbell(os::UniqueFd socket, os::UniqueFd event, Options options)
    : PacketDoorbell(std::move(socket)),
      event_(std::move(event)),
      mark_(options.shuts_down ? mark_of_maker() : std::nullopt),
      refuses_(options.refuses),
      looks_first_(options.closes_elsewhere) {}

HostDoorbell::~HostDoorbell() {
  hang_up(descriptor(), mark_);
  if (!looks_first_) return;
  std::vector<os::UniqueFd> closing;
  closing.push_back(take_socket());
  static_cast<void>(os::close_elsewhere(std::move(closing)));
}

bool HostDoorbell::take() {
  if (!looks_first_) return PacketDoorbell::take();
  bool rung = false;
  for (std::size_t taken = 0; taken < kAtOnce && !hung_up(); ++taken) {
    switch (os::look_at_queue(descriptor())) {
      case os::Queued::nothing:
        // Where the kernel refuses descriptors, those that were sent before it knew are the only ones.
        looks_first_ = !refuses_;
        return rung;
      case os::Queued::with_descriptors:
        set_hung_up();
        return rung;
      case os::Queued::message:
        break;
    }
    std::byte bell{};
    const ssize_t got = os::receive_bytes(descriptor(), std::span(&bell, 1), MSG_DONTWAIT);
    if (got > 0) rung = true;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) set_hung_up();
  }
  return rung;
}

void HostDoorbell::ring() {
  const os::Uncancelled whole;
  const std::uint64_t one = 1;
  // An eventfd at its highest value has a doorbell pending. Then, and only then, the write fails, because the eventfd
  // is non-blocking.
  static_cast<void>(!write(event_.get(), &one, sizeof one));
}

Result<std::unique_ptr<UnitDoorbell>> UnitDoorbell::make(os::UniqueFd socket, os::UniqueFd event) {
  os::UniqueFd both(epoll_create1(EPOLL_CLOEXEC));
  epoll_event rung{};
  rung.events = EPOLLIN;
  epoll_event hung_up{};  // EPOLLHUP needs no request
  if (!both || epoll_ctl(both.get(), EPOLL_CTL_ADD, event.get(), &rung) != 0 ||
      epoll_ctl(both.get(), EPOLL_CTL_ADD, socket.get(), &hung_up) != 0) {
    return fail("cannot watch doorbells: {}", os::errno_text());
  }
  return std::unique_ptr<UnitDoorbell>(new UnitDoorbell(std::move(socket), std::move(event), std::move(both)));
}

UnitDoorbell::UnitDoorbell(os::UniqueFd socket, os::UniqueFd event, os::UniqueFd both)
    : socket_(std::move(socket)),
      event_(std::move(event)),
      both_(std::move(both)),
      hung_up_(std::make_shared<std::atomic<bool>>(false)),
      mark_(mark_of_maker()) {}

UnitDoorbell::~UnitDoorbell() { hang_up(socket_.get(), mark_); }

void UnitDoorbell::ring() {
  if (!send_packet(socket_.get())) hung_up_->store(true, std::memory_order_relaxed);
}

bool UnitDoorbell::take() {
  std::uint64_t rings = 0;
  iovec piece{&rings, sizeof rings};
  const os::Uncancelled whole;
  // RWF_NOWAIT, because the host can clear O_NONBLOCK, which belongs to the file that both share.
  if (preadv2(event_.get(), &piece, 1, -1, RWF_NOWAIT) == static_cast<ssize_t>(sizeof rings)) return true;
  if ((os::events_now(socket_.get(), 0) & POLLHUP) != 0) hung_up_->store(true, std::memory_order_relaxed);
  return false;
}

}  // namespace splitnic::fabric
