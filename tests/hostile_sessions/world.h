#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/time.h"
#include "messaging/session_types.h"
#include "tests/hostile_sessions/input.h"
#include "tests/sim_bridge/sim_bridge.h"
#include "tests/valid_end/valid_end.h"

namespace splitnic::hostile {

/// What was handed to the victim, and what came of it.
struct Tally {
  std::uint64_t cells = 0;          ///< that the attacker made by hand
  std::uint64_t messages = 0;       ///< that it sent over its channels
  std::uint64_t writes = 0;         ///< that it wrote into the victim's elements, or near them
  std::uint64_t received = 0;       ///< cells that the victim has taken from its link
  std::uint64_t ups = 0;            ///< sessions of the victim with the attacker that came up
  std::uint64_t faults = 0;         ///< that the victim ended, because of what the attacker did
  std::uint64_t acts_while_up = 0;  ///< acts of the input at whose beginning the session was up
  Tally& operator+=(const Tally& more) {
    cells += more.cells;
    messages += more.messages;
    writes += more.writes;
    received += more.received;
    ups += more.ups;
    faults += more.faults;
    acts_while_up += more.acts_while_up;
    return *this;
  }
  [[nodiscard]] std::uint64_t handed_over() const { return cells + messages + writes; }
};

/// A victim, the hostile end of its bridge, the honest hosts and the LAN beside them, in simulated time.
class World {
 public:
  /// kind: its bits choose the mode and the offloads; each world says what its other bits choose.
  explicit World(std::uint8_t kind);
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] virtual test::ValidEnd& end() = 0;
  /// The hostile end of a further queue of the same host; null: the world has none.
  [[nodiscard]] virtual test::ValidEnd* further_end() { return nullptr; }
  [[nodiscard]] virtual fabric::SimBridgePair& pair() = 0;
  /// Everybody polls, then so much time goes by.
  virtual void step(Duration time) = 0;
  /// The victim's session with the hostile end is up.
  [[nodiscard]] virtual bool victim_up() = 0;
  /// The victim does something by itself: it sends frames, makes requests, or ends.
  virtual void let_victim_act(Input& input) = 0;
  /// The frame that the hostile end sends: of one octet's value, mostly with a header of offloads that asks for
  /// nothing.
  [[nodiscard]] virtual std::vector<std::byte> draw_frame(Input& input);
  void hang_up() { pair().cut(); }
  /// The bridge is there again.
  virtual void come_back();
  /// Must hold at any time between two steps.
  virtual void check() = 0;
  /// The hostile end behaves again: everything must work within seconds.
  virtual void check_recovery() = 0;

  /// The hostile ends do what honest ones do next.
  void take_next_steps();
  /// The hostile ends do what honest ones do until the session is up. False: it did not come up in that time.
  bool come_up(Duration limit);

 protected:
  [[nodiscard]] bool offloads() const { return offloads_; }
  /// What the hostile end offers.
  [[nodiscard]] test::ValidEndOptions end_options() const;
  /// Gives the victim's session the same mode, offloads and rings.
  void set_terms(messaging::SessionOptions& options) const;

 private:
  messaging::wire::Mode mode_;
  bool offloads_;
};

/// Runs the attack that the input describes, and checks what must hold meanwhile and afterwards. flood: the length of
/// floods of cells, in times of what is good for a fuzzer.
[[nodiscard]] Tally attack(World& world, Input& input, unsigned flood);

/// The same against a session in the unit's role; a unit with two honest hosts and a LAN; a host driver.
[[nodiscard]] Tally attack_session(Input& input, unsigned flood = 1);
[[nodiscard]] Tally attack_io_unit(Input& input, unsigned flood = 1);
[[nodiscard]] Tally attack_host_driver(Input& input, unsigned flood = 1);

/// A bridge of 256 KiB each way without a delay or a fault, and the rings for it.
[[nodiscard]] fabric::SimBridgeOptions small_bridge();
[[nodiscard]] fabric::LinkOptions small_rings();

}  // namespace splitnic::hostile
