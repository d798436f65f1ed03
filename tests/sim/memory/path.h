#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/link.h"
#include "fabric/bridge/sim_bridge.h"
#include "lossy_relay.h"

namespace splitnic::sim {

struct PathOptions {
  fabric::SimBridgeOptions bridge;
  fabric::LinkOptions link;  ///< of both ends, but for the port addresses
  bool relayed = false;      ///< two bridges with a relay between them, which loses, repeats and reorders cells
  unsigned lost_permille = 0;
  unsigned doubled_permille = 0;
  unsigned late_permille = 0;  ///< later cells overtake these
};

/// The two ends' links, over one simulated bridge, or over two and a relay, whose cells carry CRCs. The relay
/// forwards cells and does not read them. It forwards no protection table, so there are no direct writes through it.
class Path {
 public:
  /// random: of every misfortune; lent.
  Path(const PathOptions& options, RandomSource& random);

  [[nodiscard]] fabric::FabricLink& link(std::size_t end) { return *links_[end]; }
  /// What the end's adapter uses.
  [[nodiscard]] fabric::CellLink& cells(std::size_t end) {
    if (sealed_[end] != nullptr) return *sealed_[end];
    return *links_[end];
  }
  [[nodiscard]] bool lossy() const { return options_.relayed; }
  [[nodiscard]] bool up() const;
  /// Nothing is under way.
  [[nodiscard]] bool quiet() const;
  /// Carries what is due. Returns how many cells the relay moved.
  std::size_t advance(Time now);
  [[nodiscard]] Time next_event(Time now) const;

  /// An end's link starts anew; the program lives.
  void restart(std::size_t end);
  /// An end's program died: its link is another one from now on. scribble: so is what its memory holds.
  void die(std::size_t end, bool scribble);
  void cut();
  void restore();

 private:
  [[nodiscard]] fabric::SimBridgePair& bridge_of(std::size_t end) {
    return options_.relayed && end == 1 ? *bridges_[1] : *bridges_[0];
  }
  /// bears: the end whose port address it has.
  [[nodiscard]] std::unique_ptr<fabric::FabricLink> make_link(fabric::Bridge& on, std::size_t bears);
  void restart_relay();
  void make_sealed(std::size_t end);

  PathOptions options_;
  RandomSource& random_;
  std::vector<std::unique_ptr<fabric::SimBridgePair>> bridges_;
  std::array<std::unique_ptr<fabric::FabricLink>, 2> links_;
  std::array<std::unique_ptr<fabric::test::SealedLink>, 2> sealed_;  // relayed only
  fabric::test::LossyRelay relay_;
  std::vector<std::unique_ptr<fabric::FabricLink>> relay_links_;  // towards end 0, towards end 1
};

}  // namespace splitnic::sim
