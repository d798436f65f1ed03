// `splitnic-bench nic`: how fast the split driver is, beside the plainest program that could do its job, and beside the
// kernel's bridge.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "bench/commands.h"
#include "bench/fabric/placement.h"
#include "bench/fabric/run.h"
#include "bench/nic/contest.h"
#include "bench/nic/crowd.h"
#include "bench/nic/laboratory.h"
#include "bench/nic/report.h"
#include "bench/programs.h"
#include "common/result.h"

namespace splitnic::bench {

namespace {

Contestant split_driver(const Laboratory& laboratory, const std::string& program, Condition condition) {
  const auto socket = laboratory.scratch("unit.socket");
  const bool offloads = condition == Condition::offloads;
  const std::string on = offloads ? "on" : "off";
  return {Contender::split,
          condition,
          {{program, "iounit", "--listen", socket, "--lan", Laboratory::kLan, "--netns", Laboratory::kUnit, "--control",
            laboratory.scratch("unit.control"), "--offloads", on, "--lan-engine", offloads ? "packet" : "pcap"},
           {program, "host", "--connect", "shm:" + socket, "--tap", Laboratory::kTap, "--netns", Laboratory::kHost,
            "--control", laboratory.scratch("host.control"), "--offloads", on}}};
}

Contestant forwarder(const std::string& program, Condition condition) {
  return {Contender::forwarder,
          condition,
          {{program, "--tap", Laboratory::kTap, "--lan", Laboratory::kLan, "--tap-netns", Laboratory::kHost,
            "--lan-netns", Laboratory::kUnit, "--offloads", condition == Condition::offloads ? "on" : "off"}}};
}

/// Runs of all contestants, one after the other, so that what else the machine does meets all alike.
Result<void> alternate(Laboratory& laboratory, LineGauge& gauge, const std::string& program, Report& report) {
  const auto length = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(report.seconds));
  for (unsigned run = 1; run <= report.runs; ++run) {
    for (const Condition condition : kConditions) {
      fmt::print(stderr, "run {} of {}, {}\n", run, report.runs, to_string(condition));
      const std::array contestants{split_driver(laboratory, program, condition), forwarder(report.forwarder, condition),
                                   Contestant{Contender::bridge, condition}};
      for (const Contestant& contestant : contestants) {
        auto measured = measure_once(laboratory, gauge, contestant, length, report.samples);
        if (!measured) return measured;
      }
    }
  }
  return {};
}

/// The gauge moves this process to one core; the traffic goes where the scheduler wants.
Result<LineGauge> start_gauge() {
  cpu_set_t before;
  const bool known = ::sched_getaffinity(0, sizeof before, &before) == 0;
  auto gauge = LineGauge::start(choose_cores());
  if (known) static_cast<void>(::sched_setaffinity(0, sizeof before, &before));
  return gauge;
}

Result<void> measure_everything(const NicCommand& command, const std::string& program, Report& report) {
  auto laboratory = Laboratory::build();
  if (!laboratory) throw StartupError{laboratory.error().message};
  auto gauge = start_gauge();
  if (!gauge) return tl::unexpected(gauge.error());
  if (auto measured = alternate(*laboratory, *gauge, program, report); !measured) return measured;
  if (command.idle_hosts == 0) return {};
  fmt::print(stderr, "several hosts, {} of them idle\n", command.idle_hosts);
  auto crowd = measure_crowd(*laboratory, program, command.idle_hosts,
                             std::chrono::duration_cast<Duration>(std::chrono::duration<double>(report.seconds)));
  if (!crowd) return fail("several hosts: {}", crowd.error().message);
  report.crowd = *crowd;
  return {};
}

int bench_in_laboratory(const NicCommand& command, const std::string& program, Report report) {
  if (const auto measured = measure_everything(command, program, report); !measured) {
    fmt::print(stderr, "splitnic-bench: {}\n", measured.error().message);
    return 1;
  }
  fmt::print("{}\n", command.json ? to_json(report) : to_text(report));
  return 0;
}

}  // namespace

int run_nic_command(const NicCommand& command) {
  Report report;
  report.version = SPLITNIC_VERSION;
  report.seconds = command.seconds;
  report.runs = command.runs;
  report.forwarder = command.forwarder.empty() ? find_program("bench-forwarder").string() : command.forwarder;
  report.machine = describe_machine();
  if (::access(report.forwarder.c_str(), X_OK) != 0) {
    throw StartupError{fmt::format("{} is no program to compare with: build bench-forwarder, or name it by --forwarder",
                                   report.forwarder)};
  }
  std::string program = command.splitnic.empty() ? find_program("splitnic").string() : command.splitnic;
  if (command.splitnic.empty() && ::access(program.c_str(), X_OK) != 0) program = "splitnic";  // the PATH's
  return run_apart([&] { return bench_in_laboratory(command, program, report); });
}

}  // namespace splitnic::bench
