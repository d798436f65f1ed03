#include "bench/nic/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <ranges>
#include <vector>

#include "bench/summary.h"
#include "common/os/printable.h"

namespace splitnic::bench {

namespace {

namespace json = boost::json;

constexpr const char* kAboutConditions =
    "plain: TSO, GSO and transmit checksum offload of both ends off, split driver and forwarder with libpcap; "
    "offloads: "
    "all on, split driver and forwarder with virtio-net headers and packet sockets; GRO of the LAN peer off";

const char* key_of(Placement placement) { return placement == Placement::apart ? "apart" : "sharing"; }

/// What the ratio of medians to another contender came to.
struct Verdict {
  std::string what;
  const char* against;
  const char* placement;  ///< null: measured over all placements
  double ratio;
  double least;

  [[nodiscard]] bool met() const { return ratio >= least; }
};

std::vector<Verdict> verdicts_of(const Report& report) {
  std::vector<Verdict> verdicts;
  for (const Goal& goal : goals()) {
    for (const Placement placement : kPlacements) {
      const auto ratio = report.samples.ratio(goal.metric, goal.condition, goal.against, placement);
      if (!ratio) continue;
      verdicts.push_back({fmt::format("{} ({})", facts_of(goal.metric).key, to_string(goal.condition)),
                          to_string(goal.against), key_of(placement), *ratio, goal.least});
    }
  }
  if (const auto& crowd = report.crowd) {
    verdicts.push_back({"four_hosts", "one host", nullptr, crowd->share_of_four(), kLeastShareOfFour});
    verdicts.push_back({fmt::format("requests_beside_{}_idle_hosts", crowd->idle_hosts), "alone", nullptr,
                        crowd->share_in_crowd(), kLeastShareInCrowd});
    verdicts.push_back({"idle_unit", "1% of a core", nullptr, kMostIdleUnit / crowd->idle_unit, 1});
  }
  return verdicts;
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
    return contender != Contender::testpmd || (report.has_testpmd && condition == Condition::plain);
  };
  auto contenders = kContenders | std::views::filter(measured);
  for (const Contender contender : contenders) text += fmt::format("  {:>24}", to_string(contender));
  text += "  to forwarder  to bridge\n";
  for (std::size_t index = 0; index < kMetrics; ++index) {
    const auto metric = static_cast<Metric>(index);
    const MetricFacts& facts = facts_of(metric);
    text += fmt::format("{:<32} {:>9}", facts.title, facts.unit);
    for (const Contender contender : contenders) {
      const auto values = values_of(report, contender, condition, metric, placement);
      text += fmt::format("  {:>24}", values.empty() ? "" : to_text(summary_of(values), facts.decimals));
    }
    const auto ratio = [&](Contender against, int width) {
      const auto found = report.samples.ratio(metric, condition, against, placement);
      return found ? fmt::format("  {:>{}.2f}", *found, width) : std::string(static_cast<std::size_t>(width) + 2, ' ');
    };
    text += ratio(Contender::forwarder, 12) + ratio(Contender::bridge, 9);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string crowd_text(const Crowd& crowd) {
  return fmt::format(
      "several hosts of one unit, offloads\n"
      "  TCP to the LAN, Gbit/s             one host {:.2f}, four together {:.2f}\n"
      "  TCP request/response, 1000/s       alone {:.2f}, beside {} idle hosts {:.2f}\n"
      "  the unit's processor time, all idle  {:.2f} % of a core\n",
      crowd.one_stream / 1e9, crowd.four_streams / 1e9, crowd.requests_alone / 1e3, crowd.idle_hosts,
      crowd.requests_in_crowd / 1e3, crowd.idle_unit * 100);
}

json::object to_json_object(const Report& report, Metric metric, Condition condition) {
  json::object result;
  for (const Contender contender : kContenders) {
    json::object by_placement;
    for (const Placement placement : kPlacements) {
      const auto values = values_of(report, contender, condition, metric, placement);
      if (!values.empty()) by_placement[key_of(placement)] = bench::to_json_object(values);
    }
    if (contender == Contender::testpmd && by_placement.empty()) continue;
    result[to_string(contender)] = std::move(by_placement);
  }
  return result;
}

json::object to_json_object(const Crowd& crowd) {
  return {{"idle_hosts", crowd.idle_hosts},
          {"one_stream_gbits", crowd.one_stream / 1e9},
          {"four_streams_gbits", crowd.four_streams / 1e9},
          {"requests_alone", crowd.requests_alone},
          {"requests_beside_idle_hosts", crowd.requests_in_crowd},
          {"idle_unit_percent", crowd.idle_unit * 100}};
}

}  // namespace

std::string to_text(const Report& report) {
  std::string text = fmt::format(
      "splitnic-bench nic: the split driver beside a forwarder in one process, the kernel's bridge and testpmd; median "
      "(min .. "
      "max)\n"
      "  machine     {}\n"
      "  versions    splitnic {}, forwarder {}\n"
      "  options     {} runs, in turn; {} s for each measurement\n"
      "  conditions  {}\n"
      "  ratios      1 is equal, more is better; of medians while the two cores are apart, or sharing a real "
      "one\n\n",
      to_text(report.machine), report.version, os::printable(report.forwarder), report.runs, report.seconds,
      kAboutConditions);
  for (const Placement placement : kPlacements) {
    if (!report.samples.any(placement)) continue;
    for (const Condition condition : kConditions) text += table_of(report, condition, placement) + '\n';
  }
  if (report.crowd) text += crowd_text(*report.crowd) + '\n';
  const auto verdicts = verdicts_of(report);
  text += fmt::format("{:<44} {:<14} {:<12} {:>6}  {:>8}\n", "goal", "against", "cores", "ratio", "at least");
  for (const Verdict& verdict : verdicts) {
    text += fmt::format("{:<44} {:<14} {:<12} {:>6.2f}  {:>8.2f}  {}\n", verdict.what, verdict.against,
                        verdict.placement == nullptr ? "" : verdict.placement, verdict.ratio, verdict.least,
                        verdict.met() ? "met" : "MISSED");
  }
  text += fmt::format("\ngoals met: {} of {}\n", std::ranges::count_if(verdicts, &Verdict::met), verdicts.size());
  if (report.samples.moved > 0) {
    text += fmt::format("discarded: {} measurements during which the cores moved\n", report.samples.moved);
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
  object["conditions"] = kAboutConditions;
  object["results"] = std::move(results);
  if (report.crowd) object["several_hosts"] = to_json_object(*report.crowd);
  object["moved"] = report.samples.moved;
  object["goals"] = std::move(judged);
  object["goals_met"] = std::ranges::count_if(verdicts, &Verdict::met);
  return json::serialize(object);
}

}  // namespace splitnic::bench
