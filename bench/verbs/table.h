#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/fabric/client.h"
#include "bench/fabric/comparison.h"
#include "bench/fabric/placement.h"
#include "bench/machine.h"

namespace splitnic::bench {

/// Somebody who does what a row of the table says: an operation of a peer program.
struct VerbsContestant {
  const char* key;        ///< in JSON, and of the row's goals
  const char* program;    ///< empty: the C++ verbs
  const char* operation;  ///< of the program
  const char* kind = "";  ///< latency, rate, one-sided
};

/// The C verbs' median divided by another's: at most (times), at least (rates).
struct VerbsGoal {
  const char* against;
  Bounds bound;
};

/// A row of the table. The first contestant is the C verbs.
struct VerbsRow {
  const char* key;
  const char* title;
  Unit unit;
  std::uint32_t bytes;
  std::vector<VerbsContestant> contestants;
  std::vector<VerbsGoal> goals;
};
const std::vector<VerbsRow>& verbs_rows();
std::vector<std::string> verbs_row_names();

struct VerbsSample {
  std::size_t row = 0;
  std::size_t contestant = 0;
  double value = 0;  ///< in the row's unit
  double line = 0;   ///< seconds; of a cache line from core to core just before
};

/// What `splitnic-bench verbs` has measured.
struct VerbsTable {
  std::string version;
  Machine machine{};
  std::size_t rounds = 0;
  bool realtime = false;
  std::string unfit;  ///< why no goal is judged; empty: they are
  std::vector<std::size_t> rows;
  std::vector<VerbsSample> samples;  ///< each with the same placement before and after it
  std::size_t moved = 0;             ///< those during which the placement changed; discarded
  std::vector<SkippedPeer> skipped;

  /// Nothing with fewer than kFewestSamples.
  [[nodiscard]] std::optional<double> median(std::size_t row, std::size_t contestant, Placement placement) const;
  /// Nothing if one of the two medians is missing.
  [[nodiscard]] std::optional<double> ratio(std::size_t row, const VerbsGoal& goal, Placement placement) const;
};
/// Whether the ratio is as good as the goal asks for.
[[nodiscard]] bool holds(const VerbsRow& row, const VerbsGoal& goal, double ratio, Placement placement);

std::string to_text(const VerbsTable& table);
std::string to_json(const VerbsTable& table);

}  // namespace splitnic::bench
