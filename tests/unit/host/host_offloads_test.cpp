// The host driver and frames that its NIC, or the I/O unit, leaves unfinished.
#include <catch2/catch.hpp>

#include "driver_bench.h"

namespace splitnic::host::test::host_offloads_test {
namespace {

constexpr frame::FrameOffload kTcp{true, 34, 16, frame::SegmentKind::tcp_v4, 1448, 54};
constexpr NicOffloads kNone;
constexpr NicOffloads kTcpOnly{.frames = true};
constexpr NicOffloads kAll{.frames = true, .udp_segments = true};

messaging::SessionOptions offloading() {
  auto options = host_options();
  options.pool_elements = 128;
  options.offloads = options.udp_segments = true;
  return options;
}

/// A driver whose NIC can do so much. The session's options are those of `splitnic host --offloads on`, or off.
struct Bench : DriverBench {
  Bench(const NicOffloads& of_nic, const NicOffloads& of_unit, bool on = true) : Bench(of_nic, of_unit, options(on)) {}
  static messaging::SessionOptions options(bool on) {
    auto options = offloading();
    options.offloads = options.udp_segments = on;
    return options;
  }

 private:
  Bench(const NicOffloads& of_nic, const NicOffloads& of_unit, const messaging::SessionOptions& options)
      : DriverBench(options, 128, of_nic) {
    unit.able = of_unit;
    come_up();
  }
};

}  // namespace

TEST_CASE("the driver permits its NIC what the NIC, the unit and the options can do together", "[host][offload]") {
  struct Row {
    NicOffloads nic, unit;
    bool on;
    NicOffloads together;
  };
  const Row rows[] = {
      {kAll, kAll, true, kAll},   {kAll, kTcpOnly, true, kTcpOnly}, {kTcpOnly, kAll, true, kTcpOnly},
      {kNone, kAll, true, kNone}, {kAll, kNone, true, kNone},       {kAll, kAll, false, kNone},
  };
  for (const Row& row : rows) {
    Bench bench(row.nic, row.unit, row.on);
    CHECK(bench.nic.permitted == std::vector{row.together});
    CHECK(bench.driver().session()->offloads() == row.together.frames);
    CHECK(bench.driver().session()->udp_segments() == row.together.udp_segments);
    CHECK(bench.notices.count("mode R with offloads") == (row.together.frames ? 1 : 0));
  }
}

TEST_CASE("super-frames pass the driver whole with their metadata, both ways", "[host][offload]") {
  Bench bench(kAll, kAll);
  bench.nic.sending_offload = kTcp;
  const Frame out = frame_of(50000, 7), small = frame_of(60, 8);
  bench.nic.sending = {small, out, small};
  bench.settle();
  CHECK(bench.unit.frames == std::vector{small, out, small});
  CHECK(bench.unit.offloads == std::vector<frame::FrameOffload>{{}, kTcp, {}});
  const Frame in = frame_of(65000, 9);
  REQUIRE(bench.unit.send(in, kTcp));
  bench.settle();
  CHECK(bench.nic.received == std::vector<Frame>{in});
  CHECK(bench.nic.received_offloads == std::vector{kTcp});
  CHECK(bench.driver().counters().rx_bytes == in.size());
}

TEST_CASE("one poll takes a few super-frames, so that the unit can begin with them", "[host][offload]") {
  auto options = offloading();
  options.pool_elements = 1000;
  DriverBench bench(options, 1000, kAll);
  bench.unit.able = kAll;
  bench.come_up();
  bench.nic.sending_offload = kTcp;
  for (unsigned n = 0; n < 10; ++n) bench.nic.sending.push_back(frame_of(64000, n));
  bench.driver().poll(bench.now());
  CHECK(bench.nic.sending.size() == 5);  // 256 KiB are in five of them
  bench.settle();
  CHECK(bench.unit.frames.size() == 10);
}

TEST_CASE("without offloads the NIC is asked for complete frames only", "[host][offload]") {
  Bench bench(kAll, kNone);
  bench.nic.sending_offload = kTcp;
  bench.nic.sending = {frame_of(1522)};
  bench.settle();
  CHECK(bench.unit.frames.size() == 1);
  CHECK_FALSE(bench.unit.offloads.front().asks_for_work());
}

}  // namespace splitnic::host::test::host_offloads_test
