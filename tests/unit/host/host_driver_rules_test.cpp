// HostDriver between a NIC in memory and an I/O unit's session, in simulated time: what the unit is told of the NIC's
// settings, what the NIC is told of the unit's, and what becomes of frames that one of them does not take.
#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "fabric/bridge/sim_bridge.h"
#include "host/host_driver.h"
// Catch2's CHECK replaces the house's from here on.
#undef CHECK
#include <catch2/catch.hpp>

namespace splitnic::host {
namespace {

namespace wire = messaging::wire;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Frame = std::vector<std::byte>;

constexpr MacAddress kAssigned{{2, 0, 0, 0, 0, 1}};

struct MemoryNic final : VirtualNic {
  NicSettings current{.mac = kAssigned, .mtu = 1400, .up = true, .promiscuous = false, .multicast = {}};
  std::deque<Frame> to_send;
  std::vector<Frame> got;
  std::vector<bool> carriers;
  std::vector<std::uint32_t> max_mtus;
  std::vector<MacAddress> macs;
  bool refuses = false;

  std::size_t read_frame(std::span<std::byte> to) override {
    if (to_send.empty()) return 0;
    const Frame frame = to_send.front();
    to_send.pop_front();
    std::copy(frame.begin(), frame.end(), to.begin());
    return frame.size();
  }
  bool write_frame(const messaging::ReceivedFrame& frame) override {
    if (refuses) return false;
    got.emplace_back(frame.size());
    frame.bytes.copy_out(0, got.back());
    return true;
  }
  void set_carrier(bool carrier) override { carriers.push_back(carrier); }
  void set_max_mtu(std::uint32_t max_mtu) override { max_mtus.push_back(max_mtu); }
  void set_mac(const MacAddress& mac) override { macs.push_back(mac); }
  const NicSettings& settings(Time) override { return current; }
  [[nodiscard]] std::vector<int> descriptors() const override { return {}; }
};

struct UnitSide final : messaging::SessionEvents {
  std::vector<wire::HelloRequest> hellos;
  std::vector<wire::RequestBody> requests;
  std::vector<Frame> frames;
  messaging::HelloGrant grant{.mac = kAssigned, .max_mtu = 1400, .link_up = true};

  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const wire::HelloRequest& hello) override {
    hellos.push_back(hello);
    return grant;
  }
  void on_up(const wire::HelloReply*) override {}
  void on_down(std::string_view) override {}
  void on_frame(const messaging::ReceivedFrame& frame) override { frames.emplace_back(frame.size()); }
  messaging::Answer on_request(const wire::RequestBody& request) override {
    requests.push_back(request);
    if (const auto* mac = std::get_if<wire::SetMacAddress>(&request)) return wire::MacAddressReply{mac->address};
    if (const auto* mtu = std::get_if<wire::SetMtu>(&request)) return wire::MtuReply{mtu->bytes};
    if (std::holds_alternative<wire::StatisticsReport>(request)) return wire::Statistics{};
    return wire::Acknowledged{};
  }
  void on_reply(wire::CfgRequest, const messaging::Answer&) override {}

  template <class Body>
  [[nodiscard]] std::vector<Body> all() const {
    std::vector<Body> found;
    for (const auto& request : requests) {
      if (const auto* body = std::get_if<Body>(&request)) found.push_back(*body);
    }
    return found;
  }
};

struct OneBridge final : fabric::BridgeSource {
  std::shared_ptr<fabric::Bridge> next;
  std::shared_ptr<fabric::Bridge> poll(Time) override { return std::exchange(next, nullptr); }
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  void collect_descriptors(std::vector<int>&) const override {}
};

struct KeptNotices final : Notices {
  std::vector<std::string> lines;
  void notice(const std::string& line) override { lines.push_back(line); }
  [[nodiscard]] std::size_t with(const std::string& text) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(lines, [&](const std::string& line) { return line.find(text) != std::string::npos; }));
  }
};

class DriverBench {
 public:
  explicit DriverBench(std::uint32_t unit_elements = 16) {
    messaging::SessionOptions unit;
    unit.role = wire::Role::io_unit;
    unit.name = "unit";
    unit.pool_elements = unit_elements;
    unit_ = std::make_unique<messaging::Session>(unit, pair_.end(1), random_, events);
    messaging::SessionOptions host;
    host.name = "host";
    host.pool_elements = 16;
    bridges_.next = {&pair_.end(0), [](fabric::Bridge*) {}};
    driver_ = std::make_unique<HostDriver>(host, nic, bridges_, random_, notices);
  }

  MemoryNic nic;
  UnitSide events;
  KeptNotices notices;

