#include "bench/fabric/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <utility>

#include "bench/summary.h"

namespace splitnic::bench {

namespace {

namespace json = boost::json;

/// In JSON.
const char* key_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds:
      return "holds";
    case Verdict::missed:
      return "missed";
    case Verdict::not_measured:
      break;
  }
  return "not_measured";
}

bool takes_part(const ComparedRow& row, std::size_t contestant) {
  return contestant == kSplitnic || std::ranges::find(row.beside, contestant) != row.beside.end();
}

std::string reference_title(const ComparedRow& row) {
  return row.reference == kSplitnicReference ? row.reference_title : kContestants[row.reference].title;
}

std::string peers_text(const Comparison& comparison) {
  std::string text;
  for (const auto& peer : comparison.skipped) text += fmt::format("skipped: {}: {}\n", peer.program, peer.reason);
  return text;
}

bool has_medians(const Comparison& comparison, Placement placement) {
  return std::ranges::any_of(comparison.rows, [&](std::size_t row) {
    for (std::size_t contestant = 0; contestant < kContestants.size(); ++contestant) {
      if (comparison.median(row, contestant, placement)) return true;
    }
    return false;
  });
}

std::string medians_text(const Comparison& comparison, Placement placement) {
  const auto line = comparison.line(placement);
  if (!line || !has_medians(comparison, placement)) return {};
  std::string text = fmt::format("{}, a cache line takes {:.3f} us one way; medians\n{:<46} {:>5}",
                                 to_string(placement), *line * 1e6, "", "");
  for (const auto& contestant : kContestants) text += fmt::format(" {:>11}", contestant.title);
  text += '\n';
  for (const std::size_t row : comparison.rows) {
    const ComparedRow& what = compared_rows()[row];
    text += fmt::format("{:<46} {:>5}", what.title, to_string(what.unit));
    for (std::size_t contestant = 0; contestant < kContestants.size(); ++contestant) {
      const auto median = comparison.median(row, contestant, placement);
      if (median) {
        text += fmt::format(" {:>11.3f}", *median);
      } else {
        text += fmt::format(" {:>11}", takes_part(what, contestant) ? "-" : "");
      }
    }
    text += '\n';
  }
  return text + '\n';
}

/// Enough digits that a ratio beside its bound never looks like the bound.
std::string ratio_text(double ratio, double bound) {
  for (int decimals = 2; decimals < 6; ++decimals) {
    auto text = fmt::format("{:.{}f}", ratio, decimals);
    if (text != fmt::format("{:.{}f}", bound, decimals) || ratio == bound) return text;
  }
  return fmt::format("{}", ratio);
}

std::string goal_line(const Comparison& comparison, std::size_t row, Placement placement) {
  const ComparedRow& what = compared_rows()[row];
  const Outcome outcome = outcome_of(comparison, row, placement);
  const double goal = what.goal.of(placement);
  const double aim = what.aim.of(placement);
  const auto bound = fmt::format("{} {:.2f}", is_time(what) ? "at most" : "at least", goal);
  std::string text =
      fmt::format("{:<46} {:<26} {:>8}  {:<13} {:>5.2f}  ", what.title, "of " + reference_title(what),
                  outcome.verdict == Verdict::not_measured ? "-" : ratio_text(outcome.ratio, goal), bound, aim);
  if (outcome.verdict == Verdict::not_measured) return text + "not measured: " + outcome.reason + '\n';
  if (outcome.verdict == Verdict::missed) return text + "MISSED\n";
  return text + (outcome.aim_reached ? "holds, aim reached\n" : "holds\n");
}

struct Tally {
  std::size_t holds = 0;
  std::size_t missed = 0;
  std::size_t not_measured = 0;
};

Tally tally_of(const Comparison& comparison) {
  Tally tally;
  for (const Placement placement : kPlacements) {
    for (const std::size_t row : comparison.rows) {
      const Verdict verdict = outcome_of(comparison, row, placement).verdict;
      ++(verdict == Verdict::holds ? tally.holds : verdict == Verdict::missed ? tally.missed : tally.not_measured);
    }
  }
  return tally;
}

