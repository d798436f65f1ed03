#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"

namespace splitnic::fabric {

struct SimBridgeOptions {
  std::array<std::size_t, 2> local_bytes{1U << 20U, 1U << 20U};  ///< of end 0 and end 1; multiples of 64
  Duration write_delay_max = std::chrono::microseconds(20);
  Duration scratchpad_delay_max = std::chrono::microseconds(50);
  Duration doorbell_delay_max = std::chrono::microseconds(50);
  unsigned torn_permille = 200;             ///< writes that land in pieces, cut at multiples of 8 bytes
  unsigned doorbell_lost_permille = 100;    ///< doorbells that never arrive
  unsigned doorbell_spurious_permille = 1;  ///< advances that ring an end nobody rang
  bool memory_scribbled = true;             ///< what the memory holds at first: anything, or zeroes
};

/// Two ends of a bridge inside one process, driven by simulated time; every misfortune is drawn from the given source,
/// so that a seed replays bit by bit. What it does that real bridges may do:
/// - Writes land late: in any order and in pieces between two publish() calls, in order across them. Writes to the same
///   bytes keep their order, and a write of 8 bytes or less lands whole.
/// - Scratchpads travel on their own, each in order for itself.
/// - A doorbell is late, lost, or rung by nobody.
/// - cut() loses what is under way; until restore() reads are all ones. link() tells of every cut at least once.
/// - forget() is the death of an end's program: what it wrote before still lands.
/// A read-back delivers its direction's writes first; fence() also those that the other end had issued, which a real
/// read's completion pushes ahead of itself. Thread: one for the whole pair.
class SimBridgePair {
 public:
  SimBridgePair(const SimBridgeOptions& options, RandomSource& random);
  ~SimBridgePair();
  SimBridgePair(const SimBridgePair&) = delete;
  SimBridgePair& operator=(const SimBridgePair&) = delete;

  /// index: 0 or 1. Owned by the pair.
  [[nodiscard]] Bridge& end(std::size_t index);

  /// Moves time on and delivers what is due. now never goes back.
  void advance(Time now);
  /// When the next thing under way is due; kNever if nothing is.
  [[nodiscard]] Time next_event() const;

  /// Whether end's doorbell descriptor, if it had one, would be readable: a doorbell or a change of the link is
  /// pending.
  [[nodiscard]] bool wake_pending(std::size_t index) const;

  void cut();
  void restore();
  [[nodiscard]] bool is_cut() const;
  /// The program at this end has died and starts again: pending doorbells are gone; its memory stays or is scribbled
  /// over.
  void forget(std::size_t index, bool scribble);

  /// What has happened so far, for reports.
  struct Counters {
    std::uint64_t writes = 0;
    std::uint64_t torn_writes = 0;
    std::uint64_t writes_lost = 0;
    std::uint64_t doorbells = 0;
    std::uint64_t doorbells_lost = 0;
    std::uint64_t doorbells_spurious = 0;
    std::uint64_t cuts = 0;
  };
  [[nodiscard]] const Counters& counters() const;

 private:
  struct World;
  class End;
  std::unique_ptr<World> world_;
  std::array<std::unique_ptr<End>, 2> ends_;
};

}  // namespace splitnic::fabric
