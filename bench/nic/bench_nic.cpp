// `splitnic-bench nic`: how fast the split driver is, beside the plainest program that could do its job.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "bench/commands.h"
#include "bench/nic/contest.h"
#include "bench/nic/laboratory.h"
#include "bench/nic/report.h"
#include "bench/programs.h"
#include "common/result.h"

namespace splitnic::bench {

namespace {

Contestant split_driver(const Laboratory& laboratory, const std::string& program, bool offloads) {
  const auto socket = laboratory.scratch("unit.socket");
  const std::string on = offloads ? "on" : "off";
  return {offloads ? "split driver with offloads" : "split driver",
          offloads,
          {{program, "iounit", "--listen", socket, "--lan", Laboratory::kLan, "--netns", Laboratory::kUnit, "--control",
            laboratory.scratch("unit.control"), "--offloads", on},
           {program, "host", "--connect", "shm:" + socket, "--tap", Laboratory::kTap, "--netns", Laboratory::kHost,
            "--control", laboratory.scratch("host.control"), "--offloads", on}}};
}

Contestant forwarder(const std::string& program, bool offloads) {
  return {offloads ? "forwarder with offloads" : "forwarder",
          offloads,
          {{program, "--tap", Laboratory::kTap, "--lan", Laboratory::kLan, "--tap-netns", Laboratory::kHost,
            "--lan-netns", Laboratory::kUnit, "--offloads", offloads ? "on" : "off"}}};
}

/// Removes one pair of runs that says nothing, and returns why, unless there is none.
std::optional<std::string> drop_outlier(Pair& pair) {
  for (const auto* runs : {&pair.split_runs, &pair.forwarder_runs}) {
    const std::size_t outlier = find_outlier(*runs);
    if (outlier == runs->size()) continue;
    pair.split_runs.erase(pair.split_runs.begin() + static_cast<std::ptrdiff_t>(outlier));
    pair.forwarder_runs.erase(pair.forwarder_runs.begin() + static_cast<std::ptrdiff_t>(outlier));
    return fmt::format("a run in which the {}{} was several times faster than in its others",
                       runs == &pair.split_runs ? "split driver" : "forwarder", pair.offloads ? " with offloads" : "");
  }
  return std::nullopt;
}

/// Runs of all contestants, one after the other, so that what else the machine does meets all alike.
Result<void> alternate(Laboratory& laboratory, const std::string& program, std::size_t run_count, Report& report) {
  const auto length = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(report.seconds));
  std::size_t repeats_left = run_count;
  const auto missing = [&](const Pair& pair) { return pair.split_runs.size() < run_count; };
  while (missing(report.plain) || missing(report.offloads)) {
    for (Pair* pair : {&report.plain, &report.offloads}) {
      if (!missing(*pair)) continue;
      fmt::print(stderr, "run {} of {}{}\n", pair->split_runs.size() + 1, run_count,
                 pair->offloads ? ", with offloads" : "");
      const auto split = measure_once(laboratory, split_driver(laboratory, program, pair->offloads), length);
      if (!split) return tl::unexpected(split.error());
      const auto forwarded = measure_once(laboratory, forwarder(report.forwarder, pair->offloads), length);
      if (!forwarded) return tl::unexpected(forwarded.error());
      pair->split_runs.push_back(*split);
      pair->forwarder_runs.push_back(*forwarded);
      if (missing(*pair) || repeats_left == 0) continue;
      if (auto why = drop_outlier(*pair)) {
        --repeats_left;
        report.repeated.push_back(*std::move(why));
      }
    }
  }
  return {};
}

int bench_in_laboratory(const NicCommand& command, const std::string& program, Report report) {
  auto laboratory = Laboratory::build();
  if (!laboratory) throw StartupError{laboratory.error().message};
  const auto measured = alternate(*laboratory, program, command.runs, report);
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
