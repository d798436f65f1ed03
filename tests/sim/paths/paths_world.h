#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../trace.h"
#include "common/random.h"
#include "common/time.h"
#include "path.h"

namespace splitnic::sim {

/// What the worlds over paths have in common: a generator for each purpose, simulated time, the paths, the verdicts.
class PathsWorld {
 public:
  PathsWorld(const PathsWorld&) = delete;
  PathsWorld& operator=(const PathsWorld&) = delete;

 protected:
  /// All paths come up. trace: print every event.
  PathsWorld(std::uint64_t seed, std::span<const PathOptions> paths, bool trace);
  ~PathsWorld() = default;

  /// Carries what is due on all paths. Returns how much the relays and networks moved.
  std::size_t advance_paths();
  /// When something happens next on a path, at most `latest`.
  [[nodiscard]] Time next_event(Time latest) const;
  [[nodiscard]] bool paths_at_rest() const;

  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return draws_.below(bound); }
  [[nodiscard]] bool one_in(std::uint64_t n) { return draws_.below(n) == 0; }

  SeededRandom draws_;     // the operations, and where memory lies
  SeededRandom faults_;    // losses, delays, pauses
  SeededRandom adapters_;  // what the adapters draw
  Time now_ = kStart;
  Trace trace_;
  Verdicts verdicts_;
  std::vector<std::unique_ptr<Path>> paths_;
};

}  // namespace splitnic::sim
