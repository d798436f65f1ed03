#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"

namespace splitnic::fabric {

struct SimBridgeOptions {
  std::array<std::size_t, 2> local_bytes{1U << 20U, 1U << 20U};  ///< of end 0 and end 1; multiples of 64
  Duration write_delay_max = std::chrono::microseconds(20);
  Duration scratchpad_delay_max = std::chrono::microseconds(50);
  Duration doorbell_delay_max = std::chrono::microseconds(50);
  unsigned torn_permille = 200;             ///< writes that arrive in pieces, cut at multiples of 8 bytes
  unsigned doorbell_lost_permille = 100;    ///< doorbells that never arrive
  unsigned doorbell_spurious_permille = 1;  ///< calls of advance() that ring an end although its peer did not
  bool memory_scribbled = true;             ///< true: the memory begins with random bytes; false: with zeroes
  std::array<std::uint32_t, 2> cores{};     ///< that end 0 and end 1 run on (Bridge::core)
  std::array<std::optional<BridgePeer>, 2> processes{};  ///< at end 0 and end 1, as the other end sees them
  BridgeGroup group{};                                   ///< of both ends
};

/// Two ends of a bridge inside one process, driven by simulated time. Every fault is drawn from the given source, so
/// that a seed replays bit by bit. The pair does what real bridges may do:
/// - Writes arrive late: between two publish() calls in any order and in pieces, across them in order. Writes to the
///   same bytes keep their order, and a write of 8 bytes or less arrives whole.
/// - Scratchpads are independent of the windows and of each other; each keeps its own order.
/// - A doorbell is late, lost or spurious.
/// - cut() loses all writes under way. Until restore(), reads return all ones. link() reports every cut at least once.
/// - forget() simulates the death of an end's program. Its earlier writes still arrive.
/// A read-back first delivers the writes of its direction. fence() also delivers the writes that the other end had
/// issued, because the completion of a real read pushes them ahead of itself. Thread: one for the whole pair.
class SimBridgePair {
 public:
  SimBridgePair(const SimBridgeOptions& options, RandomSource& random);
  ~SimBridgePair();
  SimBridgePair(const SimBridgePair&) = delete;
  SimBridgePair& operator=(const SimBridgePair&) = delete;

  /// index: 0 or 1. Owned by the pair.
  [[nodiscard]] Bridge& end(std::size_t index);

  /// Advances the time and delivers everything that is due. now never goes back.
  void advance(Time now);
  /// When the next write or doorbell under way is due; kNever if there is none.
  [[nodiscard]] Time next_event() const;

  /// Whether a doorbell or a link change is pending at the end, so that its doorbell descriptor, if it had one, would
  /// be readable.
  [[nodiscard]] bool wake_pending(std::size_t index) const;

  void cut();
  void restore();
  [[nodiscard]] bool is_cut() const;
  /// The program at this end has died and starts again. Its pending doorbells are lost. Its memory stays, or is filled
  /// with random bytes if `scribble`.
  void forget(std::size_t index, bool scribble);

  /// Events so far, for reports.
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
