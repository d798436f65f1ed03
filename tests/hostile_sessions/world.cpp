#include "tests/hostile_sessions/world.h"

#include <algorithm>
#include <array>
#include <optional>

#include "common/check.h"
#include "tests/hostile_sessions/hostile_talk.h"

namespace splitnic::hostile {

namespace {

namespace wire = messaging::wire;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Longer than every pause that a victim makes: an ejected host waits for up to 8 s.
constexpr Duration kRecovery = seconds(12);
constexpr std::uint8_t kSilentStart = 0x80;
// Room for two of the longest frames.
constexpr std::uint32_t kElementsForSuperFrames = 96;

/// The length of a frame: a usual one, or one at a limit.
std::size_t draw_frame_bytes(Input& input) {
  constexpr std::array<std::size_t, 16> kBytes{60, 60, 60,   60,   60,   60,   0,    13,
                                               14, 24, 1514, 1522, 1523, 1536, 1537, 1900};
  return kBytes[input.byte() % kBytes.size()];
}

void jump(World& world, Input& input) {
  const std::uint8_t how = input.byte();
  world.step(how < 128 ? Duration(microseconds(how)) : how < 250 ? Duration(milliseconds(how)) : seconds(how - 245));
}

}  // namespace

fabric::SimBridgeOptions small_bridge() {
  fabric::SimBridgeOptions options;
  options.local_bytes = {256U << 10U, 256U << 10U};
  options.write_delay_max = options.scratchpad_delay_max = options.doorbell_delay_max = Duration::zero();
  options.torn_permille = options.doorbell_lost_permille = options.doorbell_spurious_permille = 0;
  options.memory_scribbled = false;
  return options;
}

fabric::LinkOptions small_rings() {
  fabric::LinkOptions options;
  options.slot_bytes = {8U << 10U, 16U << 10U};
  options.payload_bytes = {16U << 10U, 16U << 10U};
  return options;
}

World::World(std::uint8_t kind)
    : mode_((kind & 1U) != 0 ? wire::Mode::send : wire::Mode::rdma),
      offloads_(mode_ == wire::Mode::rdma && (kind & 2U) != 0) {}

std::vector<std::byte> World::draw_frame(Input& input) {
  std::vector<std::byte> frame(draw_frame_bytes(input), std::byte{input.byte()});
  if (offloads_ && frame.size() >= wire::kOffloadHeaderBytes && input.byte() < 192) {
    std::fill_n(frame.begin(), wire::kOffloadHeaderBytes, std::byte{0});
  }
  return frame;
}

void World::come_back() {
  if (pair().is_cut()) pair().restore();
}

test::ValidEndOptions World::end_options() const {
  test::ValidEndOptions options;
  options.features = offloads_ ? wire::kFeatureOffloads : 0;
  options.mode = mode_;
  options.elements = offloads_ ? kElementsForSuperFrames : 8;
  options.link = small_rings();
  return options;
}

void World::set_terms(messaging::SessionOptions& options) const {
  options.mode = mode_;
  options.offloads = options.udp_segments = offloads_;
  if (offloads_) options.pool_elements = kElementsForSuperFrames;
  options.link = small_rings();
}

void World::take_next_steps() {
  end().take_next_step();
  if (auto* const further = further_end()) further->take_next_step();
}

bool World::come_up(Duration limit) {
  // A step is short while both talk, and longer and longer while the victim lets the end wait: it may pause for
  // seconds.
  constexpr Duration kShortest = microseconds(50);
  constexpr Duration kLongest = milliseconds(5);
  Duration time = kShortest;
  for (Duration passed{}; passed < limit && !(victim_up() && end().ready()); passed += time) {
    const std::uint64_t heard = end().answers() + end().incarnation();
    take_next_steps();
    step(time);
    const bool talks = end().connected() && end().answers() + end().incarnation() != heard;
    time = talks ? kShortest : std::min(2 * time, kLongest);
  }
  return victim_up() && end().ready();
}

Tally attack(World& world, Input& input, unsigned flood) {
  Tally tally;
  HostileTalk talk(world, world.end(), tally, flood);
  std::optional<HostileTalk> further;
  if (auto* const end = world.further_end()) further.emplace(world, *end, tally, flood);
  const bool starts_honestly = (input.byte() & kSilentStart) == 0;
  if (starts_honestly) SPLITNIC_CHECK(world.come_up(seconds(3)));
  while (!input.empty()) {
    if (world.victim_up()) ++tally.acts_while_up;
    switch (const std::uint8_t what = input.byte(); what % 32) {
      case 0:
        jump(world, input);
        break;
      case 1:
        world.let_victim_act(input);
        break;
      case 2:
        if (what >= 192) world.hang_up();
        break;
      case 3:
        world.come_back();
        break;
      case 4:
        static_cast<void>(world.come_up(seconds(1)));
        break;
      case 5:
      case 6:
        world.take_next_steps();
        break;
      default:
        (further && input.byte() < 96 ? *further : talk).act(input);
    }
    world.step(microseconds(10));
    world.check();
    // What is said while nothing is connected reaches nobody.
    if (!world.victim_up() && input.byte() % 4 == 0) static_cast<void>(world.come_up(milliseconds(200)));
  }
  world.come_back();
  world.end().start_over();
  if (auto* const end = world.further_end()) end->start_over();
  world.step(milliseconds(1));
  SPLITNIC_CHECK(world.come_up(kRecovery));
  world.check_recovery();
  world.check();
  return tally;
}

}  // namespace splitnic::hostile
