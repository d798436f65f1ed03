// The picture of a report: all contenders beside the kernel's bridge.
#include <fmt/format.h>

#include <array>

#include "bench/nic/report.h"
#include "bench/picture.h"

namespace splitnic::bench::nic {

namespace {

constexpr double kDecades = 1;
constexpr Contender kReference = Contender::bridge;
constexpr std::array<const char*, kContenders.size()> kColours{"#c4122f", "#1f77b4", "#2ca02c", "#444444", "#ff7f0e"};

void draw_row(Picture& picture, const Samples& samples, Metric metric, Condition condition, Placement placement) {
  const MetricFacts& facts = facts_of(metric);
  picture.row(facts.title);
  const auto reference = samples.median(kReference, condition, metric, placement);
  if (!reference || *reference <= 0) return picture.not_measured();
  for (const Goal& goal : goals()) {
    const auto against = samples.median(goal.against, condition, metric, placement);
    if (goal.metric != metric || goal.condition != condition || !against || *against <= 0) continue;
    const double against_reference = facts.less_is_better ? *reference / *against : *against / *reference;
    picture.goal(goal.least * against_reference, fmt::format("goal {:.2f} of {}", goal.least, to_string(goal.against)));
  }
  for (std::size_t index = 0; index < kContenders.size(); ++index) {
    const auto median = samples.median(kContenders[index], condition, metric, placement);
    if (!median || *median <= 0) continue;
    picture.dot(index, facts.less_is_better ? *reference / *median : *median / *reference,
                fmt::format("{}: {:.{}f} {}", to_string(kContenders[index]), *median / facts.per_unit, facts.decimals,
                            facts.unit),
                kContenders[index] == Contender::split);
  }
}

}  // namespace

std::string to_svg(const Report& report) {
  std::vector<Picture::Contestant> contestants;
  for (std::size_t index = 0; index < kContenders.size(); ++index) {
    contestants.push_back({to_string(kContenders[index]), kColours[index]});
  }
  Picture picture("splitnic-bench nic: how many times as good as the kernel's bridge (black: the goals)",
                  to_text(report.machine), std::move(contestants), kDecades);
  for (const Placement placement : kPlacements) {
    if (!report.samples.any(placement)) continue;
    for (const Condition condition : kConditions) {
      picture.heading(fmt::format("{}, {}", to_string(condition), to_string(placement)));
      for (std::size_t index = 0; index < kMetrics; ++index) {
        const auto metric = static_cast<Metric>(index);
        if (facts_of(metric).compared) draw_row(picture, report.samples, metric, condition, placement);
      }
    }
  }
  return picture.finish();
}

}  // namespace splitnic::bench::nic
