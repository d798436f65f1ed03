// Hosts with several queues at the unit: bridges whose sessions carry frames alone.
#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_queues_test {
namespace {

constexpr std::uint64_t kCookie = 0x1234;

fabric::SimBridgeOptions with_cookie(std::uint64_t cookie) {
  auto bridge = plain_bridge();
  bridge.group.cookie = cookie;
  return bridge;
}

/// A host "a" whose session may have further queues, and a host "b" with one queue.
struct QueuesBench : UnitBench {
  TestHost& a = wait_up(connect(host_named("a"), with_cookie(kCookie)));
  TestHost& b = host_up("b");

  TestHost& queue_up() {
    TestHost& queue = connect_queue("a", kCookie);
    REQUIRE(run_until([&] { return queue.up(); }));
    settle();
    return queue;
  }
  [[nodiscard]] std::size_t queues() { return attached("a")->queues_up(); }
};

TEST_CASE_METHOD(QueuesBench, "a further queue carries frames of its host both ways", "[iounit][queues]") {
  TestHost& queue = queue_up();
  CHECK(queues() == 2);
  CHECK(unit().hosts_up() == 2);
  CHECK(queue.mac() == a.mac());
  from_host(queue, make_frame(station(1), a.mac()), 3);
  CHECK(lan.sent.size() == 3);
  // The other direction of this flow takes the same queue.
  from_lan(make_frame(a.mac(), station(1)), 2);
  CHECK(queue.frames.size() == 2);
  CHECK(a.frames.empty());
  from_host(b, make_frame(a.mac(), b.mac()));
  CHECK(a.frames.size() + queue.frames.size() == 3);
  CHECK(attached("a")->counters().rx_frames == 3);
  CHECK(sum().in == sum().delivered + sum().dropped);
}

TEST_CASE_METHOD(QueuesBench, "frames in a further queue are judged as those of its host", "[iounit][queues]") {
  TestHost& queue = queue_up();
  from_host(queue, make_frame(station(1), b.mac()));
  from_host(queue, make_frame(station(1), station(9)));
  CHECK(drops() == Drops{{"a/from_host_forged", 1}, {"a/from_host_not_allowed", 1}});
  CHECK(lan.sent.empty());
}

TEST_CASE_METHOD(QueuesBench, "a further queue changes no settings", "[iounit][queues]") {
  TestHost& queue = queue_up();
  for (const wire::RequestBody& request :
       {wire::RequestBody(wire::SetMacAddress{station(5)}), wire::RequestBody(wire::SetMtu{1000}),
        wire::RequestBody(wire::ReceiveFilter{.promiscuous = true}), wire::RequestBody(wire::VlanFilter{}),
        wire::RequestBody(wire::StatisticsReport{}), wire::RequestBody(wire::StatisticsClear{})}) {
    const auto answer = ask(queue, request);
    REQUIRE_FALSE(answer);
    CHECK(answer.error().status == wire::CfgStatus::not_permitted);
  }
  CHECK(grants(queue, wire::LinkState{.up = false}));
  CHECK(attached("a")->interface_up());
  CHECK(attached("a")->mac() == a.mac());
}

TEST_CASE_METHOD(QueuesBench, "a queue with another name, in mode S or without a data channel is refused",
                 "[iounit][queues]") {
  auto bridge = with_cookie(kCookie);
  bridge.group.further = true;
  auto other_name = host_named("b");
  auto mode_s = host_named("a");
  mode_s.mode = wire::Mode::send;
  auto no_data = host_named("a");
  no_data.data_channel = false;
  for (const auto& options : {other_name, mode_s, no_data}) {
    TestHost& queue = connect(options, bridge);
    REQUIRE(run_until([&] { return !queue.downs.empty(); }));
    CHECK_FALSE(queue.up());
    queue.die();
    settle();
  }
  CHECK(queues() == 1);
  CHECK(a.up());
}

TEST_CASE_METHOD(QueuesBench, "a queue of no session, or one too many, is closed and harms nobody",
                 "[iounit][queues]") {
  TestHost& stray = connect_queue("a", kCookie + 1);
  settle();
  CHECK(stray.released);
  for (std::size_t queue = 1; queue < kMaxQueues; ++queue) queue_up();
  CHECK(queues() == kMaxQueues);
  TestHost& too_many = connect_queue("a", kCookie);
  settle();
  CHECK(too_many.released);
  CHECK(unit().counters().queues_refused == 2);
  CHECK(notices.any_contains("refused a further queue of host a"));
  CHECK(queues() == kMaxQueues);
}

TEST_CASE_METHOD(QueuesBench, "the queues of a session end with it", "[iounit][queues]") {
  TestHost& queue = queue_up();
  from_host(queue, make_frame(station(1), a.mac()), 3);
  a.die();
  settle();
  CHECK(queue.released);
  CHECK(attached("a") == nullptr);
  CHECK(unit().counters().departed_rx_frames == 3);
  CHECK(sum().in == sum().delivered + sum().dropped);
}

TEST_CASE_METHOD(QueuesBench, "a session that begins anew over its bridge has none of the last one's queues",
                 "[iounit][queues]") {
  TestHost& queue = queue_up();
  a.session().reset("test");
  REQUIRE(run_until([&] { return !a.downs.empty() && a.up(); }));
  settle();
  CHECK(queue.released);
  CHECK(queues() == 1);
  queue_up();
  CHECK(queues() == 2);
}

TEST_CASE_METHOD(QueuesBench, "a queue that dies leaves its flows to the others", "[iounit][queues]") {
  TestHost& queue = queue_up();
  from_host(queue, make_frame(station(1), a.mac()));
  queue.die();
  settle();
  CHECK(queue.released);
  CHECK(queues() == 1);
  from_lan(make_frame(a.mac(), station(1)));
  CHECK(a.frames.size() == 1);
  CHECK(attached("a")->counters().rx_frames == 1);
}

TEST_CASE_METHOD(QueuesBench, "a queue whose session does not come up is closed after ten seconds",
                 "[iounit][queues]") {
  auto bridge = with_cookie(kCookie);
  bridge.group.further = true;
  messaging::SessionOptions silent;
  silent.name.clear();
  TestHost& queue = connect(silent, bridge);
  run(kDownLimit - std::chrono::seconds(1));
  CHECK_FALSE(queue.released);
  run(std::chrono::seconds(2));
  CHECK(queue.released);
  CHECK(a.up());
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_queues_test
