#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"

namespace splitnic::sim {

/// When simulated time begins: not at the clock's zero, which some code could take for "never happened".
inline constexpr Time kStart = Time{} + std::chrono::hours(1);

/// Everything that happens in a run, as a hash (two runs of a seed must agree in every event) and, when asked for, as
/// lines on stdout.
class Trace {
 public:
  explicit Trace(bool printing) : printing_(printing) {}

  void event(Time now, std::string_view what, std::uint64_t a = 0, std::uint64_t b = 0);
  void line(Time now, std::string_view who, std::string_view text);
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }

 private:
  void mix(std::uint64_t word);
  void mix(std::string_view text);
  void open_line(Time now) const;

  bool printing_;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::uint64_t events_ = 0;
};

/// What must not happen and did. The first is what counts: the run ends there.
class Verdicts {
 public:
  void violate(Time now, std::string what);
  [[nodiscard]] bool clean() const { return first_.empty(); }
  [[nodiscard]] const std::string& first() const { return first_; }

 private:
  std::string first_;
};

/// The result of one run of a seed.
struct SeedResult {
  std::uint64_t trace_hash = 0;
  std::string violation{};  ///< empty: none
};

/// Simulated time as people read it: since the run began, in milliseconds.
std::string to_text(Time time);

}  // namespace splitnic::sim
