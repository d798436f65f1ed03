// The picture of a comparison: a line per row and placement, on it a dot for splitnic and each peer. Right of the
// reference is better.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/fabric/comparison_report.h"

namespace splitnic::bench {

namespace {

constexpr double kWidth = 900;
constexpr double kLeft = 330;   // of the scale
constexpr double kRight = 880;  // its end
constexpr double kTop = 110;
constexpr double kRowHeight = 22;
constexpr double kDecades = 2;  // on either side of the reference
constexpr std::array<const char*, kContestants.size()> kColours{"#c4122f", "#444444", "#1f77b4", "#2ca02c",
                                                                "#17becf", "#9467bd", "#ff7f0e", "#8c564b"};

/// Where a value stands that is so many times as good as the reference.
double position_of(double times_as_good) {
  const double decades = std::clamp(std::log10(times_as_good), -kDecades, kDecades);
  return kLeft + (decades + kDecades) / (2 * kDecades) * (kRight - kLeft);
}

double times_as_good(const ComparedRow& row, double value, double reference) {
  return is_time(row) ? reference / value : value / reference;
}

std::string text_at(double x, double y, const std::string& text, const char* style = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, text);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char character : text) {
    if (character == '<') {
      out += "&lt;";
    } else if (character == '&') {
      out += "&amp;";
    } else {
      out += character;
    }
  }
  return out;
}

std::string row_picture(const Comparison& comparison, std::size_t index, Placement placement, double y) {
  const ComparedRow& row = compared_rows()[index];
  std::string svg = text_at(10, y + 4, escaped(row.title));
  svg +=
      fmt::format("<line x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>\n", kLeft, kRight, y);
  const auto reference = comparison.median(index, row.reference, placement);
  if (!reference) return svg + text_at(kLeft + 4, y - 3, "not measured", "fill=\"#888888\" font-size=\"10\"");
  const double goal = row.goal[static_cast<std::size_t>(placement)];
  svg += fmt::format(
      "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#000000\" "
      "stroke-width=\"2\"><title>goal {3:.2f}</title></line>\n",
      position_of(is_time(row) ? 1 / goal : goal), y - 7, y + 7, goal);
  for (std::size_t contestant = 0; contestant < kContestants.size(); ++contestant) {
    const auto median = comparison.median(index, contestant, placement);
    if (!median) continue;
    const double factor = contestant == kSplitnicReference ? row.reference_factor : 1;
    const double at = position_of(times_as_good(row, *median * factor, *reference * row.reference_factor));
    svg +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{}: {:.3f} {}</title></circle>\n",
                    at, y, contestant == kSplitnic ? 6 : 4, kColours[contestant], kContestants[contestant].title,
                    *median, to_string(row.unit));
  }
  return svg;
}

std::string legend() {
  std::string svg;
  double x = 10;
  for (std::size_t contestant = 0; contestant < kContestants.size(); ++contestant) {
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"58\" r=\"5\" fill=\"{}\"/>\n", x + 5, kColours[contestant]);
    svg += text_at(x + 14, 62, contestant == kSplitnicReference ? "splitnic itself" : kContestants[contestant].title);
    x += 110;
  }
  return svg;
}

std::string scale(double bottom) {
  std::string svg;
  for (const auto& [factor, title] : {std::pair{0.01, "1/100"}, std::pair{0.1, "1/10"}, std::pair{1.0, "reference"},
                                      std::pair{10.0, "10 times"}, std::pair{100.0, "100 times"}}) {
    const double x = position_of(factor);
    svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#bbbbbb\"/>\n", x,
                       kTop - 20, bottom);
    svg += text_at(x, kTop - 26, title, "text-anchor=\"middle\" font-size=\"10\"");
  }
  return svg;
}

}  // namespace

std::string to_svg(const Comparison& comparison, const std::string& subtitle) {
  std::string rows;
  double y = kTop;
  for (const Placement placement : kPlacements) {
    const auto line = comparison.line(placement);
    if (!line) continue;
    rows += text_at(10, y, fmt::format("{}: a cache line takes {:.3f} us", to_string(placement), *line * 1e6),
                    "font-weight=\"bold\"");
    y += kRowHeight;
    for (const std::size_t row : comparison.rows) {
      rows += row_picture(comparison, row, placement, y);
      y += kRowHeight;
    }
    y += kRowHeight / 2;
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, y + 10);
  svg += text_at(10, 22, "splitnic-bench fabric: how many times as good as the row's reference (black: the goal)",
                 "font-size=\"15\" font-weight=\"bold\"");
  svg += text_at(10, 40, escaped(subtitle), "fill=\"#666666\" font-size=\"10\"");
  return svg + legend() + scale(y) + rows + "</svg>\n";
}

}  // namespace splitnic::bench
