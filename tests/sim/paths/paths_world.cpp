#include "paths_world.h"

#include <algorithm>

namespace splitnic::sim {

PathsWorld::PathsWorld(std::uint64_t seed, std::span<const PathOptions> paths, bool trace)
    : draws_(seed), faults_(seed ^ 0x6661746573U), adapters_(seed ^ 0x6164617074U), trace_(trace) {
  for (const PathOptions& options : paths) paths_.push_back(Path::made(options, faults_));
  for (int i = 0; i < 10'000 && !std::ranges::all_of(paths_, [](const auto& path) { return path->up(); }); ++i) {
    now_ += std::chrono::microseconds(20);
    advance_paths();
  }
}

std::size_t PathsWorld::advance_paths() {
  std::size_t moved = 0;
  for (auto& path : paths_) moved += path->advance(now_);
  return moved;
}

Time PathsWorld::next_event(Time latest) const {
  for (const auto& path : paths_) latest = std::min(latest, path->next_event(now_));
  return latest;
}

bool PathsWorld::paths_at_rest() const {
  return std::ranges::all_of(paths_, [](const auto& path) { return path->up() && path->quiet(); });
}

}  // namespace splitnic::sim
