// `splitnic-bench nic`: how fast the split driver is, beside the plainest program that could do its job.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "bench/commands.h"
#include "bench/nic/contest.h"
#include "bench/nic/laboratory.h"
#include "bench/nic/report.h"
#include "bench/programs.h"
#include "common/result.h"

namespace splitnic::bench {

namespace {

Contestant split_driver(const Laboratory& laboratory, const std::string& program) {
  const auto socket = laboratory.scratch("unit.socket");
  return {"split driver",
          {{program, "iounit", "--listen", socket, "--lan", Laboratory::kLan, "--netns", Laboratory::kUnit, "--control",
            laboratory.scratch("unit.control"), "--offloads", "off"},
           {program, "host", "--connect", "shm:" + socket, "--tap", Laboratory::kTap, "--netns", Laboratory::kHost,
            "--control", laboratory.scratch("host.control"), "--offloads", "off"}}};
}

Contestant forwarder(const std::string& program) {
  return {"forwarder",
          {{program, "--tap", Laboratory::kTap, "--lan", Laboratory::kLan, "--tap-netns", Laboratory::kHost,
            "--lan-netns", Laboratory::kUnit}}};
}

/// Runs of both, one after the other, so that what else the machine does meets both alike.
Result<void> alternate(Laboratory& laboratory, const Contestant& split, const Contestant& yardstick,
                       std::size_t run_count, Report& report) {
  const auto length = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(report.seconds));
  std::size_t repeats_left = run_count;
  while (report.split_runs.size() < run_count) {
    fmt::print(stderr, "run {} of {}\n", report.split_runs.size() + 1, run_count);
    for (const bool contender : {true, false}) {
      const auto run = measure_once(laboratory, contender ? split : yardstick, length);
      if (!run) return tl::unexpected(run.error());
      (contender ? report.split_runs : report.forwarder_runs).push_back(*run);
    }
    if (report.split_runs.size() < run_count) continue;
    for (const auto* runs : {&report.split_runs, &report.forwarder_runs}) {
      const std::size_t outlier = find_outlier(*runs);
      if (outlier == runs->size() || repeats_left == 0) continue;
      --repeats_left;
      report.repeated.push_back(fmt::format("a run in which the {} was several times faster than in its others",
                                            runs == &report.split_runs ? split.name : yardstick.name));
      report.split_runs.erase(report.split_runs.begin() + static_cast<std::ptrdiff_t>(outlier));
      report.forwarder_runs.erase(report.forwarder_runs.begin() + static_cast<std::ptrdiff_t>(outlier));
      break;
    }
  }
  return {};
}

int bench_in_laboratory(const NicCommand& command, const std::string& program, Report report) {
  auto laboratory = Laboratory::build();
  if (!laboratory) throw StartupError{laboratory.error().message};
  const auto measured =
      alternate(*laboratory, split_driver(*laboratory, program), forwarder(report.forwarder), command.runs, report);
  if (!measured) {
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
