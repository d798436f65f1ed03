#include "fabric/rdmacm/stream_flow.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

namespace splitnic::rdmacm::stream_flow_test {
namespace {

TEST_CASE("a sender has room for as many bytes as the ring has, in pieces that do not cross its end", "[rdmacm]") {
  SendCredits credits(4096, 64);
  CHECK(credits.room() == 4096);
  credits.sent_bytes(4000);
  CHECK(credits.place() == 4000);
  CHECK(credits.room() == 96);
  credits.sent_bytes(96);
  CHECK(credits.room() == 0);
  CHECK_FALSE(credits.all_consumed());
  REQUIRE(credits.consumed(1000, 2));
  CHECK(credits.place() == 0);
  CHECK(credits.room() == 1000);
  REQUIRE(credits.consumed(4096, 2));
  CHECK(credits.all_consumed());
}

TEST_CASE("the last messages are for control alone", "[rdmacm]") {
  SendCredits credits(1 << 20, 32);
  for (std::uint32_t count = 0; count < 32 - SendCredits::kReserved; ++count) {
    REQUIRE(credits.room() != 0);
    credits.sent_bytes(1);
  }
  CHECK(credits.room() == 0);
  for (std::uint32_t count = 0; count < SendCredits::kReserved; ++count) {
    REQUIRE(credits.may_send_control());
    credits.sent_control();
  }
  CHECK_FALSE(credits.may_send_control());
  REQUIRE(credits.consumed(0, 1));
  CHECK(credits.may_send_control());
}

TEST_CASE("credits for what was never sent, or fewer than before, are a fault", "[rdmacm]") {
  SendCredits credits(4096, 64);
  credits.sent_bytes(100);
  CHECK_FALSE(credits.consumed(101, 1));
  CHECK_FALSE(credits.consumed(100, 2));
  REQUIRE(credits.consumed(100, 1));
  CHECK_FALSE(credits.consumed(99, 1));
  CHECK_FALSE(credits.consumed(100, 0));
}

TEST_CASE("bytes for which the ring has no room are a fault", "[rdmacm]") {
  std::vector<std::byte> memory(4096);
  ReceiveRing ring(memory, 64);
  CHECK_FALSE(ring.arrived(4097));
  REQUIRE(ring.arrived(4000));
  CHECK_FALSE(ring.arrived(97));
  ring.consume(4000);
  // There is room, but not in one piece.
  CHECK_FALSE(ring.arrived(97));
  REQUIRE(ring.arrived(96));
  REQUIRE(ring.arrived(4000));
  CHECK_FALSE(ring.arrived(1));
}

TEST_CASE("the other end is told when it may soon have to wait", "[rdmacm]") {
  std::vector<std::byte> memory(4096);
  ReceiveRing ring(memory, 64);
  REQUIRE(ring.arrived(2000));
  ring.consume(1023);
  CHECK_FALSE(ring.credits_due());
  ring.consume(1);
  CHECK(ring.credits_due());
  ring.told();
  CHECK_FALSE(ring.credits_due());
  ring.posted_again(31);
  CHECK_FALSE(ring.credits_due());
  ring.posted_again(1);
  CHECK(ring.credits_due());
}

TEST_CASE("what is written into the ring is read in order, whatever the sizes", "[rdmacm]") {
  std::vector<std::byte> memory(4096);
  ReceiveRing ring(memory, 64);
  SendCredits credits(4096, 64);
  std::mt19937 random(7);
  std::uint32_t written = 0;
  std::uint32_t read = 0;
  std::uint32_t wrong = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::size_t some = std::min<std::size_t>(credits.room(), random() % 1500);
    if (some != 0) {
      for (std::size_t i = 0; i < some; ++i) memory[credits.place() + i] = static_cast<std::byte>(written++);
      REQUIRE(ring.arrived(some));
      credits.sent_bytes(some);
      ring.posted_again(1);
    }
    std::vector<std::byte> out(random() % 1500);
    const std::size_t peeked = ring.copy_to(out, 1);
    if (peeked != 0 && out[0] != static_cast<std::byte>(read + 1)) ++wrong;
    const std::size_t got = ring.copy_to(out);
    ring.consume(got);
    for (std::size_t i = 0; i < got; ++i) wrong += out[i] != static_cast<std::byte>(read++) ? 1 : 0;
    if (!ring.credits_due()) continue;
    REQUIRE(credits.consumed(ring.consumed(), ring.posted()));
    ring.told();
  }
  CHECK(wrong == 0);
  CHECK(written > 1'000'000);
}

}  // namespace
}  // namespace splitnic::rdmacm::stream_flow_test
