#include "tools/unit_status.h"

#include <catch2/catch.hpp>

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

}  // namespace
}  // namespace splitnic::tools::unit_status_test