std::string goals_text(const Comparison& comparison) {
  std::string text;
  for (const Placement placement : kPlacements) {
    text += fmt::format("goals, {}\n", to_string(placement));
    if (!has_medians(comparison, placement)) {
      text += fmt::format("not measured: {}\n\n", comparison.line(placement)
                                                      ? "too few samples in this placement"
                                                      : "the cores never had this placement during the run");
      continue;
    }
    text += fmt::format("{:<46} {:<26} {:>8}  {:<13} {:>5}\n", "", "against", "ratio", "goal", "aim");
    for (const std::size_t row : comparison.rows) text += goal_line(comparison, row, placement);
    text += '\n';
  }
  const Tally tally = tally_of(comparison);
  return text + fmt::format("goals: {} hold, {} are missed, {} are not measured\n", tally.holds, tally.missed,
                            tally.not_measured);
}

json::object placement_object(const Comparison& comparison, std::size_t row, Placement placement) {
  const ComparedRow& what = compared_rows()[row];
  json::object object;
  json::object medians;
  json::object counts;
  for (std::size_t contestant = 0; contestant < kContestants.size(); ++contestant) {
    if (!takes_part(what, contestant)) continue;
    const auto median = comparison.median(row, contestant, placement);
    if (median) medians[kContestants[contestant].key] = *median;
    counts[kContestants[contestant].key] = comparison.count(row, contestant, placement);
  }
  const Outcome outcome = outcome_of(comparison, row, placement);
  object["medians"] = std::move(medians);
  object["samples"] = std::move(counts);
  object["goal"] = what.goal.of(placement);
  object["aim"] = what.aim.of(placement);
  object["verdict"] = key_of(outcome.verdict);
  if (outcome.verdict == Verdict::not_measured) {
    object["reason"] = outcome.reason;
  } else {
    object["ratio"] = outcome.ratio;
    object["aim_reached"] = outcome.aim_reached;
  }
  return object;
}

}  // namespace

std::string to_text(const Comparison& comparison) {
  std::string text = fmt::format(
      "splitnic beside its peers: {} rounds, {} samples, {} discarded because the cores moved meanwhile; {} priority\n",
      comparison.rounds, comparison.samples.size(), comparison.moved, comparison.realtime ? "real-time" : "normal");
  text += peers_text(comparison);
  if (!comparison.unfit.empty()) text += fmt::format("no goal is judged: {}\n", comparison.unfit);
  text += '\n';
  for (const Placement placement : kPlacements) text += medians_text(comparison, placement);
  return text + goals_text(comparison) + '\n';
}

json::object to_json_object(const Comparison& comparison) {
  json::object object;
  object["rounds"] = comparison.rounds;
  object["samples"] = comparison.samples.size();
  object["moved"] = comparison.moved;
  object["realtime"] = comparison.realtime;
  if (!comparison.unfit.empty()) object["unfit"] = comparison.unfit;
  json::array skipped;
  for (const auto& peer : comparison.skipped) skipped.push_back({{"program", peer.program}, {"reason", peer.reason}});
  object["skipped"] = std::move(skipped);
  json::object lines;
  for (const Placement placement : kPlacements) {
    if (const auto line = comparison.line(placement)) lines[key_of(placement)] = *line * 1e6;
  }
  object["cache_line_us"] = std::move(lines);
  json::array rows;
  for (const std::size_t row : comparison.rows) {
    const ComparedRow& what = compared_rows()[row];
    json::object entry;
    entry["name"] = what.key;
    entry["title"] = what.title;
    entry["unit"] = to_string(what.unit);
    entry["reference"] = kContestants[what.reference].key;
    entry["reference_factor"] = what.reference_factor;
    entry["bound"] = is_time(what) ? "at_most" : "at_least";
    for (const Placement placement : kPlacements)
      entry[key_of(placement)] = placement_object(comparison, row, placement);
    rows.push_back(std::move(entry));
  }
  object["rows"] = std::move(rows);
  const Tally tally = tally_of(comparison);
  object["goals"] = {{"hold", tally.holds}, {"missed", tally.missed}, {"not_measured", tally.not_measured}};
  return object;
}

}  // namespace splitnic::bench