  [[nodiscard]] HostDriver& driver() { return *driver_; }
  [[nodiscard]] messaging::Session& unit() { return *unit_; }

  void run(Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += std::chrono::microseconds(100)) {
      pair_.advance(now_);
      driver_->poll(now_);
      pair_.advance(now_);
      if (unit_stopped) continue;
      unit_->poll(now_);
      unit_->flush();
    }
  }
  void come_up() {
    for (int waited = 0; waited < 1000 && !(driver_->up() && unit_->up()); ++waited) run(milliseconds(1));
    REQUIRE(driver_->up());
    REQUIRE(unit_->up());
    run(milliseconds(20));
  }
  /// A frame of the unit for the host.
  void send(std::size_t bytes) {
    REQUIRE_FALSE(unit_->claim().empty());
    unit_->commit(static_cast<std::uint32_t>(bytes));
    unit_->flush();
  }
  void die() { pair_.cut(); }

  bool unit_stopped = false;

 private:
  static fabric::SimBridgeOptions plain_bridge() {
    return {.write_delay_max{},
            .scratchpad_delay_max{},
            .doorbell_delay_max{},
            .torn_permille = 0,
            .doorbell_lost_permille = 0,
            .doorbell_spurious_permille = 0,
            .memory_scribbled = false};
  }

  SeededRandom random_{5};
  fabric::SimBridgePair pair_{plain_bridge(), random_};
  OneBridge bridges_;
  Time now_{std::chrono::hours(1)};
  std::unique_ptr<messaging::Session> unit_;
  std::unique_ptr<HostDriver> driver_;
};

}  // namespace

TEST_CASE("a nic takes the unit's address, MTU and carrier when its driver comes up", "[host][driver]") {
  DriverBench bench;
  bench.events.grant.link_up = GENERATE(true, false);
  REQUIRE(bench.nic.carriers == std::vector<bool>{false});
  bench.come_up();
  CHECK(bench.nic.macs == std::vector<MacAddress>{kAssigned});
  CHECK(bench.nic.max_mtus == std::vector<std::uint32_t>{1400});
  CHECK(bench.nic.carriers.back() == bench.events.grant.link_up);
  CHECK(bench.driver().carrier() == bench.events.grant.link_up);
  CHECK(bench.driver().unit_name() == "unit");
}

TEST_CASE("the unit learns every setting once when a driver comes up", "[host][driver]") {
  DriverBench bench;
  bench.driver().limit_vlans({5, 7});
  bench.nic.current = {
      .mac = kAssigned, .mtu = 1300, .up = true, .promiscuous = true, .all_multicast = true, .multicast = {}};
  bench.come_up();
  REQUIRE(bench.events.all<wire::SetMacAddress>().size() == 1);
  CHECK(bench.events.all<wire::SetMacAddress>()[0].address == kAssigned);
  REQUIRE(bench.events.all<wire::SetMtu>().size() == 1);
  CHECK(bench.events.all<wire::SetMtu>()[0].bytes == 1300);
  REQUIRE(bench.events.all<wire::ReceiveFilter>().size() == 1);
  CHECK(bench.events.all<wire::ReceiveFilter>()[0].promiscuous);
  CHECK(bench.events.all<wire::ReceiveFilter>()[0].all_multicast);
  REQUIRE(bench.events.all<wire::VlanFilter>().size() == 1);
  CHECK(bench.events.all<wire::VlanFilter>()[0].only == std::vector<std::uint16_t>{5, 7});
}

TEST_CASE("a changed setting is sent, and no other", "[host][driver]") {
  DriverBench bench;
  bench.nic.current = {
      .mac = kAssigned, .mtu = 1300, .up = true, .promiscuous = false, .all_multicast = false, .multicast = {}};
  bench.come_up();
  bench.events.requests.clear();
  SECTION("nothing") { bench.run(milliseconds(100)); }
  SECTION("the MTU") {
    bench.nic.current.mtu = 1200;
    bench.run(milliseconds(100));
    CHECK(bench.events.all<wire::SetMtu>().size() == 1);
  }
  SECTION("the interface") {
    bench.nic.current.up = false;
    bench.run(milliseconds(100));
    REQUIRE(bench.events.all<wire::LinkState>().size() == 1);
    CHECK_FALSE(bench.events.all<wire::LinkState>()[0].up);
  }
  SECTION("a group") {
    bench.nic.current.multicast = {{{1, 0, 0x5e, 0, 0, 9}}};
    bench.run(milliseconds(100));
    REQUIRE(bench.events.all<wire::ReceiveFilter>().size() == 1);
    CHECK(bench.events.all<wire::ReceiveFilter>()[0].multicast == bench.nic.current.multicast);
    CHECK_FALSE(bench.events.all<wire::ReceiveFilter>()[0].all_multicast);
  }
  SECTION("the address") {
    bench.nic.current.mac = {{2, 0, 0, 0, 0, 9}};
    bench.run(milliseconds(100));
    CHECK(bench.events.all<wire::SetMacAddress>().size() == 1);
  }
  const bool changed =
      bench.nic.current !=
      NicSettings{
          .mac = kAssigned, .mtu = 1300, .up = true, .promiscuous = false, .all_multicast = false, .multicast = {}};
  CHECK(bench.events.requests.size() == (changed ? 1 : 0));
}

