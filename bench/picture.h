#pragma once

#include <string>
#include <utility>
#include <vector>

namespace splitnic::bench {

/// An SVG picture of a comparison: below headings a line for each row, on it a dot for each contestant, on a
/// logarithmic scale around the row's reference. Right of the reference is better.
class Picture {
 public:
  struct Contestant {
    std::string title{};
    const char* colour = "";
  };

  /// decades: on either side of the reference; what lies beyond is drawn at the edge.
  Picture(std::string title, std::string subtitle, std::vector<Contestant> contestants, double decades);

  void heading(const std::string& text);
  void row(const std::string& title);
  // Of the row begun last:
  void not_measured();
  void goal(double times_as_good, const std::string& about);
  /// contestant: its number. about: what a reader sees who points at the dot.
  void dot(std::size_t contestant, double times_as_good, const std::string& about, bool large);

  [[nodiscard]] std::string finish() const;

 private:
  [[nodiscard]] double position_of(double times_as_good) const;
  [[nodiscard]] std::string legend() const;
  [[nodiscard]] std::string scale() const;

  std::string title_;
  std::string subtitle_;
  std::vector<Contestant> contestants_;
  double decades_;
  double below_;    // where the next line goes
  double row_ = 0;  // the present one
  std::string rows_{};
};

}  // namespace splitnic::bench
