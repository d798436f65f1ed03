#include "bench/fabric/comparison.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "bench/fabric/peer_process.h"
#include "bench/machine.h"
#include "bench/summary.h"

namespace splitnic::bench {

namespace {

constexpr std::uint32_t kList = 32;
constexpr std::uint32_t kFrameBytes = 1500;
constexpr std::uint32_t kLargeBytes = 64U << 10U;
constexpr std::uint32_t kBusyQueuePairs = 10;
constexpr std::uint32_t kIdleQueuePairs = 9990;
constexpr std::uint32_t kBusyPaths = 10;
constexpr std::uint32_t kIdlePaths = 990;
/// The placements may have different goals; where the goal is one, so is its pair.
constexpr Bounds both(double bound) { return {bound, bound}; }

Measurement latency(Verb verb, Path path, std::uint32_t bytes) { return {Quantity::latency, verb, path, bytes}; }
Measurement rate(Verb verb, Path path, std::uint32_t bytes, std::uint32_t list = 1) {
  return {Quantity::rate, verb, path, bytes, list};
}
Measurement on_queue_pairs(std::uint32_t busy, std::uint32_t idle) {
  Measurement what = rate(Verb::send, Path::segmented, 64);
  what.queue_pairs = busy;
  what.idle_queue_pairs = idle;
  return what;
}

Measurement on_paths(std::uint32_t busy, std::uint32_t idle) {
  Measurement what = on_queue_pairs(busy, 0);
  what.paths = busy;
  what.idle_paths = idle;
  return what;
}

double in_unit(const ComparedRow& row, const Figures& figures) {
  switch (row.unit) {
    case Unit::microseconds:
      return figures.median * 1e6;
    case Unit::million_per_second:
      return figures.per_second * 1e-6;
    case Unit::gigabytes_per_second:
      break;
  }
  return figures.per_second * row.what.bytes * 1e-9;
}

/// What a peer does for a row. A put that nobody polls for is the client's alone.
PeerTask task_of(const ComparedRow& row, std::size_t contestant) {
  PeerTask task{kContestants[contestant].operation, "latency", row.what.bytes, 1};
  if (row.what.quantity == Quantity::rate) {
    task.kind = contestant == kUcxPut ? "one-sided" : "rate";
    task.list = kList;  // at its best
  }
  return task;
}

/// The peers that run, by the names of their programs.
class Peers {
 public:
  Peers(const ComparisonOptions& options, Comparison& comparison) : comparison_(comparison) {
    for (const auto& contestant : kContestants) {
      const std::string program = contestant.program;
      if (program.empty() || running_.contains(program) || is_skipped(program)) continue;
      const std::string path = options.peers + "/" + program;
      if (::access(path.c_str(), X_OK) != 0) {
        skip(program, "it is not built (tools/setup.sh bench installs the libraries that peers need)");
        continue;
      }
      auto peer = PeerProcess::start(path, options.cores, comparison.realtime);
      if (peer) {
        running_.emplace(program, std::move(*peer));
      } else {
        skip(program, peer.error().message);
      }
    }
  }

