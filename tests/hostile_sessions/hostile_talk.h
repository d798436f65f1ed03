#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/hostile_sessions/world.h"

namespace splitnic::hostile {

/// What a hostile end says: messages that are right, with wrong fields, out of order, again, with stale numbers, too
/// many; frames and indications likewise; cells that no adapter sends; bytes in the victim's memory.
class HostileTalk {
 public:
  /// end: of the world. All references must outlive this object. flood: see attack().
  HostileTalk(World& world, test::ValidEnd& end, Tally& tally, unsigned flood)
      : world_(world), end_(end), tally_(tally), flood_(flood) {}

  void act(Input& input);

 private:
  void speak(std::span<const std::byte> message, Input& input);
  void say_again(Input& input);
  void ask(Input& input);
  void answer(Input& input);
  void advertise(Input& input);
  void return_elements(Input& input);
  void flush(Input& input);
  void say_other(Input& input);
  void indicate(Input& input);
  void write(Input& input);
  void send_frames(Input& input);
  void put_cells(Input& input);
  [[nodiscard]] bool put_cell(RandomSource& random, std::uint8_t how);
  void scribble(Input& input);
  void note_pools();

  World& world_;
  test::ValidEnd& end_;
  Tally& tally_;
  unsigned flood_;
  std::vector<std::byte> last_;                       // message
  std::vector<test::wire::PoolAdvertisement> pools_;  // of the victim, in this epoch and those before
};

}  // namespace splitnic::hostile
