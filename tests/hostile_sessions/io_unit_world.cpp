// A unit with a LAN in memory and two honest hosts beside the hostile one.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "tests/hostile_sessions/world.h"
#include "tests/unit/iounit/unit_bench.h"

namespace splitnic::hostile {

namespace {

namespace wire = messaging::wire;
using iounit::test::Frame;
using iounit::test::make_frame;
using iounit::test::station;
using iounit::test::TestHost;
using iounit::test::UnitBench;

constexpr std::string_view kSecret = "between honest hosts only";
constexpr std::size_t kMaxHosts = 4;
constexpr std::uint64_t kCookie = 77;  // of the hostile host's session
constexpr std::uint64_t kStepsPerSum = 16;

bool holds_secret(std::span<const std::byte> bytes) {
  return memmem(bytes.data(), bytes.size(), kSecret.data(), kSecret.size()) != nullptr;
}

fabric::SimBridgeOptions bridge_of_session(bool further) {
  fabric::SimBridgeOptions options = small_bridge();
  options.group = {.cookie = kCookie, .further = further};
  return options;
}

/// Bits of kind: 1 and 2, see World; 4: rates, 8: foreign sources, 16: a guard; 32: no further queue.
iounit::IoUnitOptions unit_options(std::uint8_t kind) {
  iounit::IoUnitOptions options;
  options.max_hosts = kMaxHosts;
  options.session.offloads = (kind & 2U) != 0;
  options.session.link = small_rings();
  auto& policy = options.policy;
  policy.lan_addresses = {station(1)};
  if ((kind & 4U) != 0) policy.others.send = policy.others.receive = {.bytes = 10'000'000, .frames = 10'000};
  if ((kind & 8U) != 0) policy.others.foreign_sources = true;
  if ((kind & 16U) != 0) policy.others.ip.dhcp_server = false;
  policy.hosts.push_back({.name = "a", .user{}, .group{}, .rights{.addresses = {station(0xa)}}});
  return options;
}

class IoUnitWorld final : public World {
 public:
  explicit IoUnitWorld(std::uint8_t kind)
      : World(kind),
        bench_(unit_options(kind)),
        a_(honest("a")),
        b_(honest("b")),
        hostile_(bench_.connect(messaging::SessionOptions{}, bridge_of_session(false))),
        end_(evil_options(), hostile_.pair().end(0), bench_.random) {
    bench_.step();  // the unit has the bridge
    if ((kind & 32U) != 0) return;
    // The unit refuses it, because the session is not up yet: step() comes back with it. In mode S it is refused
    // always.
    joins_ = (kind & 1U) == 0;
    queue_ = &bench_.connect(messaging::SessionOptions{}, bridge_of_session(true));
    queue_end_.emplace(evil_options(), queue_->pair().end(0), bench_.random);
  }

  test::ValidEnd& end() override { return end_; }
  test::ValidEnd* further_end() override { return queue_end_ ? &*queue_end_ : nullptr; }
  fabric::SimBridgePair& pair() override { return hostile_.pair(); }
  bool victim_up() override { return bench_.attached("evil") != nullptr; }
  void step(Duration time) override {
    bench_.step();
    end_.poll(bench_.now());
    if (queue_end_) queue_end_->poll(bench_.now());
    if (joins_ && victim_up()) join();
    bench_.pass(time);
    note_attached();
  }
  void let_victim_act(Input& input) override {
    switch (input.byte() % 8) {
      case 0:
        exchange(input.byte());
        break;
      case 1:
        bench_.lan.has_carrier = !bench_.lan.has_carrier;
        break;
      case 2:
        static_cast<void>(bench_.unit().prepare_sleep());
        bench_.unit().disarm();
        break;
      case 3:
        static_cast<void>(b_.send(make_frame(kBroadcastMac, b_.mac())));
        break;
      default:
        bench_.lan.arriving.push_back(draw_frame(input));
    }
  }
  Frame draw_frame(Input& input) override {
    const MacAddress own = end_.heard().granted ? end_.heard().granted->assigned_mac : station(9);
    const std::array addresses{own,
                               a_.mac(),
                               b_.mac(),
                               station(1),
                               station(2),
                               kBroadcastMac,
                               iounit::test::group(3),
                               MacAddress{{1, 0x80, 0xc2, 0, 0, 0}}};
    const std::uint8_t which = input.byte();
    const MacAddress from = input.byte() < 192 ? own : addresses[input.byte() % addresses.size()];
    iounit::test::FrameOptions options{.payload_bytes = std::min(input.near(46), 1600U)};
    if (which >= 224) options.vlans = {static_cast<std::uint16_t>(input.half() & 0xfffU)};
    Frame frame = make_frame(addresses[which % addresses.size()], from, options);
    if (offloads() && input.byte() < 192) {
      frame.insert(frame.begin(), wire::kOffloadHeaderBytes, std::byte{0});
    }
    for (unsigned wrong = input.byte() >= 224 ? 3 : 0; wrong > 0; --wrong) {
      frame[input.byte() % frame.size()] = std::byte{input.byte()};
    }
    return frame;
  }
  void come_back() override {
    World::come_back();
    if (hostile_.released) bench_.connect_again(hostile_);
    join();
  }
  void check() override {
    if (++checks_ % kStepsPerSum == 0) check_sum();
    SPLITNIC_CHECK(a_.up() && a_.downs.empty());
    SPLITNIC_CHECK(b_.up() && b_.downs.empty());
    SPLITNIC_CHECK_OP(bench_.unit().hosts().size(), <=, kMaxHosts);
    forget_old_frames();
  }
  void check_recovery() override {
    check_sum();
    bench_.lan.has_carrier = true;
    exchange(1);
    look_for_secrets();
    const auto heard = [this] { return count_from(end_.heard().granted->assigned_mac); };
    const std::size_t before = heard();
    // A host that has rested or that is limited may have to wait, but not for long.
    bool sent = false;
    for (unsigned tries = 0; tries < 2000 && heard() == before; ++tries) {
      if (!sent || tries % 200 == 0) {
        Frame frame = make_frame(a_.mac(), end_.heard().granted->assigned_mac);
        if ((end_.heard().granted->features & wire::kFeatureOffloads) != 0) {
          frame.insert(frame.begin(), wire::kOffloadHeaderBytes, std::byte{0});
        }
        sent = end_.send_frame(frame);
      }
      end_.take_next_step();
      step(std::chrono::milliseconds(1));
    }
    SPLITNIC_CHECK_OP(heard(), >, before);
    check_queue();
  }
  [[nodiscard]] Tally totals() {
    note_attached();
    return {
        .received = past_.received + now_.received, .ups = past_.ups + now_.ups, .faults = past_.faults + now_.faults};
  }

 private:
  [[nodiscard]] test::ValidEndOptions evil_options() const {
    test::ValidEndOptions options = end_options();
    options.name = "evil";
    return options;
  }
  TestHost& honest(const std::string& name) {
    auto options = iounit::test::host_named(name);
    options.link = small_rings();
    return bench_.wait_up(bench_.connect(options, small_bridge()));
  }
  /// The unit drops a queue's bridge with the session, and when the queue does not come up.
  void join() {
    if (queue_ != nullptr && queue_->released) bench_.connect_again(*queue_);
  }
  /// The further queue joins a session that is up, or the unit refuses it for its mode.
  void check_queue() {
    if (queue_ == nullptr) return;
    const auto queues = [this] { return bench_.attached("evil")->queues_up(); };
    for (unsigned tries = 0; tries < 3000 && queues() < (joins_ ? 2U : 1U); ++tries) {
      take_next_steps();
      step(std::chrono::milliseconds(5));
      SPLITNIC_CHECK(victim_up());
    }
    SPLITNIC_CHECK_OP(queues(), ==, joins_ ? 2U : 1U);
  }
  /// Each frame was delivered, or dropped for a cause.
  void check_sum() {
    const auto sum = bench_.sum();
    SPLITNIC_CHECK_OP(sum.in, ==, sum.delivered + sum.dropped);
  }
  /// One frame from a to b arrives at b, and nowhere else.
  void exchange(std::uint8_t mark) {
    const auto got = [&](const Frame& frame) { return std::ranges::count(b_.frames, frame); };
    Frame frame = make_frame(b_.mac(), a_.mac(), {.payload_bytes = 64});
    std::memcpy(&frame[20], kSecret.data(), kSecret.size());
    frame[60] = std::byte{mark};
    const auto before = got(frame);
    for (unsigned tries = 0; tries < 200 && !a_.send(frame); ++tries) step(std::chrono::milliseconds(1));
    for (unsigned tries = 0; tries < 200 && got(frame) == before; ++tries) step(std::chrono::microseconds(100));
    SPLITNIC_CHECK_OP(got(frame), ==, before + 1);
  }
  static void look_for_secrets(fabric::SimBridgePair& pair, const test::ValidEnd& end) {
    std::vector<std::byte> memory(pair.end(0).local_memory().size());
    const auto seen = pair.end(0).local_memory();
    // No decision depends on this copy, so the audit does not count its loads.
    seen.next_message();
    seen.copy_out(0, memory);
    seen.next_message();
    SPLITNIC_CHECK(!holds_secret(memory));
    for (const auto& pool : end.pools()) SPLITNIC_CHECK(!holds_secret(pool));
  }
  void look_for_secrets() {
    look_for_secrets(hostile_.pair(), end_);
    if (queue_end_) look_for_secrets(queue_->pair(), *queue_end_);
    for (const auto& frame : bench_.lan.sent) SPLITNIC_CHECK(!holds_secret(frame));
  }
  [[nodiscard]] std::size_t count_from(const MacAddress& source) const {
    return static_cast<std::size_t>(std::ranges::count_if(a_.frames, [&](const Frame& frame) {
      const auto header = frame::parse_ethernet(frame);
      return header && header->source == source;
    }));
  }
  void forget_old_frames() {
    constexpr std::size_t kMost = 1000;
    for (auto* const frames : {&a_.frames, &b_.frames, &bench_.lan.sent}) {
      if (frames->size() > kMost) frames->clear();
    }
    if (bench_.notices.lines.size() > kMost) bench_.notices.lines.clear();
  }
  /// What the unit's sessions with the hostile end have counted; the unit forgets it with the host.
  void note_attached() {
    const iounit::AttachedHost* attached = nullptr;
    for (const auto& host : bench_.unit().hosts()) {
      if (host && &host->bridge() == &hostile_.pair().end(1)) attached = host.get();
    }
    if (attached != noted_) {
      past_ += now_;
      now_ = {};
      noted_ = attached;
    }
    if (attached == nullptr) return;
    const auto counters = attached->counters();
    now_ = {.received = attached->totals().adapter.cells_received, .ups = counters.ups, .faults = counters.faults};
  }

  UnitBench bench_;
  TestHost& a_;
  TestHost& b_;
  TestHost& hostile_;
  test::ValidEnd end_;
  TestHost* queue_ = nullptr;  // a bridge for a further queue, and its hostile end
  std::optional<test::ValidEnd> queue_end_;
  bool joins_ = false;
  const iounit::AttachedHost* noted_ = nullptr;
  std::uint64_t checks_ = 0;
  Tally past_;
  Tally now_;
};

}  // namespace

Tally attack_io_unit(Input& input, unsigned flood) {
  IoUnitWorld world(input.byte());
  Tally tally = attack(world, input, flood);
  tally += world.totals();
  return tally;
}

}  // namespace splitnic::hostile