  /// Nothing: this peer is skipped.
  std::optional<Figures> measure(const ComparedRow& row, std::size_t contestant, Duration length) {
    const std::string program = kContestants[contestant].program;
    const auto found = running_.find(program);
    if (found == running_.end()) return std::nullopt;
    auto figures = found->second.measure(task_of(row, contestant), length);
    if (figures) return *figures;
    skip(program, fmt::format("{}: {}", row.title, figures.error().message));
    running_.erase(found);
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool is_skipped(const std::string& program) const {
    return std::ranges::any_of(comparison_.skipped, [&](const SkippedPeer& peer) { return peer.program == program; });
  }
  void skip(const std::string& program, std::string reason) {
    comparison_.skipped.push_back({program, std::move(reason)});
  }

  Comparison& comparison_;
  std::map<std::string, PeerProcess> running_;
};

Result<std::optional<Figures>> measure_one(const ComparisonOptions& options, Comparison& comparison, Peers& peers,
                                           const ComparedRow& row, std::size_t contestant) {
  if (contestant > kSplitnicReference) return peers.measure(row, contestant, options.length);
  const Measurement& what = contestant == kSplitnic ? row.what : row.reference_what;
  const auto figures = run_measurement(what, options.end, options.cores, comparison.realtime, options.length);
  if (!figures) return fail("{}: {}", row.title, figures.error().message);
  return *figures;
}

Result<void> sample(const ComparisonOptions& options, Comparison& comparison, Peers& peers, LineGauge& gauge,
                    std::size_t index, std::size_t contestant) {
  const ComparedRow& row = compared_rows()[index];
  const auto before = gauge.measure();
  if (!before) return tl::unexpected(before.error());
  const auto figures = measure_one(options, comparison, peers, row, contestant);
  if (!figures) return tl::unexpected(figures.error());
  if (!*figures) return {};
  const auto after = gauge.measure();
  if (!after) return tl::unexpected(after.error());
  if (placement_of(*before) == placement_of(*after)) {
    comparison.samples.push_back({index, contestant, in_unit(row, **figures), *before});
  } else {
    ++comparison.moved;
  }
  return {};
}

}  // namespace

const char* to_string(Unit unit) {
  switch (unit) {
    case Unit::microseconds:
      return "us";
    case Unit::million_per_second:
      return "M/s";
    case Unit::gigabytes_per_second:
      break;
  }
  return "GB/s";
}

const std::vector<ComparedRow>& compared_rows() {
  using enum Unit;
  static const std::vector<std::size_t> messages{kSlotRing, kUcxActiveMessage, kLibfabric, kMessageQueue};
  static const std::vector<std::size_t> messages_and_put{kSlotRing, kUcxActiveMessage, kUcxPut, kLibfabric,
                                                         kMessageQueue};
  static const std::vector<ComparedRow> rows{
      {"send_64",
       "64 B send, one way",
       microseconds,
       latency(Verb::send, Path::segmented, 64),
       messages,
       kUcxActiveMessage,
       {0.85, 1.0},
       {0.7, 0.8}},
      {"send_8",
       "8 B send, one way",
       microseconds,
       latency(Verb::send, Path::segmented, 8),
       messages_and_put,
       kUcxPut,
       {1.5, 2.0},
       {1.2, 1.5}},
      {"send_64_lists", "64 B send, lists of 32", million_per_second, rate(Verb::send, Path::segmented, 64, kList),
       messages, kUcxActiveMessage, both(2.0), both(3.0)},
      {"send_1500",
       "1500 B send",
       million_per_second,
       rate(Verb::send, Path::segmented, kFrameBytes),
       messages,
       kUcxActiveMessage,
       {0.9, 1.3},
       {1.1, 1.8}},
      {"send_64k", "64 KiB send", gigabytes_per_second, rate(Verb::send, Path::segmented, kLargeBytes), messages,
       kUcxActiveMessage, both(2.0), both(3.5)},
      {"write_64k_segmented",
       "64 KiB segmented write",
       gigabytes_per_second,
       rate(Verb::write, Path::segmented, kLargeBytes),
       {kUcxActiveMessage},
       kUcxActiveMessage,
       both(2.0),
       both(3.5)},
      {"immediate_64_lists",
       "64 B direct write with immediate, lists of 32",
       million_per_second,
       rate(Verb::write_immediate, Path::direct, 64, kList),
       {kMemif},
       kMemif,
       both(0.8),
       both(1.2)},
      {"immediate_1500",
       "1500 B direct write with immediate",
       million_per_second,
       rate(Verb::write_immediate, Path::direct, kFrameBytes),
       {kMemif},
       kMemif,
       both(1.0),
       both(1.3)},
      {"immediate_1500_lists",
       "1500 B direct write with immediate, lists of 32",
       million_per_second,
       rate(Verb::write_immediate, Path::direct, kFrameBytes, kList),
       {kMemif},
       kMemif,
       both(1.0),
       both(1.3)},
      {"write_64k_direct",
       "64 KiB direct write, not consumed",
       gigabytes_per_second,
       rate(Verb::write, Path::direct, kLargeBytes),
       {kUcxPut},
       kUcxPut,
       both(0.9),
       both(1.0)},
      {"write_64_polled",
       "64 B write, the target polls memory, one way",
       microseconds,
       latency(Verb::write, Path::direct, 64),
       {kUcxPut},
       kUcxPut,
       both(1.3),
       both(1.1)},
      {"read_8",
       "8 B read, round trip",
       microseconds,
       latency(Verb::read, Path::segmented, 8),
       {kSplitnicReference},
       kSplitnicReference,
       both(1.3),
       both(1.1),
       "two one-way sends of 8 B",
       latency(Verb::send, Path::segmented, 8),
       2.0},
      {"datagram_64",
       "64 B datagram, one way",
       microseconds,
       latency(Verb::datagram, Path::segmented, 64),
       {kSplitnicReference},
       kSplitnicReference,
       both(1.2),
       both(1.0),
       "64 B send of a reliable connection",
       latency(Verb::send, Path::segmented, 64)},
      {"idle_queue_pairs",
       "64 B send on 10 of 10000 queue pairs",
       million_per_second,
       on_queue_pairs(kBusyQueuePairs, kIdleQueuePairs),
       {kSplitnicReference},
       kSplitnicReference,
       both(1 / 1.2),
       both(1 / 1.05),
       "10 of 10 queue pairs",
       on_queue_pairs(kBusyQueuePairs, 0)},
      {"idle_paths",
       "64 B send on 10 of 1000 paths",
       million_per_second,
       on_paths(kBusyPaths, kIdlePaths),
       {kSplitnicReference},
       kSplitnicReference,
       both(1 / 1.2),
       both(1 / 1.05),
       "10 of 10 paths",
       on_paths(kBusyPaths, 0)},
  };
  return rows;
}

std::vector<std::string> row_names() {
  std::vector<std::string> names;
  for (const ComparedRow& row : compared_rows()) names.emplace_back(row.key);
  return names;
}

std::size_t Comparison::count(std::size_t row, std::size_t contestant, Placement placement) const {
  return static_cast<std::size_t>(std::ranges::count_if(samples, [&](const Sample& sample) {
    return sample.row == row && sample.contestant == contestant && placement_of(sample.line) == placement;
  }));
}

std::optional<double> Comparison::median(std::size_t row, std::size_t contestant, Placement placement) const {
  std::vector<double> values;
  for (const Sample& sample : samples) {
    if (sample.row != row || sample.contestant != contestant || placement_of(sample.line) != placement) continue;
    values.push_back(sample.value);
  }
  if (values.size() < kFewestSamples) return std::nullopt;
  return summary_of(std::move(values)).median;
}

std::optional<double> Comparison::line(Placement placement) const {
  std::vector<double> lines;
  for (const Sample& sample : samples) {
    if (placement_of(sample.line) == placement) lines.push_back(sample.line);
  }
  if (lines.empty()) return std::nullopt;
  return summary_of(std::move(lines)).median;
}

Outcome outcome_of(const Comparison& comparison, std::size_t row, Placement placement) {
  const ComparedRow& what = compared_rows()[row];
  const auto own = comparison.median(row, kSplitnic, placement);
  const auto reference = comparison.median(row, what.reference, placement);
  Outcome outcome;
  if (!comparison.unfit.empty()) {
    outcome.reason = comparison.unfit;
    return outcome;
  }
  if (!own || !reference) {
    const std::string program = kContestants[what.reference].program;
    const auto skipped = std::ranges::find(comparison.skipped, program, &SkippedPeer::program);
    outcome.reason = !program.empty() && skipped != comparison.skipped.end() ? program + " is skipped"
                                                                             : "too few samples in this placement";
    return outcome;
  }
  outcome.ratio = *own / (*reference * what.reference_factor);
  const auto reaches = [&](double bound) { return is_time(what) ? outcome.ratio <= bound : outcome.ratio >= bound; };
  outcome.verdict = reaches(what.goal.of(placement)) ? Verdict::holds : Verdict::missed;
  outcome.aim_reached = outcome.verdict == Verdict::holds && reaches(what.aim.of(placement));
  return outcome;
}

Result<Comparison> compare(const ComparisonOptions& options) {
  Comparison comparison;
  comparison.rounds = options.rounds;
  for (std::size_t row = 0; row < compared_rows().size(); ++row) {
    const bool asked =
        options.rows.empty() || std::ranges::find(options.rows, compared_rows()[row].key) != options.rows.end();
    if (asked) comparison.rows.push_back(row);
  }
  // For the work between the samples, too: on a busy machine it would take longer than they do.
  const RaisedPriority priority(options.cores);
  comparison.realtime = priority.raised();
  if (!options.cores.apart()) {
    // Peers spin without giving way, so each message would take a time slice.
    comparison.unfit = "the two processes share the only core";
    return comparison;
  }
  comparison.unfit = unfit_to_judge(options.load, comparison.realtime);
  auto gauge = LineGauge::start(options.cores);
  if (!gauge) return tl::unexpected(gauge.error());
  Peers peers(options, comparison);
  for (std::size_t round = 0; round < options.rounds; ++round) {
    fmt::print(stderr, "round {} of {} beside the peers\n", round + 1, options.rounds);
    for (const std::size_t row : comparison.rows) {
      std::vector<std::size_t> contestants = compared_rows()[row].beside;
      contestants.insert(contestants.begin(), kSplitnic);
      for (const std::size_t contestant : contestants) {
        if (auto sampled = sample(options, comparison, peers, *gauge, row, contestant); !sampled) {
          return tl::unexpected(sampled.error());
        }
      }
    }
  }
  return comparison;
}

}  // namespace splitnic::bench
