#include "fabric/bridge/shm_bridge.h"

#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/os/errno_text.h"
#include "fabric/bridge/full_fence.h"

namespace splitnic::fabric {

ShmBridge::ShmBridge(std::shared_ptr<const ShmMemory> local, std::shared_ptr<const ShmMemory> peer,
                     os::UniqueFd doorbell, std::optional<BridgePeer> process)
    : local_(std::move(local)),
      peer_(std::move(peer)),
      local_memory_(local_->local()),
      peer_window_(peer_->window()),
      scratchpads_in_(local_->local_scratchpads()),
      scratchpads_out_(peer_->window_scratchpads()),
      doorbell_(std::move(doorbell)),
      process_(process) {}

std::uint32_t ShmBridge::read_scratchpad(std::size_t index) {
  CHECK(index < kScratchpads);
  return scratchpads_in_.watch<std::uint32_t>(index * sizeof(std::uint32_t));
}

void ShmBridge::write_scratchpad(std::size_t index, std::uint32_t value) {
  CHECK(index < kScratchpads);
  scratchpads_out_.write_word(index * sizeof(std::uint32_t), value);
}

void ShmBridge::publish() { store_fence(); }

void ShmBridge::fence() { full_fence(); }

void ShmBridge::before_doorbell() { full_fence(); }

void ShmBridge::flush() { full_fence(); }

std::uint32_t ShmBridge::core() const { return static_cast<std::uint32_t>(sched_getcpu() + 1); }

void ShmBridge::ring() {
  const char bell = 1;
  // If the queue is full, a doorbell is pending already. MSG_DONTWAIT: the peer can't make this end block.
  if (send(doorbell_.get(), &bell, sizeof bell, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
      (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)) {
    hung_up_ = true;
  }
}

bool ShmBridge::take_doorbells() {
  // One system call takes as many doorbells as are usually pending. A peer that rings endlessly costs no more.
  constexpr std::size_t kAtOnce = 8;
  std::array<mmsghdr, kAtOnce> messages{};
  std::array<iovec, kAtOnce> pieces{};
  std::array<char, kAtOnce> bells{};
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    pieces[i] = {&bells[i], 1};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int got = recvmmsg(doorbell_.get(), messages.data(), kAtOnce, MSG_DONTWAIT, nullptr);
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

Result<std::pair<std::unique_ptr<Bridge>, std::unique_ptr<Bridge>>> shm_pair(std::size_t first_bytes,
                                                                             std::size_t second_bytes) {
  auto first = ShmMemory::create(first_bytes);
  if (!first) return tl::unexpected(first.error());
  auto second = ShmMemory::create(second_bytes);
  if (!second) return tl::unexpected(second.error());
  int bells[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, bells) != 0) {
    return fail("cannot create doorbells: {}", os::errno_text());
  }
  os::UniqueFd first_bell(bells[0]);
  os::UniqueFd second_bell(bells[1]);
  (*first)->close_descriptor();
  (*second)->close_descriptor();
  const std::shared_ptr<const ShmMemory> of_first = std::move(*first);
  const std::shared_ptr<const ShmMemory> of_second = std::move(*second);
  return std::pair<std::unique_ptr<Bridge>, std::unique_ptr<Bridge>>(
      std::make_unique<ShmBridge>(of_first, of_second, std::move(first_bell)),
      std::make_unique<ShmBridge>(of_second, of_first, std::move(second_bell)));
}

}  // namespace splitnic::fabric
