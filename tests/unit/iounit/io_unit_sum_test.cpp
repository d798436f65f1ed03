// Random traffic from a seed: for every class of destination, what came in is what was delivered and what was dropped.
#include <catch2/catch.hpp>
#include <set>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_sum_test {
namespace {

enum class To { host, behind_host, sender, station, nobody, group, broadcast, zero };
constexpr std::size_t kClasses = 8;
enum class From { own, behind, another_host, station, group, zero };

/// Hosts with every kind of setting that decides about a frame, and frames of every class between them and the LAN.
class RandomTraffic {
 public:
  explicit RandomTraffic(std::uint64_t seed) : bench_(options(), 1500, seed), draw_(seed * 977) {
    for (const char* name : {"a", "b", "c", "small"}) {
      auto session = host_named(name);
      session.pool_elements = 4;
      if (session.name == "small") session.max_mtu = 600;
      hosts_.push_back(&bench_.host_up(session));
    }
  }

  void run(unsigned frames) {
    for (unsigned frame = 0; frame < frames; ++frame) {
      if (frame % 25 == 0) change_settings();
      one_frame();
    }
    for (TestHost* host : hosts_) host->paused = false;
    bench_.run(std::chrono::milliseconds(100));
  }

  struct Class {
    std::uint64_t frames = 0;
    std::uint64_t in = 0;
    std::uint64_t delivered = 0;
    std::uint64_t dropped = 0;
  };
  std::array<Class, kClasses> classes;
  std::set<std::string> causes;  ///< that came up, without the host

 private:
  static IoUnitOptions options() {
    IoUnitOptions options;
    options.policy.others.foreign_sources = true;
    options.policy.others.promiscuous = true;
    options.policy.allow("c", station(201));
    options.policy.allow("c", station(202));
    return options;
  }
  static MacAddress behind(std::size_t host) { return {{2, 0, 0, 0, 0x55, static_cast<std::uint8_t>(host)}}; }
  bool one_in(std::uint64_t n) { return draw_.below(n) == 0; }

  void change_settings() {
    for (TestHost* host : hosts_) {
      host->paused = false;
      bench_.run(std::chrono::milliseconds(60));  // elements return
      wire::ReceiveFilter filter{.all_multicast = one_in(4), .promiscuous = one_in(5)};
      if (one_in(2)) filter.multicast = {group(1)};
      if (one_in(3)) filter.unicast = {behind(draw_.below(hosts_.size()))};
      REQUIRE(bench_.grants(*host, filter));
      wire::VlanFilter vlans;
      if (one_in(3)) vlans.only = {5};
      REQUIRE(bench_.grants(*host, vlans));
      REQUIRE(bench_.grants(*host, wire::LinkState{.up = !one_in(6)}));
    }
    for (TestHost* host : hosts_) host->paused = one_in(8);
    bench_.lan.refuses = one_in(6);
  }

  MacAddress destination(To to, std::size_t sender, const MacAddress& source) {
    switch (to) {
      case To::host:
        return hosts_[draw_.below(hosts_.size())]->mac();
      case To::behind_host:
        return behind(draw_.below(hosts_.size()));
      case To::sender:
        return sender < hosts_.size() ? hosts_[sender]->mac() : source;
      case To::station:
        return station(static_cast<unsigned>(draw_.below(3)));
      case To::nobody:
        return {{2, 0, 0, 0, 0x99, static_cast<std::uint8_t>(draw_.below(256))}};
      case To::group:
        return group(static_cast<unsigned>(1 + draw_.below(2)));
      case To::broadcast:
        return kBroadcastMac;
      case To::zero:
        break;
    }
    return {};
  }

  MacAddress source(std::size_t sender) {
    const bool of_lan = sender == hosts_.size();
    const auto kind = one_in(4) ? static_cast<From>(draw_.below(6)) : of_lan ? From::station : From::own;
    switch (kind) {
      case From::own:
      case From::another_host: {
        const bool own = kind == From::own && !of_lan;
        return hosts_[own ? sender : draw_.below(hosts_.size())]->mac();
      }
      case From::behind:
        return of_lan ? station(7) : behind(sender);
      case From::station:
        return station(static_cast<unsigned>(draw_.below(3)));
      case From::group:
        return group(1);
      case From::zero:
        break;
    }
    return {};
  }

  void one_frame() {
    const std::size_t sender = draw_.below(hosts_.size() + 1);
    const MacAddress from = source(sender);
    const auto to = static_cast<To>(draw_.below(kClasses));
    FrameOptions options;
    for (auto tags = one_in(3) ? 1 + draw_.below(2) : 0; tags > 0; --tags) {
      options.vlans.push_back(static_cast<std::uint16_t>(5 + draw_.below(2)));
    }
    static constexpr std::array<std::size_t, 6> kSizes{46, 500, 700, 1500, 1501, 1504};
    options.payload_bytes = kSizes[draw_.below(kSizes.size())];
    Frame frame = make_frame(destination(to, sender, from), from, options);
    if (one_in(20)) frame.resize(14 + draw_.below(4));

    const auto before = bench_.sum();
    const auto drops_before = bench_.drops();
    const std::uint64_t copies_before = bench_.unit().counters().copies;
    if (sender == hosts_.size()) {
      bench_.from_lan(frame);
    } else if (hosts_[sender]->paused || !hosts_[sender]->send(frame)) {
      return;  // it has no element of the unit's, or the frame is longer than one
    }
    bench_.settle();
    const auto after = bench_.sum();
    auto& tally = classes[static_cast<std::size_t>(to)];
    ++tally.frames;
    tally.in += after.in - before.in;
    tally.delivered += after.delivered - before.delivered;
    tally.dropped += after.dropped - before.dropped;
    for (const auto& [name, count] : bench_.drops()) {
      const auto known = drops_before.find(name);
      if (known == drops_before.end() || known->second != count) causes.insert(name.substr(name.find('/') + 1));
    }
    const std::uint64_t copies = bench_.unit().counters().copies - copies_before;
    INFO("class " << static_cast<int>(to) << ", sender " << sender << ", " << frame.size() << " bytes");
    REQUIRE(after.in - before.in == 1 + copies);
    REQUIRE(after.in - before.in == after.delivered - before.delivered + after.dropped - before.dropped);
  }

  UnitBench bench_;
  SeededRandom draw_;
  std::vector<TestHost*> hosts_;
};

TEST_CASE("of random traffic every frame is delivered or dropped under one cause, in every class of destination",
          "[iounit][drops]") {
  std::set<std::string> causes;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    INFO("seed " << seed);
    RandomTraffic traffic(seed);
    traffic.run(400);
    for (std::size_t index = 0; index < kClasses; ++index) {
      INFO("class " << index);
      const auto& tally = traffic.classes[index];
      REQUIRE(tally.frames > 10);
      REQUIRE(tally.in >= tally.frames);
      REQUIRE(tally.in == tally.delivered + tally.dropped);
    }
    causes.insert(traffic.causes.begin(), traffic.causes.end());
  }
  // It is no test of nothing: nearly every cause came up.
  for (const char* cause : {"lan_malformed", "lan_bad_source", "lan_forged", "lan_to_lan", "lan_unwanted",
                            "lan_oversize", "to_host_interface_down", "to_host_filtered", "from_host_over_share",
                            "to_host_too_long", "from_host_malformed", "from_host_bad_source", "from_host_not_allowed",
                            "from_host_forged", "from_host_to_itself", "from_host_too_long", "from_host_lan_refused"}) {
    INFO(cause);
    CHECK(causes.contains(cause));
  }
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_sum_test
