#include "bench/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <cmath>

namespace splitnic::bench {

namespace {

constexpr double kWidth = 900;
constexpr double kLeft = 330;   // of the scale
constexpr double kRight = 880;  // its end
constexpr double kTop = 110;
constexpr double kRowHeight = 22;
constexpr double kContestantWidth = 110;

std::string escaped(const std::string& text) {
  return boost::replace_all_copy(boost::replace_all_copy(text, "&", "&amp;"), "<", "&lt;");
}

std::string text_at(double x, double y, const std::string& text, const char* style = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, escaped(text));
}

}  // namespace

Picture::Picture(std::string title, std::string subtitle, std::vector<Contestant> contestants, double decades)
    : title_(std::move(title)),
      subtitle_(std::move(subtitle)),
      contestants_(std::move(contestants)),
      decades_(decades),
      below_(kTop) {}

double Picture::position_of(double times_as_good) const {
  const double decades = std::clamp(std::log10(times_as_good), -decades_, decades_);
  return kLeft + (decades + decades_) / (2 * decades_) * (kRight - kLeft);
}

void Picture::heading(const std::string& text) {
  if (!rows_.empty()) below_ += kRowHeight / 2;
  rows_ += text_at(10, below_, text, "font-weight=\"bold\"");
  below_ += kRowHeight;
}

void Picture::row(const std::string& title) {
  row_ = below_;
  below_ += kRowHeight;
  rows_ += text_at(10, row_ + 4, title);
  rows_ += fmt::format("<line x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>\n", kLeft,
                       kRight, row_);
}

void Picture::not_measured() {
  rows_ += text_at(kLeft + 4, row_ - 3, "not measured", "fill=\"#888888\" font-size=\"10\"");
}

void Picture::goal(double times_as_good, const std::string& about) {
  rows_ += fmt::format(
      "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#000000\" "
      "stroke-width=\"2\"><title>{3}</title></line>\n",
      position_of(times_as_good), row_ - 7, row_ + 7, escaped(about));
}

void Picture::dot(std::size_t contestant, double times_as_good, const std::string& about, bool large) {
  rows_ +=
      fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{}</title></circle>\n",
                  position_of(times_as_good), row_, large ? 6 : 4, contestants_[contestant].colour, escaped(about));
}

std::string Picture::legend() const {
  std::string svg;
  double x = 10;
  for (const Contestant& contestant : contestants_) {
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"58\" r=\"5\" fill=\"{}\"/>\n", x + 5, contestant.colour);
    svg += text_at(x + 14, 62, contestant.title);
    x += kContestantWidth;
  }
  return svg;
}

std::string Picture::scale() const {
  std::string svg;
  for (const int factor : {1, 10, 100}) {
    if (std::log10(factor) > decades_) break;
    for (const bool better : {false, true}) {
      if (factor == 1 && better) continue;
      const double x = position_of(better ? factor : 1.0 / factor);
      const std::string title = factor == 1 ? "reference"
                                : better    ? fmt::format("{} times", factor)
                                            : fmt::format("1/{}", factor);
      svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#bbbbbb\"/>\n", x,
                         kTop - 20, below_);
      svg += text_at(x, kTop - 26, title, "text-anchor=\"middle\" font-size=\"10\"");
    }
  }
  return svg;
}

std::string Picture::finish() const {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, below_ + 10);
  svg += text_at(10, 22, title_, "font-size=\"15\" font-weight=\"bold\"");
  svg += text_at(10, 40, subtitle_, "fill=\"#666666\" font-size=\"10\"");
  return svg + legend() + scale() + rows_ + "</svg>\n";
}

}  // namespace splitnic::bench
