#include "host/tap_queue.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/unit/common/packet_builder.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::host::tap_queue_test {
namespace {

using namespace std::chrono_literals;

// Q1. The thread that serves the queue passes a frame when the other one has asked to be called, and before or after it
// has looked a last time. Where the processor keeps the order by itself, this proves nothing about Q1.
TEST_CASE("no frame passes a further queue between the last look and the sleep of the NIC's thread",
          "[host][tap][queues][threads]") {
  constexpr int kFrames = 2'000;
  os::EventBell bell;
  TapQueue queue(bell);
  std::atomic<int> wanted{0};
  std::thread server([&] {
    std::vector<std::byte> frame(60);
    for (int number = 1; number <= kFrames; ++number) {
      while (wanted.load(std::memory_order_acquire) < number) std::this_thread::yield();
      static_cast<void>(queue.write_frame({fabric::PeerMemory::over(frame.data(), frame.size())}));
    }
  });
  int missed = 0;
  for (int number = 1; number <= kFrames; ++number) {
    wanted.store(number, std::memory_order_release);
    while (!queue.take_passed(true)) {
      if (!testing::readable({bell.descriptor()}, 10s)) ++missed;
      bell.heard();
      if (missed != 0) break;
    }
    if (missed != 0) break;
  }
  wanted.store(kFrames, std::memory_order_release);
  server.join();
  CHECK(missed == 0);
}

TEST_CASE("a further queue rings for one frame and for one report, until the NIC has looked", "[host][tap][queues]") {
  os::EventBell bell;
  TapQueue queue(bell);
  const auto rung = [&] { return bell.heard(); };
  const auto report = [&] { queue.note_read(splitnic::test::igmp(0x22)); };
  const auto frame = [&] { queue.note_read(std::vector<std::byte>(60)); };
  frame();
  CHECK_FALSE(rung());  // nobody has asked
  CHECK(queue.take_passed(true));
  CHECK_FALSE(queue.take_passed(true));
  frame();
  CHECK(rung());
  frame();
  CHECK_FALSE(rung());
  CHECK(queue.take_passed(false));
  frame();
  CHECK_FALSE(rung());
  CHECK_FALSE(queue.take_report());
  report();
  report();
  CHECK(rung());
  CHECK_FALSE(rung());
  CHECK(queue.take_report());
  CHECK_FALSE(queue.take_report());
}

}  // namespace
}  // namespace splitnic::host::tap_queue_test
