#pragma once

// Several I/O units of one group in simulated time and in one thread, each with a part of the hosts and a LAN in memory
// that stands for its share of the wire.

#include <catch2/catch.hpp>

#include "iounit/group_lan.h"
#include "iounit/unit_group.h"
#include "unit_bench.h"

namespace splitnic::iounit::test {

class GroupBench : public HostsBench {
 public:
  struct Member {
    Member(GroupBench& bench, UnitNumber number, IoUnitOptions options)
        : lan(bench.shared, number, wire), unit([&] {
            options.group = &lan;
            return std::make_unique<IoUnit>(options, lan, bridges, bench.random, bench.notices);
          }()) {}
    MemoryLan wire;
    GroupLan lan;
    BridgeQueue bridges;
    std::unique_ptr<IoUnit> unit;
  };

  explicit GroupBench(std::size_t units, IoUnitOptions options = {}, std::uint64_t seed = 1,
                      std::size_t ring_bytes = 256U << 10U)
      : HostsBench(seed), shared({.units = units, .ring_bytes = ring_bytes, .policy = options.policy}, random) {
    options.session.name = "unit";
    options.session.pool_elements = options.session.offloads ? 128 : 16;
    for (std::uint16_t number = 0; number < units; ++number) {
      members.push_back(std::make_unique<Member>(*this, UnitNumber{number}, options));
    }
  }

  UnitGroup shared;
  std::vector<std::unique_ptr<Member>> members;

  [[nodiscard]] Member& at(std::size_t unit) { return *members[unit]; }
  [[nodiscard]] IoUnit& unit(std::size_t number) { return *members[number]->unit; }

  TestHost& connect(std::size_t unit, const messaging::SessionOptions& options, uid_t user = 0) {
    auto bridge = plain_bridge();
    if (user != 0) bridge.processes[0] = fabric::BridgePeer{.pid = 1, .uid = user, .gid = 100};
    return add_host(at(unit).bridges, options, bridge);
  }
  TestHost& host_up(std::size_t unit, const messaging::SessionOptions& options) {
    TestHost& host = connect(unit, options);
    REQUIRE(run_until([&] { return host.up() && attached(unit, host.name) != nullptr; }));
    settle();
    return host;
  }
  TestHost& host_up(std::size_t unit, const std::string& name) { return host_up(unit, host_named(name)); }
  [[nodiscard]] AttachedHost* attached(std::size_t number, const std::string& name) {
    return attached_to(unit(number), name);
  }

  std::size_t step() override {
    std::size_t work = poll_hosts();
    for (auto& member : members) work += member->unit->poll(now());
    advance_bridges();
    return work;
  }

  /// A frame of the LAN, which the wire gives to this unit.
  void from_lan(std::size_t unit, const Frame& frame, std::size_t times = 1) {
    for (std::size_t i = 0; i < times; ++i) at(unit).wire.arriving.push_back(frame);
    settle();
  }

  /// What all units have sent on the wire since the last call.
  std::vector<Frame> wire_got() {
    std::vector<Frame> frames;
    for (auto& member : members) {
      frames.insert(frames.end(), member->wire.sent.begin(), member->wire.sent.end());
      member->wire.sent.clear();
    }
    return frames;
  }
  void clear() {
    for (auto& host : hosts_) {
      host->frames.clear();
      host->offloads.clear();
    }
    static_cast<void>(wire_got());
  }

  /// Every counter of a lost frame that is not zero, by name: of all units, and of hosts as "HOST/...".
  [[nodiscard]] Drops drops() {
    Drops all;
    for (const auto& member : members) {
      add_drops(all, *member->unit);
      const GroupLanCounters& handed = member->lan.group_counters();
      if (handed.full != 0) all["handover_full"] += handed.full;
      if (handed.refused != 0) all["handover_refused"] += handed.refused;
    }
    return all;
  }
  /// No frame is lost without a cause: in each unit, in each GroupLan, and in all of them together.
  void require_sums() {
    std::uint64_t handed = 0;
    std::uint64_t taken = 0;
    std::uint64_t in = 0;
    std::uint64_t out = 0;
    for (const auto& member : members) {
      const auto& lan = member->lan.group_counters();
      REQUIRE(lan.from_wire + lan.from_unit + lan.from_others + lan.copies ==
              lan.to_unit + lan.to_wire + lan.to_others + lan.full + lan.refused);
      handed += lan.to_others;
      taken += lan.from_others;
      const auto& counters = member->unit->counters();
      REQUIRE(counters.lan_frames == lan.to_unit);
      std::uint64_t unit_in = counters.lan_frames + counters.copies + counters.departed_rx_frames;
      std::uint64_t unit_out = lan.from_unit + counters.departed_tx_frames + counters.departed_drops +
                               counters.lan_merged + counters.to_lan_merged;
      for (std::size_t index = 0; index < kLanDrops; ++index) unit_out += counters.lan_drops[index];
      for (const auto& host : member->unit->hosts()) {
        if (!host) continue;
        unit_in += host->counters().rx_frames;
        unit_out += host->counters().tx_frames;
        for (std::size_t index = 0; index < kHostDrops; ++index) unit_out += host->drops(static_cast<HostDrop>(index));
      }
      REQUIRE(unit_in == unit_out);
      REQUIRE(lan.from_wire == member->wire.counters().rx_frames);
      REQUIRE(lan.to_wire == member->wire.counters().tx_frames);
      in += lan.from_wire + lan.copies + unit_in - counters.lan_frames;
      out += lan.to_wire + lan.full + lan.refused + unit_out - lan.from_unit;
    }
    REQUIRE(handed == taken);
    REQUIRE(in == out);
  }

 private:
  [[nodiscard]] Time next_event() const override {
    Time next = next_of_hosts();
    for (const auto& member : members) next = std::min(next, member->unit->next_deadline());
    return next;
  }
  [[nodiscard]] bool quiet() const override {
    return std::ranges::all_of(members, [](const auto& member) { return member->wire.arriving.empty(); });
  }
};

}  // namespace splitnic::iounit::test
