// Random traffic through three units, from a seed: no frame is lost without a cause, none is invented, and hosts that
// move from unit to unit stay reachable.
#include <catch2/catch.hpp>
#include <set>

#include "group_bench.h"

namespace splitnic::iounit::test::io_unit_group_sum_test {
namespace {

constexpr std::size_t kUnits = 3;

class RandomTraffic {
 public:
  explicit RandomTraffic(std::uint64_t seed) : bench_(kUnits, trusting_options(), seed, 256U << 10U), draw_(seed * 31) {
    for (unsigned number = 0; number < 6; ++number) add_host("h" + std::to_string(number), number % kUnits);
  }

  void run(unsigned frames) {
    for (unsigned frame = 0; frame < frames; ++frame) {
      if (frame % 20 == 0) change_something();
      one_frame();
    }
    for (auto& [host, unit] : hosts_) host->paused = false;
    bench_.run(std::chrono::milliseconds(100));
    bench_.require_sums();
    for (const auto& [name, count] : bench_.drops()) causes.insert(name.substr(name.find('/') + 1));
    for (const auto& member : bench_.members) handed += member->lan.group_counters().to_others;
  }

  std::set<std::string> causes;
  std::uint64_t handed = 0;

 private:
  struct Attached {
    TestHost* host;
    std::size_t unit;
  };
  bool one_in(std::uint64_t n) { return draw_.below(n) == 0; }
  Attached& any() { return hosts_[draw_.below(hosts_.size())]; }
  static MacAddress behind(std::uint64_t host) { return {{2, 0, 0, 0, 0x55, static_cast<std::uint8_t>(host)}}; }

  void add_host(const std::string& name, std::size_t unit) {
    auto session = host_named(name);
    session.pool_elements = 8;
    hosts_.push_back({&bench_.host_up(unit, session), unit});
  }
  void change_something() {
    for (auto& [host, unit] : hosts_) host->paused = false;
    bench_.run(std::chrono::milliseconds(60));
    for (auto& [host, unit] : hosts_) {
      wire::ReceiveFilter filter{.all_multicast = one_in(4), .promiscuous = one_in(6)};
      if (one_in(2)) filter.multicast = {group(1)};
      if (one_in(3)) filter.unicast = {behind(draw_.below(hosts_.size()))};
      REQUIRE(bench_.grants(*host, filter));
    }
    if (one_in(3)) move_a_host();
    for (auto& [host, unit] : hosts_) host->paused = one_in(10);
    for (auto& member : bench_.members) member->wire.refuses = one_in(8);
  }
  /// It has its address at its new unit, and every other host reaches it there with one frame.
  void move_a_host() {
    const std::size_t which = draw_.below(hosts_.size());
    const Attached gone = hosts_[which];
    const MacAddress address = gone.host->mac();
    gone.host->die();
    REQUIRE(bench_.run_until([&] { return bench_.attached(gone.unit, gone.host->name) == nullptr; }));
    hosts_.erase(hosts_.begin() + static_cast<std::ptrdiff_t>(which));
    add_host(gone.host->name, draw_.below(kUnits));
    TestHost& back = *hosts_.back().host;
    REQUIRE(back.mac() == address);
    for (auto& [host, unit] : hosts_) {
      if (host == &back || !host->up()) continue;
      back.frames.clear();
      const Frame frame = make_frame(address, host->mac());
      if (!host->send(frame)) continue;
      bench_.settle();
      REQUIRE(back.frames == std::vector<Frame>{frame});
    }
  }
  MacAddress destination() {
    switch (draw_.below(7)) {
      case 0:
      case 1:
        return any().host->mac();
      case 2:
        return behind(draw_.below(hosts_.size()));
      case 3:
        return station(static_cast<unsigned>(draw_.below(3)));
      case 4:
        return {{2, 0, 0, 0, 0x99, static_cast<std::uint8_t>(draw_.below(256))}};
      case 5:
        return group(static_cast<unsigned>(1 + draw_.below(2)));
      default:
        return kBroadcastMac;
    }
  }
  void one_frame() {
    const std::size_t sender = draw_.below(hosts_.size() + kUnits);
    MacAddress source = sender < hosts_.size() ? hosts_[sender].host->mac() : station(10);
    if (one_in(5)) source = one_in(2) ? behind(draw_.below(hosts_.size())) : any().host->mac();
    if (one_in(20)) source = group(1);
    FrameOptions options;
    if (one_in(3)) options.vlans.push_back(static_cast<std::uint16_t>(5 + draw_.below(2)));
    options.payload_bytes = one_in(9) ? 1504 : 46 + draw_.below(1400);
    Frame frame = make_frame(destination(), source, options);
    if (one_in(30)) frame.resize(14 + draw_.below(4));
    if (sender >= hosts_.size()) {
      bench_.from_lan(sender - hosts_.size(), frame);
    } else if (hosts_[sender].host->paused || !hosts_[sender].host->send(frame)) {
      return;
    }
    bench_.settle();
    bench_.require_sums();
  }

  GroupBench bench_;
  SeededRandom draw_;
  std::vector<Attached> hosts_;
};

TEST_CASE("of random traffic through three units every frame is delivered or dropped under one cause",
          "[iounit][group][drops]") {
  std::set<std::string> causes;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    RandomTraffic traffic(seed);
    traffic.run(300);
    CHECK(traffic.handed > 100);
    causes.insert(traffic.causes.begin(), traffic.causes.end());
  }
  for (const char* cause : {"lan_malformed", "lan_bad_source", "lan_forged", "lan_to_lan", "lan_unwanted",
                            "to_host_filtered", "from_host_forged", "from_host_to_itself", "from_host_too_long",
                            "from_host_lan_refused", "from_host_bad_source"}) {
    INFO(cause);
    CHECK(causes.contains(cause));
  }
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_group_sum_test
