#include "bench/fabric/placement.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "bench/fabric/measurement.h"
#include "bench/summary.h"
#include "common/os/errno_text.h"
#include "common/time.h"
#include "fabric/bridge/shm_bridge.h"

namespace splitnic::bench {

namespace {

constexpr std::array<const char*, kPlacements.size()> kTitles{"cores apart", "cores share a cache",
                                                              "cores share one real core"};
constexpr std::array<const char*, kPlacements.size()> kKeys{"apart", "neighbours", "sharing"};

constexpr std::size_t kBatches = 7;
constexpr std::size_t kRoundTrips = 64;  // of a batch
constexpr std::size_t kLooksAtOnce = 1U << 14U;

/// The other process: sleeps until it is asked, then answers as many words as a measurement has.
[[noreturn]] void answer_words(fabric::Bridge& bridge, int channel, const Cores& cores) {
  move_to_core(cores.server);
  const RaisedPriority priority(cores);
  for (std::uint64_t last = 0; ::recv(channel, &last, sizeof last, 0) == sizeof last;) {
    // Ready: neither process has to be woken any more.
    if (::send(channel, &last, sizeof last, MSG_NOSIGNAL) != sizeof last) break;
    for (std::uint64_t word = last + 1; word <= last + kBatches * kRoundTrips; ++word) {
      if (!await_word(bridge, word, !cores.apart())) ::_exit(1);
      bridge.peer_window().write_word(0, word);
    }
  }
  ::_exit(0);
}

}  // namespace

bool await_word(fabric::Bridge& bridge, std::uint64_t value, bool yield) {
  const fabric::PeerMemory memory = bridge.local_memory();
  const Time give_up = monotonic_now() + kPatience;
  do {
    for (std::size_t i = 0; i < kLooksAtOnce; ++i) {
      if (memory.watch<std::uint64_t>(0) == value) return true;
      if (yield) std::this_thread::yield();
    }
  } while (monotonic_now() < give_up);
  return false;
}

const char* to_string(Placement placement) { return kTitles[static_cast<std::size_t>(placement)]; }

const char* key_of(Placement placement) { return kKeys[static_cast<std::size_t>(placement)]; }

Placement placement_of(double line) {
  if (line < kSharingBelow) return Placement::sharing;
  return line < kNeighboursBelow ? Placement::neighbours : Placement::apart;
}

void move_to_core(int core) {
  if (core < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  // A wish: without it the measurement is less steady, not wrong.
  static_cast<void>(::sched_setaffinity(0, sizeof set, &set));
}

RaisedPriority::RaisedPriority(const Cores& cores, bool wanted) {
  const sched_param priority{1};
  raised_ = wanted && cores.apart() && ::sched_getscheduler(0) == SCHED_OTHER &&
            ::sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
}

RaisedPriority::~RaisedPriority() {
  const sched_param priority{0};
  if (raised_) static_cast<void>(::sched_setscheduler(0, SCHED_OTHER, &priority));
}

Result<LineGauge> LineGauge::start(const Cores& cores) {
  auto bridges = fabric::shm_pair(fabric::kShmMinBytes, fabric::kShmMinBytes);
  if (!bridges) return tl::unexpected(bridges.error());
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return fail("no socket: {}", os::errno_text());
  }
  os::UniqueFd own(sockets[0]);
  os::UniqueFd others(sockets[1]);
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail("no second process: {}", os::errno_text());
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self) ::_exit(1);  // it was over before the wish was made
    own.reset();
    answer_words(*bridges->second, others.get(), cores);
  }
  move_to_core(cores.client);
  return LineGauge(pid, std::move(own), std::move(bridges->first), cores);
}

LineGauge::LineGauge(pid_t pid, os::UniqueFd channel, std::unique_ptr<fabric::Bridge> bridge, const Cores& cores)
    : pid_(pid), channel_(std::move(channel)), bridge_(std::move(bridge)), cores_(cores) {}

LineGauge::LineGauge(LineGauge&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      channel_(std::move(other.channel_)),
      bridge_(std::move(other.bridge_)),
      cores_(other.cores_),
      word_(other.word_) {}

LineGauge::~LineGauge() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<double> LineGauge::measure() {
  const RaisedPriority priority(cores_);
  std::uint64_t ready = 0;
  if (::send(channel_.get(), &word_, sizeof word_, MSG_NOSIGNAL) != sizeof word_ ||
      ::recv(channel_.get(), &ready, sizeof ready, 0) != sizeof ready) {
    return fail("the process that measures the cache line is gone");
  }
  std::vector<double> batches;
  for (std::size_t batch = 0; batch < kBatches; ++batch) {
    const Time begin = monotonic_now();
    for (std::size_t i = 0; i < kRoundTrips; ++i) {
      bridge_->peer_window().write_word(0, ++word_);
      if (!await_word(*bridge_, word_, !cores_.apart()))
        return fail("the process that measures the cache line is gone");
    }
    batches.push_back(std::chrono::duration<double>(monotonic_now() - begin).count() / (2 * kRoundTrips));
  }
  return summary_of(std::move(batches)).median;
}

}  // namespace splitnic::bench
