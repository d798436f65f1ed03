#include "bench/verbs/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "bench/summary.h"

namespace splitnic::bench {

namespace {

namespace json = boost::json;

constexpr const char* kOurs = "bench-peer-verbs";
constexpr const char* kUcx = "bench-peer-ucx";
constexpr const char* kShm = "bench-peer-libfabric";
constexpr Bounds kAsGood{1.0, 1.0};

const char* verdict_of(const VerbsTable& table, std::size_t row, const VerbsGoal& goal, Placement placement) {
  const auto ratio = table.ratio(row, goal, placement);
  if (!ratio) return "not measured";
  if (!table.unfit.empty()) return "not judged";
  return holds(verbs_rows()[row], goal, *ratio, placement) ? "holds" : "missed";
}

std::string row_text(const VerbsTable& table, std::size_t index, Placement placement) {
  const VerbsRow& row = verbs_rows()[index];
  std::string text = fmt::format("  {:<40} {:>4} ", row.title, to_string(row.unit));
  for (std::size_t i = 0; i < row.contestants.size(); ++i) {
    const auto median = table.median(index, i, placement);
    text += fmt::format("  {} {}", row.contestants[i].key, median ? fmt::format("{:.3f}", *median) : "-");
  }
  text += '\n';
  for (const VerbsGoal& goal : row.goals) {
    const auto ratio = table.ratio(index, goal, placement);
    text += fmt::format("      {:>6} of {}, {} {:.2f}: {}\n", ratio ? fmt::format("{:.3f}", *ratio) : "-", goal.against,
                        row.unit == Unit::microseconds ? "at most" : "at least", goal.bound.of(placement),
                        verdict_of(table, index, goal, placement));
  }
  return text;
}

json::object row_object(const VerbsTable& table, std::size_t index, Placement placement) {
  const VerbsRow& row = verbs_rows()[index];
  json::object medians;
  for (std::size_t i = 0; i < row.contestants.size(); ++i) {
    if (const auto median = table.median(index, i, placement)) medians[row.contestants[i].key] = *median;
  }
  json::array goals;
  for (const VerbsGoal& goal : row.goals) {
    json::object one;
    one["against"] = goal.against;
    one["bound"] = goal.bound.of(placement);
    if (const auto ratio = table.ratio(index, goal, placement)) one["ratio"] = *ratio;
    one["verdict"] = verdict_of(table, index, goal, placement);
    goals.push_back(std::move(one));
  }
  return {{"medians", std::move(medians)}, {"goals", std::move(goals)}};
}

}  // namespace

const std::vector<VerbsRow>& verbs_rows() {
  using enum Unit;
  constexpr std::uint32_t kSmall = 64;
  constexpr std::uint32_t kLarge = 64U << 10U;
  constexpr Bounds kOfPut{1.55, 1.55};
  constexpr Bounds kLayer{1.2, 1.2};
  static const std::vector<VerbsRow> rows{
      {"send_64",
       "64 B send, one way",
       microseconds,
       kSmall,
       {{"c_verbs", kOurs, "send", "latency"},
        {"cpp_verbs", "", "", "latency"},
        {"ucx_message", kUcx, "active-message", "latency"},
        {"libfabric", kShm, "send", "latency"}},
       {{"ucx_message", {1.05, 1.2}}, {"libfabric", kAsGood}, {"cpp_verbs", kLayer}}},
      {"write_64_shared",
       "64 B write to shared memory, one way",
       microseconds,
       kSmall,
       {{"c_verbs", kOurs, "write-shared", "latency"}, {"ucx_put", kUcx, "put", "latency"}},
       {{"ucx_put", kOfPut}}},
      {"write_64_process",
       "64 B write to private memory, process_vm",
       microseconds,
       kSmall,
       {{"c_verbs", kOurs, "write-process", "latency"}, {"libfabric", kShm, "send", "latency"}},
       {{"libfabric", kAsGood}}},
      {"write_64_private",
       "64 B write to private memory, by its owner",
       microseconds,
       kSmall,
       {{"c_verbs", kOurs, "write-private", "latency"}, {"libfabric", kShm, "send", "latency"}},
       {{"libfabric", kAsGood}}},
      {"send_64k",
       "64 KiB send",
       gigabytes_per_second,
       kLarge,
       {{"c_verbs", kOurs, "send", "rate"},
        {"cpp_verbs", "", "", "rate"},
        {"ucx_message", kUcx, "active-message", "rate"},
        {"libfabric", kShm, "send", "rate"}},
       {{"ucx_message", kAsGood}, {"libfabric", kAsGood}}},
      {"write_64k_shared",
       "64 KiB write to shared memory",
       gigabytes_per_second,
       kLarge,
       {{"c_verbs", kOurs, "write-shared", "one-sided"}, {"ucx_put", kUcx, "put", "one-sided"}},
       {{"ucx_put", kAsGood}}},
      {"write_64k_process",
       "64 KiB write to private memory, process_vm",
       gigabytes_per_second,
       kLarge,
       {{"c_verbs", kOurs, "write-process", "one-sided"}, {"libfabric", kShm, "send", "rate"}},
       {{"libfabric", kAsGood}}},
  };
  return rows;
}

std::vector<std::string> verbs_row_names() {
  std::vector<std::string> names;
  for (const VerbsRow& row : verbs_rows()) names.emplace_back(row.key);
  return names;
}

std::optional<double> VerbsTable::median(std::size_t row, std::size_t contestant, Placement placement) const {
  std::vector<double> values;
  for (const VerbsSample& sample : samples) {
    const bool wanted = sample.row == row && sample.contestant == contestant;
    if (wanted && placement_of(sample.line) == placement) values.push_back(sample.value);
  }
  return values.size() < kFewestSamples ? std::nullopt : std::optional(summary_of(std::move(values)).median);
}

std::optional<double> VerbsTable::ratio(std::size_t row, const VerbsGoal& goal, Placement placement) const {
  const auto& contestants = verbs_rows()[row].contestants;
  const auto other = std::ranges::find(contestants, std::string_view(goal.against), &VerbsContestant::key);
  const auto own = median(row, 0, placement);
  const auto against = median(row, static_cast<std::size_t>(other - contestants.begin()), placement);
  return own && against ? std::optional(*own / *against) : std::nullopt;
}

bool holds(const VerbsRow& row, const VerbsGoal& goal, double ratio, Placement placement) {
  const double bound = goal.bound.of(placement);
  return row.unit == Unit::microseconds ? ratio <= bound : ratio >= bound;
}

std::string to_text(const VerbsTable& table) {
  std::string text =
      fmt::format("splitnic {} C verbs: {} rounds, {} samples, {} discarded because the cores moved; {} priority\n{}\n",
                  table.version, table.rounds, table.samples.size(), table.moved,
                  table.realtime ? "real-time" : "normal", to_text(table.machine));
  for (const auto& peer : table.skipped) text += fmt::format("skipped: {}: {}\n", peer.program, peer.reason);
  if (!table.unfit.empty()) text += fmt::format("no goal is judged: {}\n", table.unfit);
  for (const Placement placement : kPlacements) {
    text += fmt::format("\n{}; medians\n", to_string(placement));
    for (const std::size_t row : table.rows) text += row_text(table, row, placement);
  }
  return text;
}

std::string to_json(const VerbsTable& table) {
  json::object object;
  object["version"] = table.version;
  object["machine"] = to_json_object(table.machine);
  object["rounds"] = table.rounds;
  object["samples"] = table.samples.size();
  object["moved"] = table.moved;
  object["realtime"] = table.realtime;
  if (!table.unfit.empty()) object["unfit"] = table.unfit;
  json::object skipped;
  for (const auto& peer : table.skipped) skipped[peer.program] = peer.reason;
  object["skipped"] = std::move(skipped);
  json::array rows;
  for (const std::size_t row : table.rows) {
    json::object one{{"name", verbs_rows()[row].key}, {"unit", to_string(verbs_rows()[row].unit)}};
    for (const Placement placement : kPlacements) one[key_of(placement)] = row_object(table, row, placement);
    rows.push_back(std::move(one));
  }
  object["rows"] = std::move(rows);
  return json::serialize(object);
}

}  // namespace splitnic::bench
