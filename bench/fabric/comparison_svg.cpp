// The picture of a comparison with peers.
#include <fmt/format.h>

#include <array>

#include "bench/fabric/comparison_report.h"
#include "bench/picture.h"

namespace splitnic::bench {

namespace {

constexpr double kDecades = 2;
constexpr std::array<const char*, kContestants.size()> kColours{"#c4122f", "#444444", "#1f77b4", "#2ca02c",
                                                                "#17becf", "#9467bd", "#ff7f0e", "#8c564b"};

std::vector<Picture::Contestant> contestants() {
  std::vector<Picture::Contestant> all;
  for (std::size_t contestant = 0; contestant < kContestants.size(); ++contestant) {
    const char* title = contestant == kSplitnicReference ? "splitnic itself" : kContestants[contestant].title;
    all.push_back({title, kColours[contestant]});
  }
  return all;
}

double times_as_good(const ComparedRow& row, double value, double reference) {
  return is_time(row) ? reference / value : value / reference;
}

void draw_row(Picture& picture, const Comparison& comparison, std::size_t index, Placement placement) {
  const ComparedRow& row = compared_rows()[index];
  picture.row(row.title);
  const auto reference = comparison.median(index, row.reference, placement);
  if (!reference) return picture.not_measured();
  const double goal = row.goal.of(placement);
  picture.goal(is_time(row) ? 1 / goal : goal, fmt::format("goal {:.2f}", goal));
  for (std::size_t contestant = 0; contestant < kContestants.size(); ++contestant) {
    const auto median = comparison.median(index, contestant, placement);
    if (!median) continue;
    const double factor = contestant == kSplitnicReference ? row.reference_factor : 1;
    picture.dot(contestant, times_as_good(row, *median * factor, *reference * row.reference_factor),
                fmt::format("{}: {:.3f} {}", kContestants[contestant].title, *median, to_string(row.unit)),
                contestant == kSplitnic);
  }
}

}  // namespace

std::string to_svg(const Comparison& comparison, const std::string& subtitle) {
  Picture picture("splitnic-bench fabric: how many times as good as the row's reference (black: the goal)", subtitle,
                  contestants(), kDecades);
  for (const Placement placement : kPlacements) {
    const auto line = comparison.line(placement);
    if (!line) continue;
    picture.heading(fmt::format("{}: a cache line takes {:.3f} us", to_string(placement), *line * 1e6));
    for (const std::size_t row : comparison.rows) draw_row(picture, comparison, row, placement);
  }
  return picture.finish();
}

}  // namespace splitnic::bench
