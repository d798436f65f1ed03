#include "bench/nic/report.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "bench/summary.h"
#include "common/os/printable.h"

namespace splitnic::bench {

namespace {

namespace json = boost::json;

constexpr const char* kConditions =
    "TSO, GSO, GRO and transmit checksum offload of the LAN peer off, TAPs without offloads, for both";

/// In the metric's unit.
std::vector<double> values_of(const std::vector<Run>& runs, std::size_t metric) {
  std::vector<double> values;
  for (const auto& run : runs) values.push_back(run[metric] / kMetrics[metric].per_unit);
  return values;
}

/// How many goals there are, and how many are met.
std::pair<std::size_t, std::size_t> count_goals(const Report& report) {
  std::size_t goals = 0;
  std::size_t met = 0;
  for (std::size_t metric = 0; metric < kMetrics.size(); ++metric) {
    if (kMetrics[metric].goal <= 0) continue;
    ++goals;
    if (goal_met(report, metric)) ++met;
  }
  return {goals, met};
}

}  // namespace

double median_ratio(const Report& report, std::size_t metric) {
  return ratio_of(kMetrics[metric], summary_of(values_of(report.split_runs, metric)).median,
                  summary_of(values_of(report.forwarder_runs, metric)).median);
}

bool goal_met(const Report& report, std::size_t metric) {
  return median_ratio(report, metric) >= kMetrics[metric].goal;
}

std::string to_text(const Report& report) {
  std::string text = fmt::format(
      "splitnic-bench nic: the split driver beside a one-process TAP-to-libpcap forwarder\n"
      "  machine     {}\n"
      "  versions    splitnic {}, forwarder {}\n"
      "  options     {} alternating runs, {} s for each measurement\n"
      "  conditions  {}\n\n",
      to_text(report.machine), report.version, os::printable(report.forwarder), report.split_runs.size(),
      report.seconds, kConditions);
  text += fmt::format("{:<26} {:>7}  {:>29}  {:>29}  {:>6}  {}\n", "median (min .. max)", "", "split driver",
                      "forwarder", "ratio", "goal");
  for (std::size_t index = 0; index < kMetrics.size(); ++index) {
    const auto& metric = kMetrics[index];
    text += fmt::format("{:<26} {:>7}  {:>29}  {:>29}", metric.title, metric.unit,
                        to_text(summary_of(values_of(report.split_runs, index)), metric.decimals),
                        to_text(summary_of(values_of(report.forwarder_runs, index)), metric.decimals));
    if (metric.compared) text += fmt::format("  {:>6.2f}", median_ratio(report, index));
    if (metric.goal > 0) text += fmt::format("  {:.2f} {}", metric.goal, goal_met(report, index) ? "met" : "MISSED");
    text += '\n';
  }
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
    result["split"] = to_json_object(values_of(report.split_runs, index));
    result["forwarder"] = to_json_object(values_of(report.forwarder_runs, index));
    if (metric.compared) result["ratio"] = median_ratio(report, index);
    if (metric.goal > 0) {
      result["goal"] = metric.goal;
      result["met"] = goal_met(report, index);
    }
    results.push_back(std::move(result));
  }
  const auto [goals, met] = count_goals(report);
  json::object object;
  object["benchmark"] = "nic";
  object["format"] = kReportFormat;
  object["version"] = report.version;
  object["machine"] = to_json_object(report.machine);
  object["runs"] = report.split_runs.size();
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
