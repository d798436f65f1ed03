// `splitnic-bench nic`: how fast the split driver is, beside the plainest program that could do its job, and beside the
// kernel's bridge.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/commands.h"
#include "bench/fabric/placement.h"
#include "bench/fabric/run.h"
#include "bench/nic/contest.h"
#include "bench/nic/crowd.h"
#include "bench/nic/laboratory.h"
#include "bench/nic/report.h"
#include "bench/programs.h"
#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::bench::nic {

namespace {

Contestant split_driver(const Laboratory& laboratory, const std::string& program, Condition condition) {
  const auto socket = laboratory.scratch("unit.socket");
  const std::string engine = condition == Condition::offloads ? "packet" : "pcap";
  return {Contender::split,
          condition,
          {{program, "iounit", "--listen", socket, "--lan", Laboratory::kLan, "--netns", Laboratory::kUnit, "--control",
            laboratory.scratch("unit.control"), "--lan-engine", engine},
           {program, "host", "--connect", "shm:" + socket, "--tap", Laboratory::kTap, "--netns", Laboratory::kHost,
            "--control", laboratory.scratch("host.control")}}};
}

/// bench-forwarder or bench-small-split.
Contestant yardstick(Contender contender, const std::string& program, Condition condition) {
  return {contender,
          condition,
          {{program, "--tap", Laboratory::kTap, "--lan", Laboratory::kLan, "--tap-netns", Laboratory::kHost,
            "--lan-netns", Laboratory::kUnit, "--offloads", condition == Condition::offloads ? "on" : "off"}}};
}

constexpr const char* kTestpmd = "dpdk-testpmd";

/// It polls: one core forwards, the other one is its main thread's. Memory in ordinary pages, for the few buffers that
/// two interfaces need. A testpmd that prints statistics, each hour here, does not wait for a key.
Contestant testpmd() {
  Contestant contestant{Contender::testpmd,
                        Condition::plain,
                        {{"ip",
                          "netns",
                          "exec",
                          Laboratory::kUnit,
                          "stdbuf",
                          "-oL",
                          kTestpmd,
                          "-l",
                          "0,1",
                          "--no-huge",
                          "-m",
                          "256",
                          "--no-pci",
                          "--no-shconf",
                          fmt::format("--vdev=net_af_packet0,iface={}", Laboratory::kLan),
                          fmt::format("--vdev=net_tap0,iface={}", Laboratory::kTap),
                          "--",
                          "--forward-mode=io",
                          "--auto-start",
                          "--no-lsc-interrupt",
                          "--nb-cores=1",
                          "--total-num-mbufs=8192",
                          "--stats-period=3600"}}};
  contestant.gives_tap_after = "forwards packets";
  return contestant;
}

/// In the order of the report.
std::vector<Contestant> contestants_in(const Laboratory& laboratory, const std::string& program, Condition condition,
                                       const Report& report) {
  std::vector contestants{
      split_driver(laboratory, program, condition), yardstick(Contender::forwarder, report.forwarder, condition),
      yardstick(Contender::small_split, report.small_split, condition), Contestant{Contender::bridge, condition}};
  if (report.has_testpmd) contestants.push_back(testpmd());
  std::erase_if(contestants, [&](const Contestant& one) { return !takes_part(one.contender, condition); });
  return contestants;
}

/// Runs of all contestants, one after the other, so that what else the machine does meets all alike.
Result<void> alternate(Laboratory& laboratory, LineGauge& gauge, const NicCommand& command, const std::string& program,
                       Report& report) {
  const auto length = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(report.seconds));
  for (unsigned run = 1; run <= report.runs; ++run) {
    for (const Condition condition : kConditions) {
      fmt::print(stderr, "run {} of {}, {}\n", run, report.runs, to_string(condition));
      for (const Contestant& contestant : contestants_in(laboratory, program, condition, report)) {
        const bool beside = contestant.contender != Contender::split;
        if (beside && !asked_for(command.contenders, to_string(contestant.contender))) continue;
        auto measured = measure_once(laboratory, gauge, contestant, length, command.rows, report.samples);
        if (!measured && contestant.contender == Contender::testpmd) {
          // What it needs, not every user and machine has.
          fmt::print(stderr, "left out: {}\n", measured.error().message);
          report.has_testpmd = false;
        } else if (!measured) {
          return measured;
        }
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
  if (auto measured = alternate(*laboratory, *gauge, command, program, report); !measured) return measured;
  if (command.idle_hosts == 0) return {};
  fmt::print(stderr, "several hosts, {} of them idle\n", command.idle_hosts);
  auto crowd = measure_crowd(*laboratory, *gauge, program, command.idle_hosts,
                             std::chrono::duration_cast<Duration>(std::chrono::duration<double>(report.seconds)));
  if (!crowd) return fail("several hosts: {}", crowd.error().message);
  report.crowd = *crowd;
  return {};
}

int bench_in_laboratory(const NicCommand& command, const std::string& program, Report report, std::ofstream* picture) {
  if (const auto measured = measure_everything(command, program, report); !measured) {
    fmt::print(stderr, "splitnic-bench: {}\n", measured.error().message);
    return 1;
  }
  fmt::print("{}\n", command.json ? to_json(report) : to_text(report));
  if (picture == nullptr) return 0;
  *picture << to_svg(report);
  if (picture->flush()) return 0;
  fmt::print(stderr, "splitnic-bench: {} can't be written: {}\n", command.svg, os::errno_text());
  return 1;
}

int run(const NicCommand& command) {
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
  report.small_split = find_program("bench-small-split").string();
  if (::access(report.small_split.c_str(), X_OK) != 0) {
    throw StartupError{fmt::format("{} is no program to compare with: build bench-small-split", report.small_split)};
  }
  std::string program = command.splitnic.empty() ? find_program("splitnic").string() : command.splitnic;
  if (command.splitnic.empty() && ::access(program.c_str(), X_OK) != 0) program = "splitnic";  // the PATH's
  report.has_testpmd = is_in_path(kTestpmd);
  if (!report.has_testpmd) fmt::print(stderr, "left out: {} is not installed\n", kTestpmd);
  // Opened here: the laboratory has folders of its own.
  std::ofstream picture;
  if (!command.svg.empty()) {
    picture.open(command.svg);
    if (!picture) throw StartupError{fmt::format("{} can't be written: {}", command.svg, os::errno_text())};
  }
  return run_apart(
      [&] { return bench_in_laboratory(command, program, report, command.svg.empty() ? nullptr : &picture); });
}

}  // namespace
}  // namespace splitnic::bench::nic

namespace splitnic::bench {

int run_nic_command(const NicCommand& command) { return nic::run(command); }

}  // namespace splitnic::bench
