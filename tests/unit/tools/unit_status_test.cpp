#include "tools/unit_status.h"

#include <catch2/catch.hpp>
#include <optional>

#include "tests/unit/quiet_log.h"

namespace splitnic::tools::unit_status_test {
namespace {

UnitReport report(const std::string& host, std::uint64_t drops, std::uint64_t count, bool carrier = true) {
  UnitReport made;
  made.status.lan = "eth0";
  made.status.mtu = 1500;
  made.status.carrier = carrier;
  made.status.peers.emplace_back().name = host;
  made.status.drops = {{"lan_unwanted", drops}};
  made.status.counts = {{"copies", count}};
  made.hosts.emplace_back();
  return made;
}

std::uint64_t value_of(const std::vector<os::NamedCount>& counts, const std::string& name) {
  const auto at = std::ranges::find(counts, name, &os::NamedCount::name);
  REQUIRE(at != counts.end());
  return at->count;
}

TEST_CASE("the units of a daemon answer as one: their peers, and the sums of their counts", "[tools][status]") {
  os::ClearedCounts cleared;
  const auto ask = [&](os::ControlRequest request, std::uint64_t more, bool carrier = true) {
    std::vector<UnitReport> reports;
    reports.push_back(report("a", 3 + more, 10));
    reports.push_back(report("b", 4, 20 + more, carrier));
    reports.back().status.drops.push_back({"handover_full", 5});
    return answer_of(request, std::move(reports), {}, {.spins_paid = 7}, testing::quiet_log(), "unit", cleared);
  };
  auto status = ask(os::ControlRequest::status, 0);
  CHECK(status.role == "iounit");
  CHECK(status.name == "unit");
  CHECK(status.threads == 2);
  CHECK(status.lan == "eth0");
  CHECK(status.mtu == 1500);
  CHECK(status.carrier);
  REQUIRE(status.peers.size() == 2);
  CHECK(status.peers[0].name == "a");
  CHECK(status.peers[1].name == "b");
  CHECK(value_of(status.drops, "lan_unwanted") == 7);
  CHECK(value_of(status.drops, "handover_full") == 5);
  CHECK(value_of(status.counts, "copies") == 30);
  CHECK(value_of(status.counts, "spins_paid") == 7);
  CHECK_FALSE(ask(os::ControlRequest::clear, 0, false).carrier);
  status = ask(os::ControlRequest::status, 2);
  CHECK(value_of(status.drops, "lan_unwanted") == 2);
  CHECK(value_of(status.drops, "handover_full") == 0);
  CHECK(value_of(status.counts, "copies") == 2);
  CHECK(status.threads == 2);
}

TEST_CASE("a clear leaves the number of a host's queues, and stays in force when that number falls",
          "[tools][status]") {
  os::ClearedCounts cleared;
  const auto ask = [&](os::ControlRequest request, std::uint64_t frames, std::uint64_t queues) {
    std::vector<UnitReport> reports;
    for (const std::string host : {"a", "b"}) {
      reports.push_back(report(host, 0, 0));
      reports.back().status.peers[0].tx_frames = frames;
      reports.back().hosts[0].queues = host == "a" ? 2 : queues;
    }
    return answer_of(request, std::move(reports), {}, {}, testing::quiet_log(), "unit", cleared).peers;
  };
  CHECK(value_of(ask(os::ControlRequest::clear, 100, 1)[1].messages, "queues") == 1);
  for (const std::uint64_t queues : {1U, 0U}) {
    const auto peers = ask(os::ControlRequest::status, 105, queues);
    CHECK(peers[0].tx_frames == 5);
    CHECK(peers[1].tx_frames == 5);
    CHECK(value_of(peers[0].messages, "queues") == 2);
    CHECK(value_of(peers[1].messages, "queues") == queues);
  }
}

TEST_CASE("a clear stays in force for the counts of a host that leaves", "[tools][status]") {
  os::ClearedCounts cleared;
  std::uint64_t before = 0;  // of hosts that have left
  const auto ask = [&](os::ControlRequest request, std::optional<std::uint64_t> attached) {
    std::vector<UnitReport> reports(1);
    os::DaemonStatus& status = reports[0].status;
    if (attached) {
      os::PeerStatus& peer = status.peers.emplace_back();
      peer.name = "a";
      peer.tx_frames = peer.rx_frames = *attached;
      peer.drops = {{"session_faults", *attached}, {"to_host_no_element", *attached}, {"from_host_to_itself", 1}};
      peer.messages = {{"SendData_rx", *attached}, {"processor_ms", *attached}};
      reports[0].hosts.emplace_back();
    }
    for (const std::string name : {"departed_rx_frames", "departed_tx_frames", "departed_SendData_rx"}) {
      status.counts.push_back({name, before});
    }
    status.drops = {{"departed_drops", before}, {"departed_session_faults", before}};
    return answer_of(request, std::move(reports), {}, {}, testing::quiet_log(), "unit", cleared);
  };
  const auto check_departed = [&](const os::DaemonStatus& status, std::uint64_t frames, std::uint64_t drops) {
    for (const std::string name : {"departed_rx_frames", "departed_tx_frames", "departed_SendData_rx"}) {
      CHECK(value_of(status.counts, name) == frames);
    }
    CHECK(value_of(status.drops, "departed_session_faults") == frames);
    CHECK(value_of(status.drops, "departed_drops") == drops);
  };
  ask(os::ControlRequest::clear, 7);
  CHECK(ask(os::ControlRequest::status, 9).peers[0].rx_frames == 2);
  before = 9;  // it has left; the unit has added 9 drops, of which 8 were before the clear
  for (int time = 0; time < 2; ++time) check_departed(ask(os::ControlRequest::status, {}), 2, 1);
  const auto other = ask(os::ControlRequest::status, 100);  // another one of its name
  CHECK(other.peers[0].rx_frames == 100);
  check_departed(other, 2, 1);
  ask(os::ControlRequest::clear, 100);
  before = 109;
  check_departed(ask(os::ControlRequest::status, 3), 0, 0);  // it has restarted
}

}  // namespace
}  // namespace splitnic::tools::unit_status_test
