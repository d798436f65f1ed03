#include "bench/fabric/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "bench/fabric/comparison_report.h"
#include "bench/summary.h"

namespace splitnic::bench {

namespace {

namespace json = boost::json;

constexpr double kMicro = 1e-6;
constexpr double kNano = 1e-9;
// What is measured beside a copy of 1 MiB.
constexpr std::uint32_t kBesideCopy = 64U << 10U;

/// One value of each run.
template <class ValueOf>
std::vector<double> values_of(const FabricReport& report, ValueOf&& value_of) {
  std::vector<double> values;
  for (const FabricRun& run : report.runs) values.push_back(value_of(run));
  return values;
}

template <class ValueOf>
Summary summary_of_runs(const FabricReport& report, ValueOf&& value_of) {
  return summary_of(values_of(report, std::forward<ValueOf>(value_of)));
}

template <class ValueOf>
json::object object_of(const FabricReport& report, ValueOf&& value_of) {
  return to_json_object(values_of(report, std::forward<ValueOf>(value_of)));
}

bool measures(const FabricReport& report, Quantity quantity) {
  return std::ranges::any_of(report.plan.measurements,
                             [&](const Measurement& what) { return what.quantity == quantity; });
}

const char* waiting(const FabricReport& report) { return report.options.sleep ? "sleep" : "spin"; }

/// How many times the yardstick that waits in the same way: a cache line looked at, or a socket slept on.
double against_yardstick(const FabricReport& report, std::size_t row) {
  return summary_of_runs(report,
                         [&](const FabricRun& run) {
                           return run.figures[row].median /
                                  (report.options.sleep ? run.yardsticks.socket : run.yardsticks.line);
                         })
      .median;
}

double share_of_copy(const FabricReport& report, std::size_t row) {
  return summary_of_runs(report,
                         [&](const FabricRun& run) {
                           return run.figures[row].per_second * report.plan.measurements[row].bytes /
                                  run.yardsticks.copy;
                         })
      .median;
}

double table_ratio(const FabricReport& report, std::size_t operation) {
  return summary_of_runs(report,
                         [&](const FabricRun& run) {
                           return run.tables.back().seconds[operation] / run.tables.front().seconds[operation];
                         })
      .median;
}

/// By how many reads of the yardstick the operation costs more in the largest table than in the smallest.
double growth_in_reads(const FabricReport& report, std::size_t operation) {
  return summary_of_runs(report,
                         [&](const FabricRun& run) {
                           const auto& smallest = run.tables.front().seconds;
                           const auto& largest = run.tables.back().seconds;
                           return (largest[operation] - smallest[operation]) /
                                  (largest[kBareRead] - smallest[kBareRead]);
                         })
      .median;
}

// ---- text

std::string head(const FabricReport& report) {
  return fmt::format(
      "splitnic-bench fabric: the verbs between two processes, over shared memory\n"
      "  machine     {}\n"
      "  version     splitnic {}\n"
      "  options     {}{} s for each measurement; ends {}; cells of {} bytes\n"
      "  conditions  {}; what arrives is compared byte by byte after each measurement\n\n",
      to_text(report.machine), report.version, report.runs.empty() ? "" : fmt::format("{} runs, ", report.runs.size()),
      report.seconds, report.options.sleep ? "sleep between messages" : "spin", report.options.cell_bytes,
      report.options.shares_core ? "both processes share the only core" : "each process on a core of its own");
}

std::string yardstick_text(const FabricReport& report) {
  const auto row = [&](const char* title, const char* unit, double per_unit, int decimals, auto value_of) {
    return fmt::format(
        "{:<46} {:>6}  {:>24}\n", title, unit,
        to_text(summary_of_runs(report, [&](const FabricRun& run) { return value_of(run.yardsticks) / per_unit; }),
                decimals));
  };
  return fmt::format("{:<46} {:>6}  {:>24}\n", "yardsticks: the machine without the fabric", "",
                     "median (min .. max)") +
         row("a cache line from core to core", "us", kMicro, 3, [](const Yardsticks& y) { return y.line; }) +
         row("8 bytes over a Unix socket, both asleep", "us", kMicro, 2, [](const Yardsticks& y) { return y.socket; }) +
         row("memcpy of 1 MiB into shared memory", "GB/s", 1e9, 2, [](const Yardsticks& y) { return y.copy; }) + '\n';
}

std::string latency_text(const FabricReport& report) {
  std::string text =
      fmt::format("{:<16} {:<10} {:>8}  {:>24}  {:>24}  {:>10}\n", "latency, us", "", "bytes", "median (min .. max)",
                  "99th percentile", report.options.sleep ? "x socket" : "x line");
  for (std::size_t row = 0; row < report.plan.measurements.size(); ++row) {
    const Measurement& what = report.plan.measurements[row];
    if (what.quantity != Quantity::latency) continue;
    const auto median = summary_of_runs(report, [&](const FabricRun& run) { return run.figures[row].median / kMicro; });
    const auto tail =
        summary_of_runs(report, [&](const FabricRun& run) { return run.figures[row].percentile_99 / kMicro; });
    text += fmt::format("{:<16} {:<10} {:>8}  {:>24}  {:>24}  {:>10.1f}\n", to_string(what.verb), to_string(what.path),
                        what.bytes, to_text(median, 2), to_text(tail, 2), against_yardstick(report, row));
  }
  return text +
         "  send, write and write-immediate: half the round trip of a ping-pong; a write's target polls its "
         "memory.\n"
         "  read and compare-swap: from post to completion, there and back.\n\n";
}

std::string rate_text(const FabricReport& report) {
  std::string text = fmt::format("{:<16} {:<10} {:>8}  {:>28}  {:>10}  {:>10}\n", "rate, thousand/s", "", "bytes",
                                 "median (min .. max)", "MB/s", "of memcpy");
  for (std::size_t row = 0; row < report.plan.measurements.size(); ++row) {
    const Measurement& what = report.plan.measurements[row];
    if (what.quantity != Quantity::rate) continue;
    const auto rate = summary_of_runs(report, [&](const FabricRun& run) { return run.figures[row].per_second / 1e3; });
    text += fmt::format("{:<16} {:<10} {:>8}  {:>28}  {:>10.1f}", to_string(what.verb), to_string(what.path),
                        what.bytes, to_text(rate, 1), rate.median * what.bytes / 1e3);
    if (what.bytes >= kBesideCopy) text += fmt::format("  {:>9.0f}%", 100 * share_of_copy(report, row));
    text += '\n';
  }
  return text + fmt::format("  As many under way as fit into 1 MiB, at least 2, at most {}.\n\n", kMostInFlight);
}

std::string table_text(const FabricReport& report) {
  std::string text = fmt::format("{:<46}", "protection table, ns by entries");
  for (const std::size_t entries : kTableSizes) text += fmt::format(" {:>9}", entries);
  text += fmt::format("  {:>17}\n", "largest/smallest");
  for (std::size_t operation = 0; operation < kTableOperations.size(); ++operation) {
    text += fmt::format("{:<46}", kTableOperations[operation].title);
    for (std::size_t size = 0; size < kTableSizes.size(); ++size) {
      text += fmt::format(" {:>9.1f}", summary_of_runs(report, [&](const FabricRun& run) {
                                         return run.tables[size].seconds[operation] / kNano;
                                       }).median);
    }
    const double ratio = table_ratio(report, operation);
    text += fmt::format("  {:>17.2f}", ratio);
    if (kTableOperations[operation].held_to_flat) {
      text += ratio <= kFlat ? "  flat" : "  NOT FLAT";
    } else if (operation != kBareRead) {
      text += fmt::format("  grows by {:.1f} reads", growth_in_reads(report, operation));
    }
    text += '\n';
  }
  return text +
         fmt::format(
             "  {:.0f} bytes an entry in the largest. The first three touch the same few entries: flat is within {}"
             " times.\n  The next three go anywhere in the table, which the cache holds or doesn't: see the "
             "yardstick.\n\n",
             report.runs.front().tables.back().bytes_per_entry, kFlat);
}

// ---- JSON

json::object row_object(const Measurement& what) {
  json::object object;
  object["operation"] = to_string(what.verb);
  object["path"] = to_string(what.path);
  object["bytes"] = what.bytes;
  return object;
}

json::array latency_array(const FabricReport& report) {
  json::array rows;
  for (std::size_t row = 0; row < report.plan.measurements.size(); ++row) {
    const Measurement& what = report.plan.measurements[row];
    if (what.quantity != Quantity::latency) continue;
    json::object object = row_object(what);
    object["half_round_trip"] = is_ping_pong(what);
    object["median_us"] = object_of(report, [&](const FabricRun& run) { return run.figures[row].median / kMicro; });
    object["percentile_99_us"] =
        object_of(report, [&](const FabricRun& run) { return run.figures[row].percentile_99 / kMicro; });
    object["times_yardstick"] = against_yardstick(report, row);
    rows.push_back(std::move(object));
  }
  return rows;
}

json::array rate_array(const FabricReport& report) {
  json::array rows;
  for (std::size_t row = 0; row < report.plan.measurements.size(); ++row) {
    const Measurement& what = report.plan.measurements[row];
    if (what.quantity != Quantity::rate) continue;
    json::object object = row_object(what);
    object["per_second"] = object_of(report, [&](const FabricRun& run) { return run.figures[row].per_second; });
    object["bytes_per_second"] =
        object_of(report, [&](const FabricRun& run) { return run.figures[row].per_second * what.bytes; });
    if (what.bytes >= kBesideCopy) object["share_of_memcpy"] = share_of_copy(report, row);
    rows.push_back(std::move(object));
  }
  return rows;
}

json::array table_array(const FabricReport& report) {
  json::array rows;
  for (std::size_t operation = 0; operation < kTableOperations.size(); ++operation) {
    json::object object;
    object["operation"] = kTableOperations[operation].key;
    json::array costs;
    for (std::size_t size = 0; size < kTableSizes.size(); ++size) {
      json::object cost;
      cost["entries"] = kTableSizes[size];
      cost["ns"] = object_of(report, [&](const FabricRun& run) { return run.tables[size].seconds[operation] / kNano; });
      costs.push_back(std::move(cost));
    }
    object["costs"] = std::move(costs);
    const double ratio = table_ratio(report, operation);
    object["largest_to_smallest"] = ratio;
    if (kTableOperations[operation].held_to_flat) object["flat"] = ratio <= kFlat;
    object["growth_in_bare_reads"] = growth_in_reads(report, operation);
    rows.push_back(std::move(object));
  }
  return rows;
}

json::object yardstick_object(const FabricReport& report) {
  json::object object;
  object["cache_line_us"] = object_of(report, [](const FabricRun& run) { return run.yardsticks.line / kMicro; });
  object["socket_us"] = object_of(report, [](const FabricRun& run) { return run.yardsticks.socket / kMicro; });
  object["memcpy_bytes_per_second"] = object_of(report, [](const FabricRun& run) { return run.yardsticks.copy; });
  return object;
}

}  // namespace

std::string to_text(const FabricReport& report) {
  std::string text = head(report);
  if (!report.plan.measurements.empty()) {
    text += yardstick_text(report);
    if (measures(report, Quantity::latency)) text += latency_text(report);
    if (measures(report, Quantity::rate)) text += rate_text(report);
  }
  if (report.plan.tables) text += table_text(report);
  if (report.comparison) text += to_text(*report.comparison);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

std::string to_json(const FabricReport& report) {
  json::object object;
  object["benchmark"] = "fabric";
  object["format"] = kReportFormat;
  object["version"] = report.version;
  object["machine"] = to_json_object(report.machine);
  object["runs"] = report.runs.size();
  object["seconds"] = report.seconds;
  object["waiting"] = waiting(report);
  object["cell_bytes"] = report.options.cell_bytes;
  object["cores_apart"] = !report.options.shares_core;
  if (!report.plan.measurements.empty()) {
    object["yardsticks"] = yardstick_object(report);
    object["latency"] = latency_array(report);
    object["rate"] = rate_array(report);
  }
  if (report.plan.tables) object["tables"] = table_array(report);
  if (report.comparison) object["comparison"] = to_json_object(*report.comparison);
  return json::serialize(object);
}

}  // namespace splitnic::bench