TEST_CASE("more groups than the unit takes become all-multicast, as many as it takes do not", "[host][driver]") {
  DriverBench bench;
  const std::size_t groups = wire::kMaxMulticastFilters + GENERATE(0U, 1U);
  bench.nic.current = {
      .mac = kAssigned, .mtu = 1300, .up = true, .promiscuous = false, .all_multicast = false, .multicast = {}};
  bench.come_up();
  bench.events.requests.clear();
  for (std::size_t number = 0; number < groups; ++number) {
    bench.nic.current.multicast.push_back(
        {{1, 0, 0x5e, 0, static_cast<std::uint8_t>(number >> 8U), static_cast<std::uint8_t>(number)}});
  }
  bench.run(milliseconds(100));
  const bool too_many = groups > wire::kMaxMulticastFilters;
  for (const auto& filter : bench.events.all<wire::ReceiveFilter>()) {
    CHECK(filter.all_multicast == too_many);
    CHECK(filter.multicast.size() == (too_many ? 0 : groups));
  }
  CHECK((bench.events.all<wire::ReceiveFilter>().size() == 1 || bench.notices.with("does not take settings") > 0));
}

TEST_CASE("the LAN's carrier and MTU reach the nic", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  REQUIRE(bench.unit().request(wire::LinkState{.up = false, .speed_mbps = 0, .max_mtu = 1280}));
  bench.run(milliseconds(20));
  CHECK_FALSE(bench.driver().carrier());
  CHECK_FALSE(bench.nic.carriers.back());
  CHECK(bench.nic.max_mtus.back() == 1280);
  CHECK(bench.notices.with("the LAN has no carrier") == 1);
  REQUIRE(bench.unit().request(wire::LinkState{.up = true, .speed_mbps = 0, .max_mtu = 1280}));
  bench.run(milliseconds(20));
  CHECK(bench.nic.carriers.back());
}

TEST_CASE("a nic has no carrier while its driver has no session", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  REQUIRE(bench.nic.carriers.back());
  bench.die();
  bench.run(milliseconds(50));
  CHECK_FALSE(bench.nic.carriers.back());
  CHECK_FALSE(bench.driver().carrier());
  CHECK(bench.notices.with("down: ") == 1);
}

TEST_CASE("frames that a nic refuses are counted, and the unit is told after a second", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.nic.refuses = true;
  bench.send(60);
  bench.run(milliseconds(900));
  CHECK(bench.driver().counters().rx_refused_by_nic == 1);
  CHECK(bench.events.all<wire::StatusReport>().empty());
  bench.run(milliseconds(200));
  bench.send(60);
  bench.run(milliseconds(20));
  CHECK(bench.driver().counters().rx_refused_by_nic == 2);
  CHECK(bench.events.all<wire::StatusReport>().size() == 1);
  bench.nic.refuses = false;
  bench.send(60);
  bench.run(milliseconds(20));
  CHECK(bench.nic.got.size() == 1);
  CHECK(bench.driver().counters().rx_refused_by_nic == 2);
}

TEST_CASE("a nic is not read while the unit has no element, and each such wait counts once", "[host][driver]") {
  DriverBench bench(16);
  bench.come_up();
  bench.unit_stopped = true;
  for (int frame = 0; frame < 20; ++frame) bench.nic.to_send.emplace_back(60);
  bench.run(milliseconds(20));
  CHECK(bench.nic.to_send.size() == 4);
  CHECK(bench.driver().counters().tx_waits == 1);
  bench.unit_stopped = false;
  bench.run(milliseconds(200));
  CHECK(bench.nic.to_send.empty());
  CHECK(bench.events.frames.size() == 20);
}

TEST_CASE("the unit's counters are asked for every five seconds", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  CHECK(bench.events.all<wire::StatisticsReport>().size() == 1);
  bench.run(milliseconds(4900));
  CHECK(bench.events.all<wire::StatisticsReport>().size() == 1);
  bench.run(milliseconds(200));
  CHECK(bench.events.all<wire::StatisticsReport>().size() == 2);
}

}  // namespace splitnic::host
