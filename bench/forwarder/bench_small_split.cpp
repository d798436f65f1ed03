// bench-small-split: the smallest split driver, a yardstick of `splitnic-bench nic`. Two processes with a ring of 4 MiB
// of shared memory in each direction: one has the TAP, the other one the packet socket, both with virtio-net headers.
//
// It has the two copies and the two wake-ups that a split has, and nothing else: the kernel copies a frame into the
// ring and out of it. Neither process checks what the other one wrote; there is one host, no session, no forwarding.
// So the ratio of the split driver to it is the price of all of these.
//
// Options and exit codes are those of bench-forwarder; it has no way without offloads.

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>

#include "bench/forwarder/interfaces.h"

namespace splitnic::bench::forwarder {

namespace {

constexpr std::uint64_t kRingBytes = 4U << 20U;

/// Bytes in the ring of a record: a length, then a frame with its virtio-net header.
constexpr std::uint64_t record_bytes(std::uint64_t frame_bytes) {
  return (sizeof(std::uint64_t) + frame_bytes + 7) / 8 * 8;
}

/// One direction: records in a row. A record is in one piece, so it begins at the start of the next round where the
/// largest one would not fit before the end. Positions only grow.
class Ring {
 public:
  /// Where the producer may read the next frame to; null: there is no room.
  std::byte* room() {
    const std::uint64_t at = begin_of_record(produced_);
    return at + kRecordMax - consumed_ > kRingBytes ? nullptr : &bytes_[at % kRingBytes + sizeof(std::uint64_t)];
  }
  /// Gives the frame that is there now to the consumer.
  void produce(std::uint64_t frame_bytes) {
    const std::uint64_t at = begin_of_record(produced_);
    std::memcpy(&bytes_[at % kRingBytes], &frame_bytes, sizeof frame_bytes);
    produced_ = at + record_bytes(frame_bytes);
  }
  /// The consumer's next frame; empty: there is none.
  [[nodiscard]] std::span<const std::byte> front() const {
    if (consumed_ == produced_) return {};
    const std::byte* const record = &bytes_[begin_of_record(consumed_) % kRingBytes];
    std::uint64_t frame_bytes = 0;
    std::memcpy(&frame_bytes, record, sizeof frame_bytes);
    return {record + sizeof frame_bytes, frame_bytes};
  }
  void pop() { consumed_ = begin_of_record(consumed_) + record_bytes(front().size()); }

 private:
  static constexpr std::uint64_t kRecordMax = record_bytes(kFrameBytesMax);

  static std::uint64_t begin_of_record(std::uint64_t at) {
    const std::uint64_t left = kRingBytes - at % kRingBytes;
    return left < kRecordMax ? at + left : at;
  }

  alignas(64) std::atomic<std::uint64_t> produced_{0};  // written by the producer alone
  alignas(64) std::atomic<std::uint64_t> consumed_{0};  // written by the consumer alone
  alignas(64) std::array<std::byte, kRingBytes> bytes_;
};

/// What wakes one of the processes.
struct Bell {
  int event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  alignas(64) std::atomic<bool> wanted{false};  // the process sleeps, or is about to
  std::atomic<bool> awaits_room{false};         // and does not read frames before it has room for them

  void ring_if_wanted() {
    if (wanted && wanted.exchange(false)) ::eventfd_write(event, 1);
  }
};

struct Shared {
  Ring to_lan, to_tap;
  Bell at_tap, at_lan;
};

/// One process: forwards frames from its device (the TAP or the packet socket) to the ring `out`, and from the ring
/// `in` to its device.
class End {
 public:
  End(int device, Ring& out, Ring& in, Bell& own, Bell& peer)
      : device_{device}, out_{out}, in_{in}, own_{own}, peer_{peer} {}

  void run(const char* name) {
    while (!stop_requested()) {
      if (from_device() + to_device() == 0) sleep();
    }
    std::fprintf(stderr, "bench-small-split: the %s got %ju frames and refused %ju\n", name,
                 static_cast<std::uintmax_t>(taken_), static_cast<std::uintmax_t>(refused_));
  }

 private:
  int from_device() {
    for (int frames = 0; frames < kBatchFrames; ++frames) {
      std::byte* const room = out_.room();
      const ssize_t bytes = room == nullptr ? 0 : ::read(device_, room, kFrameBytesMax);
      if (bytes < 0 && !comes_later(errno)) throw_errno("reading frames");
      if (bytes <= 0) return frames;
      out_.produce(static_cast<std::uint64_t>(bytes));
      peer_.ring_if_wanted();
    }
    return kBatchFrames;
  }

  int to_device() {
    for (int frames = 0; frames < kBatchFrames; ++frames) {
      const auto frame = in_.front();
      if (frame.empty()) return frames;
      ++(::write(device_, frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()) ? taken_ : refused_);
      in_.pop();
      if (peer_.awaits_room && in_.room() != nullptr) peer_.ring_if_wanted();
    }
    return kBatchFrames;
  }

  /// Until the device has a frame for which there is room, or the peer rings. All atomics have sequential consistency:
  /// either this process sees what the peer did last, or the peer sees that the bell is wanted.
  void sleep() {
    own_.awaits_room = out_.room() == nullptr;
    own_.wanted = true;
    const bool room = out_.room() != nullptr;
    std::array<pollfd, 2> waits{pollfd{own_.event, POLLIN, 0}, pollfd{room ? device_ : -1, POLLIN, 0}};
    if (::poll(waits.data(), waits.size(), in_.front().empty() ? kSleepMilliseconds : 0) < 0 && errno != EINTR) {
      throw_errno("poll");
    }
    own_.wanted = false;
    eventfd_t rings = 0;
    if (waits[0].revents != 0) ::eventfd_read(own_.event, &rings);
  }

  int device_;
  Ring& out_;
  Ring& in_;
  Bell& own_;
  Bell& peer_;
  std::uint64_t taken_ = 0, refused_ = 0;
};

int run(const Options& options) {
  if (!options.offloads) throw std::runtime_error("frames always have virtio-net headers here: --offloads on");
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_errno("shared memory");
  auto& shared = *new (memory) Shared;
  const int lan = opened_in(options.lan_netns, [&] { return open_packet_socket(options.lan); });
  const int tap = opened_in(options.tap_netns, [&] { return open_tap(options.tap, true); });
  const pid_t parent = ::getpid();
  stop_on({SIGTERM, SIGINT, SIGCHLD});
  const pid_t host = ::fork();
  if (host < 0) throw_errno("the second process");
  if (host == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::close(lan);
    if (::getppid() == parent) End{tap, shared.to_lan, shared.to_tap, shared.at_tap, shared.at_lan}.run("TAP");
    return 0;
  }
  ::close(tap);
  std::puts("ready");
  std::fflush(stdout);
  End{lan, shared.to_tap, shared.to_lan, shared.at_lan, shared.at_tap}.run("LAN");
  ::kill(host, SIGTERM);
  int status = 0;
  ::waitpid(host, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace

}  // namespace splitnic::bench::forwarder

int main(int argc, char** argv) {
  return splitnic::bench::forwarder::run_program(argc, argv, "bench-small-split", splitnic::bench::forwarder::run);
}
