#include "bench/fabric/run.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bench/fabric/placement.h"
#include "bench/fabric/server.h"
#include "common/os/errno_text.h"
#include "common/os/unique_fd.h"
#include "fabric/bridge/shm_bridge.h"

namespace splitnic::bench {

namespace {

/// Ends the process when it goes.
class OtherProcess {
 public:
  explicit OtherProcess(pid_t pid) : pid_(pid) {}
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  ~OtherProcess() {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

 private:
  pid_t pid_;
};

/// What a pair of processes is for.
struct Purpose {
  Plan plan;
  EndOptions options;
  Cores cores;
  bool yardsticks = true;
  bool realtime = false;
};

using Bridges = std::vector<std::unique_ptr<fabric::Bridge>>;

/// The two processes' ends.
Result<std::pair<Bridges, Bridges>> make_bridges(const EndOptions& options) {
  std::pair<Bridges, Bridges> made;
  const std::size_t count = options.paths + options.idle_paths;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = i == 0 ? fabric::kShmDefaultBytes : fabric::kShmMinBytes;
    auto pair = fabric::shm_pair(bytes, bytes);
    if (!pair) return tl::unexpected(pair.error());
    made.first.push_back(std::move(pair->first));
    made.second.push_back(std::move(pair->second));
  }
  return made;
}

/// A doorbell takes a descriptor.
void allow_descriptors(const EndOptions& options) {
  rlimit limit{};
  const rlim_t wanted = 4 * (options.paths + options.idle_paths) + 256;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if it is not enough, making a bridge fails, and says so
}

/// The other process, from its first moment to its last.
[[noreturn]] void be_server(Bridges bridges, int channel, pid_t client, const Purpose& purpose) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != client) ::_exit(1);  // it was over before the wish was made
  move_to_core(purpose.cores.server);
  const RaisedPriority priority(purpose.cores, purpose.realtime);
  Result<void> served;
  if (purpose.yardsticks) served = serve_yardsticks(*bridges.front(), channel, purpose.options.shares_core);
  if (served) {
    End end(std::move(bridges), purpose.options);
    served = end.come_up(channel);
    if (served) served = serve(end, purpose.plan);
  }
  fmt::print(stderr, "splitnic-bench: the process that answers: {}\n", served.error().message);
  ::_exit(1);
}

/// end: empty; whose it is also says when it goes.
Result<FabricRun> measure_all(std::optional<End>& end, Bridges bridges, int channel, const Purpose& purpose,
                              Duration length) {
  FabricRun run;
  if (purpose.yardsticks) {
    const auto yardsticks = measure_yardsticks(*bridges.front(), channel, length, purpose.options.shares_core);
    if (!yardsticks) return tl::unexpected(yardsticks.error());
    run.yardsticks = *yardsticks;
  }
  end.emplace(std::move(bridges), purpose.options);
  if (auto up = end->come_up(channel); !up) return tl::unexpected(up.error());
  Client client(*end, purpose.plan);
  for (std::uint32_t row = 0; row < purpose.plan.measurements.size(); ++row) {
    const auto figures = client.measure(row, length);
    if (!figures) return tl::unexpected(figures.error());
    run.figures.push_back(*figures);
  }
  return run;
}

/// Forks; both processes' lives, but for the tables.
Result<FabricRun> measure_between_processes(const Purpose& purpose, Duration length) {
  allow_descriptors(purpose.options);
  auto bridges = make_bridges(purpose.options);
  if (!bridges) return tl::unexpected(bridges.error());
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return fail("no socket: {}", os::errno_text());
  }
  os::UniqueFd own(sockets[0]);
  os::UniqueFd others(sockets[1]);
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail("no second process: {}", os::errno_text());
  if (pid == 0) {
    // Each process holds its own end alone, so that it notices when the other one is gone.
    own.reset();
    bridges->first.clear();
    be_server(std::move(bridges->second), others.get(), self, purpose);
  }
  std::optional<End> end;  // goes after the other process, which would take it for a failure
  const OtherProcess other(pid);
  others.reset();
  bridges->second.clear();
  move_to_core(purpose.cores.client);
  return measure_all(end, std::move(bridges->first), own.get(), purpose, length);
}

}  // namespace

Cores choose_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE && cores.server < 0; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) (cores.client < 0 ? cores.client : cores.server) = core;
  }
  return cores.server < 0 ? Cores{} : cores;
}

Result<FabricRun> run_fabric(const Plan& plan, const EndOptions& options, const Cores& cores, Duration length) {
  FabricRun run;
  if (!plan.measurements.empty()) {
    auto measured = measure_between_processes({plan, options, cores}, length);
    if (!measured) return measured;
    run = std::move(*measured);
  }
  if (plan.tables) {
    auto tables = measure_tables(length);
    if (!tables) return tl::unexpected(tables.error());
    run.tables = std::move(*tables);
  }
  return run;
}

Result<Figures> run_measurement(const Measurement& what, EndOptions options, const Cores& cores, bool realtime,
                                Duration length) {
  options.queue_pairs = what.queue_pairs + what.idle_queue_pairs;
  options.paths = what.paths;
  options.idle_paths = what.idle_paths;
  const RaisedPriority priority(cores, realtime);
  auto run = measure_between_processes({{{what}, false}, options, cores, false, realtime}, length);
  if (!run) return tl::unexpected(run.error());
  return run->figures.front();
}

}  // namespace splitnic::bench
