#include "bench/nic/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <optional>
#include <ranges>
#include <vector>

#include "bench/summary.h"
#include "common/os/printable.h"

namespace splitnic::bench::nic {

namespace {

namespace json = boost::json;

constexpr double kLeastIdleUnit = 1e-5;  // a share of a core

constexpr const char* kAboutConditions =
    "plain: TSO, GSO and transmit checksum offload of both ends off, split driver and forwarder with libpcap; "
    "offloads: "
    "all on, split driver, forwarder and small split with virtio-net headers and packet sockets; GRO of the LAN peer "
    "off";

/// What the ratio of medians to another contender came to.
struct Verdict {
  std::string what;
  const char* against;
  const char* placement;  ///< null: measured over all placements
  double ratio;
  double least;
  std::optional<double> aim{};

  [[nodiscard]] bool met() const { return ratio >= least; }
  [[nodiscard]] bool reached_aim() const { return aim && ratio >= *aim; }
};

void add_verdicts(const Crowd& crowd, std::vector<Verdict>& verdicts) {
  const auto judge = [&](const CrowdGoal& goal, const std::string& what, const char* against) {
    for (const Placement placement : kPlacements) {
      const auto ratio = crowd.ratio(goal.metric, goal.against, placement);
      if (ratio) verdicts.push_back({what, against, key_of(placement), *ratio, goal.least, goal.aim});
    }
  };
  judge(kFourHosts, "four_hosts", "one host");
  judge(kBesideIdleHosts, fmt::format("requests_beside_{}_idle_hosts", crowd.idle_hosts), "alone");
  // No time at all is too little to be measured.
  const double idle_ratio = kMostIdleUnit / std::max(crowd.idle_unit, kLeastIdleUnit);
  verdicts.push_back({"idle_unit", "1% of a core", nullptr, idle_ratio, 1});
}

std::vector<Verdict> verdicts_of(const Report& report) {
  std::vector<Verdict> verdicts;
  for (const Goal& goal : goals()) {
    for (const Placement placement : kPlacements) {
      const auto ratio = report.samples.ratio(goal.metric, goal.condition, goal.against, placement);
      if (!ratio) continue;
      verdicts.push_back({fmt::format("{} ({})", facts_of(goal.metric).key, to_string(goal.condition)),
                          to_string(goal.against), key_of(placement), *ratio, goal.least, goal.aim});
    }
  }
  if (report.crowd) add_verdicts(*report.crowd, verdicts);
  return verdicts;
}

std::string to_text(const std::vector<Verdict>& verdicts) {
  std::string text = fmt::format("{:<44} {:<14} {:<10} {:>8} {:>5} {:>9}  holds\n", "goal", "against", "cores",
                                 "at least", "aim", "measured");
  for (const Verdict& verdict : verdicts) {
    text += fmt::format("{:<44} {:<14} {:<10} {:>8.2f} {:>5} {:>9.2f}  {}\n", verdict.what, verdict.against,
                        verdict.placement == nullptr ? "" : verdict.placement, verdict.least,
                        verdict.aim ? fmt::format("{:.2f}", *verdict.aim) : "", verdict.ratio,
                        !verdict.met()          ? "NO"
                        : verdict.reached_aim() ? "yes, and the aim"
                                                : "yes");
  }
  return text + fmt::format("\ngoals that hold: {} of {}; aims: {} of {}\n",
                            std::ranges::count_if(verdicts, &Verdict::met), verdicts.size(),
                            std::ranges::count_if(verdicts, &Verdict::reached_aim),
                            std::ranges::count_if(verdicts, [](const Verdict& one) { return one.aim.has_value(); }));
}

/// In the metric's unit.
std::vector<double> values_of(const Report& report, Contender contender, Condition condition, Metric metric,
                              Placement placement) {
  auto values = report.samples.values(contender, condition, metric, placement);
  for (double& value : values) value /= facts_of(metric).per_unit;
  return values;
}

std::string table_of(const Report& report, Condition condition, Placement placement) {
  std::string text = fmt::format("{:<32} {:>9}", fmt::format("{}, {}", to_string(condition), key_of(placement)), "");
  const auto measured = [&](Contender contender) {
    return takes_part(contender, condition) && (contender != Contender::testpmd || report.has_testpmd);
  };
  auto contenders = kContenders | std::views::filter(measured);
  for (const Contender contender : contenders) text += fmt::format("  {:>24}", to_string(contender));
  const std::array<Contender, 3> references{Contender::forwarder, Contender::small_split, Contender::bridge};
  auto compared = references | std::views::filter(measured);
  for (const Contender reference : compared)
    text += fmt::format("  {:>14}", fmt::format("to {}", to_string(reference)));
  text += '\n';
  for (std::size_t index = 0; index < kMetrics; ++index) {
    const auto metric = static_cast<Metric>(index);
    const MetricFacts& facts = facts_of(metric);
    text += fmt::format("{:<32} {:>9}", facts.title, facts.unit);
    for (const Contender contender : contenders) {
      const auto values = values_of(report, contender, condition, metric, placement);
      text += fmt::format("  {:>24}", values.empty() ? "" : to_text(summary_of(values), facts.decimals));
    }
    for (const Contender reference : compared) {
      const auto ratio = report.samples.ratio(metric, condition, reference, placement);
      text += fmt::format("  {:>14}", ratio ? fmt::format("{:.2f}", *ratio) : "");
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

struct CrowdFacts {
  const char* key;  ///< in JSON
  const char* title;
  double per_unit;  ///< of the value measured
  int decimals;
};
constexpr std::array<CrowdFacts, kCrowdMetrics> kCrowdFacts{{
    {"one_stream_gbits", "TCP to the LAN, one host, Gbit/s", 1e9, 2},
    {"four_streams_gbits", "TCP to the LAN, four together, Gbit/s", 1e9, 2},
    {"requests_alone", "TCP request/response, alone, 1/s", 1, 0},
    {"requests_beside_idle_hosts", "TCP request/response, beside idle hosts, 1/s", 1, 0},
}};

std::vector<double> values_of(const Crowd& crowd, std::size_t metric, Placement placement) {
  auto values = crowd.values(static_cast<CrowdMetric>(metric), placement);
  for (double& value : values) value /= kCrowdFacts[metric].per_unit;
  return values;
}

std::string to_text(const Crowd& crowd) {
  std::string text =
      fmt::format("{:<46}", fmt::format("several hosts of one unit, {} idle; offloads", crowd.idle_hosts));
  for (const Placement placement : kPlacements) text += fmt::format("  {:>24}", key_of(placement));
  text += '\n';
  for (std::size_t metric = 0; metric < kCrowdMetrics; ++metric) {
    text += fmt::format("{:<46}", kCrowdFacts[metric].title);
    for (const Placement placement : kPlacements) {
      const auto values = values_of(crowd, metric, placement);
      text += fmt::format("  {:>24}", values.empty() ? "" : to_text(summary_of(values), kCrowdFacts[metric].decimals));
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text + fmt::format("the unit's processor time, all hosts idle: {:.2f} % of a core\n", crowd.idle_unit * 100);
}

json::object to_json_object(const Report& report, Metric metric, Condition condition) {
  json::object result;
  for (const Contender contender : kContenders) {
    json::object by_placement;
    for (const Placement placement : kPlacements) {
      const auto values = values_of(report, contender, condition, metric, placement);
      if (!values.empty()) by_placement[key_of(placement)] = bench::to_json_object(values);
    }
    if (by_placement.empty() && (contender == Contender::testpmd || !takes_part(contender, condition))) continue;
    result[to_string(contender)] = std::move(by_placement);
  }
  return result;
}

json::object to_json_object(const Crowd& crowd) {
  json::object result{{"idle_hosts", crowd.idle_hosts}, {"idle_unit_percent", crowd.idle_unit * 100}};
  for (std::size_t metric = 0; metric < kCrowdMetrics; ++metric) {
    json::object by_placement;
    for (const Placement placement : kPlacements) {
      const auto values = values_of(crowd, metric, placement);
      if (!values.empty()) by_placement[key_of(placement)] = bench::to_json_object(values);
    }
    result[kCrowdFacts[metric].key] = std::move(by_placement);
  }
  return result;
}

std::size_t moved_of(const Report& report) { return report.samples.moved + (report.crowd ? report.crowd->moved : 0); }

}  // namespace

std::string to_text(const Report& report) {
  std::string text = fmt::format(
      "splitnic-bench nic: the split driver beside a forwarder in one process, a split of 60 lines, the kernel's "
      "bridge and testpmd; median (min .. max)\n"
      "  machine     {}\n"
      "  versions    splitnic {}, forwarder {}, small_split {}\n"
      "  options     {} runs, in turn; {} s for each measurement\n"
      "  conditions  {}\n"
      "  ratios      1 is equal, more is better; of medians within one placement of the two cores: apart, with a "
      "common cache, or sharing a real one\n\n",
      to_text(report.machine), report.version, os::printable(report.forwarder), os::printable(report.small_split),
      report.runs, report.seconds, kAboutConditions);
  for (const Placement placement : kPlacements) {
    if (!report.samples.any(placement)) continue;
    for (const Condition condition : kConditions) text += table_of(report, condition, placement) + '\n';
  }
  if (report.crowd) text += to_text(*report.crowd) + '\n';
  text += to_text(verdicts_of(report));
  if (const std::size_t moved = moved_of(report); moved > 0) {
    text += fmt::format("discarded: {} measurements during which the cores moved\n", moved);
  }
  return text;
}

std::string to_json(const Report& report) {
  json::array results;
  for (std::size_t index = 0; index < kMetrics; ++index) {
    const auto metric = static_cast<Metric>(index);
    const MetricFacts& facts = facts_of(metric);
    json::object result;
    result["name"] = facts.key;
    result["unit"] = facts.unit;
    result["better"] = facts.less_is_better ? "less" : "more";
    for (const Condition condition : kConditions) {
      result[to_string(condition)] = to_json_object(report, metric, condition);
    }
    results.push_back(std::move(result));
  }
  json::array judged;
  const auto verdicts = verdicts_of(report);
  for (const Verdict& verdict : verdicts) {
    json::object goal{{"goal", verdict.what},
                      {"against", verdict.against},
                      {"ratio", verdict.ratio},
                      {"at_least", verdict.least},
                      {"met", verdict.met()}};
    if (verdict.aim) goal["aim"] = *verdict.aim;
    if (verdict.placement != nullptr) goal["cores"] = verdict.placement;
    judged.push_back(std::move(goal));
  }
  json::object object;
  object["benchmark"] = "nic";
  object["format"] = kReportFormat;
  object["version"] = report.version;
  object["machine"] = bench::to_json_object(report.machine);
  object["runs"] = report.runs;
  object["seconds"] = report.seconds;
  object["forwarder"] = os::printable(report.forwarder);
  object["small_split"] = os::printable(report.small_split);
  object["conditions"] = kAboutConditions;
  object["results"] = std::move(results);
  if (report.crowd) object["several_hosts"] = to_json_object(*report.crowd);
  object["moved"] = moved_of(report);
  object["goals"] = std::move(judged);
  object["goals_met"] = std::ranges::count_if(verdicts, &Verdict::met);
  return json::serialize(object);
}

}  // namespace splitnic::bench::nic
