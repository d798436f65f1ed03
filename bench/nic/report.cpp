#include "bench/nic/report.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "bench/summary.h"
#include "common/os/printable.h"

namespace splitnic::bench {

namespace {

namespace json = boost::json;

constexpr const char* kConditions =
    "without offloads: TSO, GSO and transmit checksum offload of the LAN peer off, TAPs without offloads, the "
    "forwarder "
    "with libpcap; with offloads: all on, the forwarder between a TAP and a packet socket with virtio-net headers; GRO "
    "of the LAN peer off";

/// In the metric's unit.
std::vector<double> values_of(const std::vector<Run>& runs, std::size_t metric) {
  std::vector<double> values;
  for (const auto& run : runs) values.push_back(run[metric] / kMetrics[metric].per_unit);
  return values;
}

double goal_of(const Pair& pair, std::size_t metric) {
  return pair.offloads ? kMetrics[metric].offloads_goal : kMetrics[metric].goal;
}

bool goal_met(const Pair& pair, std::size_t metric) { return median_ratio(pair, metric) >= goal_of(pair, metric); }

/// How many goals there are, and how many are met.
std::pair<std::size_t, std::size_t> count_goals(const Report& report) {
  std::size_t goals = 0;
  std::size_t met = 0;
  for (const Pair* pair : {&report.plain, &report.offloads}) {
    for (std::size_t metric = 0; metric < kMetrics.size(); ++metric) {
      if (goal_of(*pair, metric) <= 0) continue;
      ++goals;
      if (goal_met(*pair, metric)) ++met;
    }
  }
  return {goals, met};
}

/// gain: with a column of what the offloads gain.
std::string table_of(const Report& report, const Pair& pair, bool gain) {
  std::string text =
      fmt::format("{:<26} {:>7}  {:>29}  {:>29}  {:>6}{}  {}\n", pair.offloads ? "with offloads" : "without offloads",
                  "", "split driver", "forwarder", "ratio", gain ? "  on/off" : "", "goal");
  for (std::size_t index = 0; index < kMetrics.size(); ++index) {
    const auto& metric = kMetrics[index];
    text += fmt::format("{:<26} {:>7}  {:>29}  {:>29}", metric.title, metric.unit,
                        to_text(summary_of(values_of(pair.split_runs, index)), metric.decimals),
                        to_text(summary_of(values_of(pair.forwarder_runs, index)), metric.decimals));
    if (metric.compared) text += fmt::format("  {:>6.2f}", median_ratio(pair, index));
    if (metric.compared && gain) text += fmt::format("  {:>6.2f}", gain_of_offloads(report, index));
    if (const double goal = goal_of(pair, index); goal > 0) {
      text += fmt::format("  {:.2f} {}", goal, goal_met(pair, index) ? "met" : "MISSED");
    }
    text += '\n';
  }
  return text;
}

json::object to_json_object(const Pair& pair, std::size_t metric) {
  json::object result;
  result["split"] = bench::to_json_object(values_of(pair.split_runs, metric));
  result["forwarder"] = bench::to_json_object(values_of(pair.forwarder_runs, metric));
  if (kMetrics[metric].compared) result["ratio"] = median_ratio(pair, metric);
  if (const double goal = goal_of(pair, metric); goal > 0) {
    result["goal"] = goal;
    result["met"] = goal_met(pair, metric);
  }
  return result;
}

}  // namespace

double median_ratio(const Pair& pair, std::size_t metric) {
  return ratio_of(kMetrics[metric], summary_of(values_of(pair.split_runs, metric)).median,
                  summary_of(values_of(pair.forwarder_runs, metric)).median);
}

double gain_of_offloads(const Report& report, std::size_t metric) {
  return ratio_of(kMetrics[metric], summary_of(values_of(report.offloads.split_runs, metric)).median,
                  summary_of(values_of(report.plain.split_runs, metric)).median);
}

std::string to_text(const Report& report) {
  std::string text = fmt::format(
      "splitnic-bench nic: the split driver beside a forwarder in one process; median (min .. max)\n"
      "  machine     {}\n"
      "  versions    splitnic {}, forwarder {}\n"
      "  options     {} alternating runs, {} s for each measurement\n"
      "  conditions  {}\n\n",
      to_text(report.machine), report.version, os::printable(report.forwarder), report.plain.split_runs.size(),
      report.seconds, kConditions);
  text += table_of(report, report.plain, false) + '\n' + table_of(report, report.offloads, true);
  const auto [goals, met] = count_goals(report);
  text += fmt::format("\ngoals met: {} of {}\n", met, goals);
  for (const auto& reason : report.repeated) text += fmt::format("repeated: {}\n", reason);
  return text;
}

std::string to_json(const Report& report) {
  json::array results;
  for (std::size_t index = 0; index < kMetrics.size(); ++index) {
    const auto& metric = kMetrics[index];
    json::object result;
    result["name"] = metric.key;
    result["unit"] = metric.unit;
    result["better"] = metric.less_is_better ? "less" : "more";
    result["plain"] = to_json_object(report.plain, index);
    result["offloads"] = to_json_object(report.offloads, index);
    if (metric.compared) result["gain"] = gain_of_offloads(report, index);
    results.push_back(std::move(result));
  }
  const auto [goals, met] = count_goals(report);
  json::object object;
  object["benchmark"] = "nic";
  object["format"] = kReportFormat;
  object["version"] = report.version;
  object["machine"] = bench::to_json_object(report.machine);
  object["runs"] = report.plain.split_runs.size();
  object["seconds"] = report.seconds;
  object["forwarder"] = os::printable(report.forwarder);
  object["conditions"] = kConditions;
  object["results"] = std::move(results);
  object["repeated"] = json::array(report.repeated.begin(), report.repeated.end());
  object["goals"] = goals;
  object["goals_met"] = met;
  return json::serialize(object);
}

}  // namespace splitnic::bench
