// A host driver whose unit is hostile.
#include <algorithm>
#include <vector>

#include "common/check.h"
#include "tests/hostile_sessions/world.h"
#include "tests/unit/host/driver_bench.h"

namespace splitnic::hostile {

namespace {

namespace wire = messaging::wire;
using host::test::Frame;
using host::test::frame_of;

class HostDriverWorld final : public World {
 public:
  explicit HostDriverWorld(std::uint8_t kind)
      : World(kind),
        pair_(small_bridge(), random_),
        bridges_(pair_.end(0)),
        end_(unit_options(), pair_.end(1), random_) {
    nic_.able = {.frames = offloads(), .udp_segments = offloads()};
    driver_ = std::make_unique<host::HostDriver>(driver_options(), nic_, bridges_, random_, notices_);
  }

  test::ValidEnd& end() override { return end_; }
  fabric::SimBridgePair& pair() override { return pair_; }
  bool victim_up() override { return driver_->up(); }
  void step(Duration time) override {
    pair_.advance(now_);
    driver_->poll(now_);
    pair_.advance(now_);
    end_.poll(now_);
    now_ += time;
  }
  void let_victim_act(Input& input) override {
    switch (input.byte() % 8) {
      case 0:
        driver_->clear_unit_statistics();
        break;
      case 1:
        nic_.system.up = !nic_.system.up;
        break;
      case 2:
        nic_.system.multicast.assign(input.byte(), host::test::group(input.byte()));
        break;
      case 3:
        static_cast<void>(driver_->prepare_sleep());
        driver_->disarm();
        break;
      case 4:
        nic_.refuses = !nic_.refuses;
        break;
      default:
        for (unsigned count = input.byte() % 32; count > 0 && nic_.sending.size() < 64; --count) {
          nic_.sending.push_back(frame_of(60));
        }
    }
  }
  void check() override {
    SPLITNIC_CHECK(driver_->up() || !driver_->carrier());
    SPLITNIC_CHECK(nic_.carriers.back() == driver_->carrier());
    SPLITNIC_CHECK_OP(driver_->counters().rx_frames, ==, delivered_ + nic_.received.size());
    for (const Frame& frame : nic_.received) {
      SPLITNIC_CHECK_OP(frame.size(), >=, wire::kMinFrameBytes);
      SPLITNIC_CHECK_OP(frame.size(), <=, wire::kMaxSuperFrameBytes);
    }
    for (const auto& mac : nic_.macs) SPLITNIC_CHECK(!mac.is_multicast() && !mac.is_zero());
    for (const auto mtu : nic_.max_mtus) SPLITNIC_CHECK(mtu >= wire::kMinMtu && mtu <= wire::kMaxMtu);
    const auto totals = driver_->totals();
    SPLITNIC_CHECK_OP(totals.session.rx_frames, ==,
                      driver_->counters().rx_frames + driver_->counters().rx_refused_by_nic);
    forget();
  }
  void check_recovery() override {
    nic_.refuses = false;
    const std::uint64_t before = driver_->counters().rx_frames;
    const std::uint64_t sent_before = driver_->totals().session.tx_frames;
    nic_.sending.push_back(frame_of(60));
    SPLITNIC_CHECK(end_.send_frame(Frame(100)));
    const auto done = [&] {
      return driver_->counters().rx_frames > before && driver_->totals().session.tx_frames > sent_before;
    };
    for (unsigned tries = 0; tries < 500 && !done(); ++tries) {
      end_.take_next_step();
      step(std::chrono::microseconds(100));
    }
    SPLITNIC_CHECK(done());
  }
  [[nodiscard]] messaging::SessionTotals totals() const { return driver_->totals(); }

 private:
  [[nodiscard]] messaging::SessionOptions driver_options() const {
    messaging::SessionOptions options = host::test::host_options();
    set_terms(options);
    return options;
  }
  [[nodiscard]] test::ValidEndOptions unit_options() const {
    test::ValidEndOptions options = end_options();
    options.role = wire::Role::io_unit;
    options.name = "unit";
    options.mac = host::test::kUnitsMac;
    return options;
  }
  void forget() {
    delivered_ += nic_.received.size();
    nic_.received.clear();
    nic_.received_offloads.clear();
    nic_.macs.clear();
    nic_.max_mtus.clear();
    nic_.permitted.clear();
    nic_.carriers.assign(1, nic_.carriers.back());
    if (notices_.lines.size() > 1000) notices_.lines.clear();
  }

  SeededRandom random_{1};
  fabric::SimBridgePair pair_;
  splitnic::test::LoadsOnce loads_{pair_.end(0).local_memory()};
  host::test::OneBridge bridges_;
  host::test::MemoryNic nic_;
  host::test::RecordedNotices notices_;
  std::unique_ptr<host::HostDriver> driver_;
  test::ValidEnd end_;
  std::uint64_t delivered_ = 0;
  Time now_{std::chrono::hours(1)};
};

}  // namespace

Tally attack_host_driver(Input& input, unsigned flood) {
  HostDriverWorld world(input.byte());
  Tally tally = attack(world, input, flood);
  const messaging::SessionTotals totals = world.totals();
  tally.received = totals.adapter.cells_received;
  tally.ups = totals.session.ups;
  tally.faults = totals.session.faults;
  return tally;
}

}  // namespace splitnic::hostile
