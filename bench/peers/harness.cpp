#include "bench/peers/harness.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace splitnic::bench::peers {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kOtherFailed = "the other process has failed";  // whose own error says more

constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kSlice = std::chrono::microseconds(500);
constexpr std::size_t kMostSamples = 1U << 20U;
constexpr std::size_t kSpinsBetweenLooks = 256;  // at the clock
constexpr std::uint32_t kMostListed = 32;

enum class Kind : std::uint32_t { latency, rate, one_sided, quit };

struct Command {
  Kind kind = Kind::quit;
  Task task;
  double seconds = 0;
};

struct Answer {
  double median = 0;
  double percentile_99 = 0;
  char error[160]{};
};

/// What the two processes tell each other during a task, each word in a cache line of its own.
struct Progress {
  alignas(64) std::atomic<std::uint32_t> stop;     // the server has measured enough
  alignas(64) std::atomic<std::uint64_t> sent;     // once the client has stopped, plus 1
  alignas(64) std::atomic<std::uint32_t> failed;   // one side has given up
  alignas(64) std::atomic<std::uint32_t> at_rest;  // sides whose messages are complete
};

/// The smallest of the values that so many percent of them don't exceed. Reorders them.
double percentile(std::vector<double>& values, std::size_t percent) {
  if (values.empty()) throw std::runtime_error("nothing was measured");
  const auto at = values.begin() + static_cast<std::ptrdiff_t>((values.size() * percent + 99) / 100 - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double seconds_between(Clock::time_point from, Clock::time_point until) {
  return std::chrono::duration<double>(until - from).count();
}

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Counts messages in slices of time. The median slice tells the rate, however often another program takes the core.
class Slices {
 public:
  explicit Slices(double seconds)
      : begin_(Clock::now() + duration_of(seconds / 5)), end_(begin_ + duration_of(seconds)), from_(begin_) {}

  /// Returns false when the time is over.
  bool note(std::uint64_t count) {
    const auto now = Clock::now();
    if (now < begin_) {
      from_ = now;
      base_ = count;
    } else if (now - from_ >= kSlice && count > base_) {
      rates_.push_back(static_cast<double>(count - base_) / seconds_between(from_, now));
      from_ = now;
      base_ = count;
    }
    return now < end_ || rates_.empty();
  }
  Answer answer() {
    Answer answer;
    answer.median = percentile(rates_, 50);
    answer.percentile_99 = percentile(rates_, 1);
    return answer;
  }

 private:
  Clock::time_point begin_;
  Clock::time_point end_;
  Clock::time_point from_;
  std::uint64_t base_ = 0;
  std::vector<double> rates_;
};

/// One side's part in a task.
class Run {
 public:
  Run(Side& side, Progress& progress, Role role, const Command& command)
      : side_(side), progress_(progress), role_(role), command_(command) {}

  Answer measure() {
    switch (command_.kind) {
      case Kind::latency:
        return role_ == Role::client ? ping() : (pong(), Answer{});
      case Kind::rate:
        return role_ == Role::client ? (flood(), Answer{}) : consume();
      case Kind::one_sided:
        return role_ == Role::client ? write_alone() : (wait_for_end(), Answer{});
      case Kind::quit:
        break;
    }
    return {};
  }
  /// After measure(): until nothing is under way on either side.
  void come_to_rest() {
    wait([&] { return side_.flush(); });
    progress_.at_rest.fetch_add(1);
    wait([&] { return progress_.at_rest.load() == 2; });
  }

 private:
  /// Spins until done(). Throws when the other side has given up or nothing happens for long.
  template <class Done>
  void wait(Done&& done) {
    for (auto give_up = Clock::now() + kPatience;;) {
      for (std::size_t i = 0; i < kSpinsBetweenLooks; ++i) {
        if (done()) return;
        side_.progress();
      }
      if (progress_.failed.load() != 0) throw std::runtime_error(kOtherFailed);
      if (Clock::now() > give_up) throw std::runtime_error("nothing comes from the other process");
    }
  }
  /// The same, without a reading of the clock before what comes soon: in a ping-pong they would be a large part of what
  /// is measured. In a flood there are some for each list that is sent, and for each look that finds something.
  template <class Done>
  void wait_briefly(Done&& done) {
    for (std::size_t i = 0; i < kSpinsBetweenLooks; ++i) {
      if (done()) return;
      side_.progress();
    }
    wait(done);
  }
  void send_one() {
    wait_briefly([&] { return side_.send(sent_, 1) == 1; });
    ++sent_;
  }
  void receive_one() {
    wait_briefly([&] { return side_.receive(received_) == 1; });
    ++received_;
  }

  Answer ping() {
    std::vector<double> samples;
    samples.reserve(kMostSamples);
    const auto from = Clock::now() + duration_of(command_.seconds / 5);
    const auto until = from + duration_of(command_.seconds);
    auto begin = Clock::now();
    while ((begin < until || samples.empty()) && samples.size() < kMostSamples) {
      begin = Clock::now();
      send_one();
      receive_one();
      const auto end = Clock::now();
      if (begin >= from) samples.push_back(seconds_between(begin, end) / 2);
    }
    progress_.sent.store(sent_ + 1);
    return {percentile(samples, 50), percentile(samples, 99), {}};
  }
  void pong() {
    for (;;) {
      bool over = false;
      wait_briefly([&] {
        over = progress_.sent.load(std::memory_order_relaxed) == received_ + 1;
        return over || side_.receive(received_) == 1;
      });
      if (over) return;
      ++received_;
      send_one();
    }
  }

  void flood() {
    while (progress_.stop.load(std::memory_order_relaxed) == 0) {
      std::size_t left = command_.task.list;
      wait([&] {
        const auto taken = side_.send(sent_, left);
        sent_ += taken;
        left -= taken;
        return left == 0 || progress_.stop.load(std::memory_order_relaxed) != 0;
      });
    }
    progress_.sent.store(sent_ + 1);
  }
  Answer consume() {
    Slices slices(command_.seconds);
    while (slices.note(received_)) {
      wait([&] {
        const auto count = side_.receive(received_);
        received_ += count;
        return count != 0;
      });
    }
    progress_.stop.store(1);
    wait([&] {
      received_ += side_.receive(received_);
      return progress_.sent.load() == received_ + 1;
    });
    return slices.answer();
  }

  Answer write_alone() {
    Slices slices(command_.seconds);
    while (slices.note(sent_)) {
      std::size_t left = command_.task.list;
      wait([&] {
        const auto taken = side_.send(sent_, left);
        sent_ += taken;
        left -= taken;
        return left == 0;
      });
    }
    wait([&] { return side_.flush(); });
    progress_.sent.store(sent_ + 1);
    return slices.answer();
  }
  void wait_for_end() {
    while (progress_.sent.load() == 0) wait([&] { return progress_.sent.load() != 0; });
  }

  Side& side_;
  Progress& progress_;
  Role role_;
  Command command_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

/// Other programs then do not take the core during a sample. Does nothing if the user may not.
void raise_priority() {
  const sched_param priority{1};
  static_cast<void>(::sched_setscheduler(0, SCHED_FIFO, &priority));
}

Answer take_part(Side& side, Progress& progress, Role role, const Command& command) {
  Answer answer;
  try {
    Run run(side, progress, role, command);
    answer = run.measure();
    run.come_to_rest();
  } catch (const std::exception& error) {
    progress.failed.store(1);
    std::snprintf(answer.error, sizeof answer.error, "%s", error.what());
  }
  return answer;
}

void move_to_core(int core) {
  if (core < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  // A wish: without it the measurement is less steady, not wrong.
  static_cast<void>(::sched_setaffinity(0, sizeof set, &set));
}

template <class T>
T exchange_value(int channel, const T& value) {
  const auto bytes = exchange(channel, &value, sizeof value);
  if (bytes.size() != sizeof value) throw std::runtime_error("the other process sent something else");
  T other;
  std::memcpy(&other, bytes.data(), sizeof other);
  return other;
}

void serve(Side& side, Progress& progress, int channel) {
  for (;;) {
    Command command;
    if (::recv(channel, &command, sizeof command, 0) != sizeof command || command.kind == Kind::quit) return;
    side.begin(command.task);
    exchange_value(channel, command);
    const Answer answer = take_part(side, progress, Role::server, command);
    if (::send(channel, &answer, sizeof answer, MSG_NOSIGNAL) < 0) return;
  }
}

Answer measure(Side& side, Progress& progress, int channel, const Command& command) {
  progress.stop = 0;
  progress.sent = 0;
  progress.failed = 0;
  progress.at_rest = 0;
  if (::send(channel, &command, sizeof command, MSG_NOSIGNAL) < 0)
    throw std::runtime_error("the other process is gone");
  side.begin(command.task);
  exchange_value(channel, command);
  const Answer own = take_part(side, progress, Role::client, command);
  Answer other;
  if (::recv(channel, &other, sizeof other, 0) != sizeof other) throw std::runtime_error("the other process is gone");
  const bool others = own.error == std::string_view(kOtherFailed) && other.error[0] != '\0';
  if (own.error[0] != '\0') return others ? other : own;
  return other.error[0] != '\0' || command.kind == Kind::rate ? other : own;
}

/// Throws for a line that says nothing.
Command parse(const Peer& peer, const std::string& line) {
  std::istringstream words(line);
  std::string operation, kind;
  Command command;
  words >> operation >> kind >> command.task.bytes >> command.task.list >> command.seconds;
  const auto at = std::find(peer.operations.begin(), peer.operations.end(), operation);
  if (!words || at == peer.operations.end() || command.task.bytes < sizeof(std::uint64_t) ||
      command.task.bytes > kMaxBytes || command.task.list < 1 || command.task.list > kMostListed) {
    throw std::runtime_error("no such task: " + line);
  }
  command.task.operation = static_cast<std::uint32_t>(at - peer.operations.begin());
  if (kind == "latency") {
    command.kind = Kind::latency;
  } else if (kind == "rate") {
    command.kind = Kind::rate;
  } else if (kind == "one-sided") {
    command.kind = Kind::one_sided;
  } else {
    throw std::runtime_error("no such task: " + line);
  }
  return command;
}

void answer_commands(const Peer& peer, Side& side, Progress& progress, int channel) {
  std::printf("ready");
  for (const auto& operation : peer.operations) std::printf(" %s", operation.c_str());
  std::printf("\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const Answer answer = measure(side, progress, channel, parse(peer, line));
    if (answer.error[0] != '\0') {
      std::printf("error %s\n", answer.error);
    } else {
      std::printf("ok %.9g %.9g\n", answer.median, answer.percentile_99);
    }
    std::fflush(stdout);
  }
}

int run_process(Role role, const Peer& peer, int channel, Progress& progress, int core, bool realtime) {
  try {
    move_to_core(core);
    const auto side = peer.connect(role, channel);
    exchange_value(channel, role == Role::client);  // both are connected
    if (realtime) raise_priority();
    if (role == Role::client) {
      answer_commands(peer, *side, progress, channel);
    } else {
      serve(*side, progress, channel);
    }
    return 0;
  } catch (const std::exception& error) {
    // Both may fail, for the same reason: one line is enough.
    if (role == Role::client) std::fprintf(stderr, "%s: %s\n", peer.name, error.what());
    return 1;
  }
}

}  // namespace

std::vector<std::byte> exchange(int channel, const void* bytes, std::size_t size) {
  std::vector<std::byte> other(64U << 10U);
  if (::send(channel, bytes, size, MSG_NOSIGNAL) < 0) throw std::runtime_error("the other process is gone");
  const auto got = ::recv(channel, other.data(), other.size(), 0);
  if (got <= 0) throw std::runtime_error("the other process is gone");
  other.resize(static_cast<std::size_t>(got));
  return other;
}

void* shared_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "shared memory");
  return memory;
}

int run(int argc, char** argv, const Peer& peer) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s CLIENT_CORE SERVER_CORE normal|realtime     a part of splitnic-bench fabric\n",
                 peer.name);
    return 2;
  }
  auto& progress = *new (shared_memory(sizeof(Progress))) Progress{};
  int channels[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels) != 0) return 1;
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return 1;
  const Role role = child == 0 ? Role::server : Role::client;
  ::close(channels[child == 0 ? 0 : 1]);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self) ::_exit(1);  // it was over before the wish was made
  } else {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  }
  const int code = run_process(role, peer, channels[child == 0 ? 1 : 0], progress, std::atoi(argv[child == 0 ? 2 : 1]),
                               std::strcmp(argv[3], "realtime") == 0);
  if (child != 0) {
    ::close(channels[0]);  // so the other process ends, too, and may clean up
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace splitnic::bench::peers
