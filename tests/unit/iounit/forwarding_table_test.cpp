#include "iounit/forwarding_table.h"

#include <catch2/catch.hpp>

#include "common/random.h"

namespace splitnic::iounit::forwarding_table_test {
namespace {

using namespace std::chrono_literals;
using Learned = ForwardingTable::Learned;

constexpr ForwardingTarget kHostA{0};
constexpr ForwardingTarget kHostB{1};
constexpr Time kStart{1h};

MacAddress mac(std::uint32_t number) {
  return MacAddress{{0x02, 0, static_cast<std::uint8_t>(number >> 24U), static_cast<std::uint8_t>(number >> 16U),
                     static_cast<std::uint8_t>(number >> 8U), static_cast<std::uint8_t>(number)}};
}

TEST_CASE("an address is found where it was last heard, in its VLAN alone", "[iounit][forwarding]") {
  ForwardingTable table({}, 1);
  CHECK_FALSE(table.find(mac(1), 0, kStart));
  CHECK(table.learn(mac(1), 0, kHostA, kStart) == Learned::kAdded);
  CHECK(table.learn(mac(1), 0, kHostA, kStart) == Learned::kKnown);
  CHECK(table.learn(mac(1), 7, kLanTarget, kStart) == Learned::kAdded);
  CHECK(table.find(mac(1), 0, kStart) == kHostA);
  CHECK(table.find(mac(1), 7, kStart) == kLanTarget);
  CHECK_FALSE(table.find(mac(1), 8, kStart));

  CHECK(table.learn(mac(1), 0, kHostB, kStart) == Learned::kMoved);
  CHECK(table.find(mac(1), 0, kStart) == kHostB);
  CHECK(table.size() == 2);
}

TEST_CASE("a silent address is forgotten after its age, a heard one is not", "[iounit][forwarding]") {
  ForwardingTable table({}, 1);
  table.learn(mac(1), 0, kHostA, kStart);
  table.learn(mac(2), 0, kHostA, kStart);
  table.learn(mac(2), 0, kHostA, kStart + 200s);
  CHECK(table.find(mac(1), 0, kStart + 300s) == kHostA);
  CHECK_FALSE(table.find(mac(1), 0, kStart + 301s));
  CHECK(table.find(mac(2), 0, kStart + 301s) == kHostA);
  CHECK(table.size() == 2);
  for (std::size_t swept = 0; swept < table.capacity(); swept += 64) table.sweep(kStart + 301s, 64);
  CHECK(table.size() == 1);
}

TEST_CASE("multicast and zero sources are not learned", "[iounit][forwarding]") {
  ForwardingTable table({}, 1);
  CHECK(table.learn(kBroadcastMac, 0, kHostA, kStart) == Learned::kNoAddress);
  CHECK(table.learn(MacAddress{}, 0, kHostA, kStart) == Learned::kNoAddress);
  CHECK(table.size() == 0);
}

TEST_CASE("a pinned address can't be learned elsewhere and is found in every VLAN for ever", "[iounit][forwarding]") {
  ForwardingTable table({}, 1);
  table.learn(mac(1), 5, kLanTarget, kStart);
  REQUIRE(table.pin(mac(1), kHostA));
  CHECK(table.size() == 0);
  CHECK(table.pin(mac(1), kHostA));
  CHECK_FALSE(table.pin(mac(1), kHostB));
  CHECK(table.learn(mac(1), 0, kHostB, kStart) == Learned::kPinned);
  CHECK(table.learn(mac(1), 5, kLanTarget, kStart) == Learned::kPinned);
  CHECK(table.learn(mac(1), 5, kHostA, kStart) == Learned::kKnown);
  CHECK(table.find(mac(1), 5, kStart + 1000h) == kHostA);
  table.forget(kHostA);
  CHECK(table.find(mac(1), 0, kStart) == kHostA);
  table.unpin(mac(1), kLanTarget);
  CHECK(table.find(mac(1), 0, kStart) == kHostA);
  table.unpin(mac(1), kHostA);
  CHECK_FALSE(table.find(mac(1), 0, kStart));
}

TEST_CASE("a host that invents addresses can't push out the other ports'", "[iounit][forwarding]") {
  ForwardingTable table({.entries = 1024, .entries_per_host = 32}, 42);
  for (std::uint32_t number = 0; number < 100'000; ++number) table.learn(mac(number), 0, kHostA, kStart);
  CHECK(table.size() == 32);
  CHECK(table.learn(mac(7'000'000), 0, kHostA, kStart) == Learned::kTargetFull);
  CHECK(table.learn(mac(7'000'000), 0, kHostB, kStart) == Learned::kAdded);
  CHECK(table.learn(mac(7'000'000), 0, kHostA, kStart) == Learned::kTargetFull);
  CHECK(table.find(mac(7'000'000), 0, kStart) == kHostB);
  table.forget(kHostA);
  CHECK(table.size() == 1);
  CHECK(table.learn(mac(7'000'000), 0, kHostA, kStart) == Learned::kMoved);
}

TEST_CASE("a flood of LAN addresses stays within the table and keeps the newest", "[iounit][forwarding]") {
  ForwardingTable table({.entries = 1000}, 42);
  CHECK(table.capacity() == 1024);
  for (std::uint32_t number = 0; number < 100'000; ++number) {
    const Time now = kStart + std::chrono::microseconds{number};
    REQUIRE(table.learn(mac(number), 0, kLanTarget, now) == Learned::kAdded);
    REQUIRE(table.find(mac(number), 0, now) == kLanTarget);
  }
  CHECK(table.size() <= 1024);
  CHECK(table.size() > 900);
}

TEST_CASE("counts stay true under random learning, ageing and forgetting", "[iounit][forwarding]") {
  SeededRandom random(7);
  ForwardingTable table({.entries = 64, .entries_per_host = 16, .age = 10s}, 3);
  Time now = kStart;
  for (int step = 0; step < 50'000; ++step) {
    now += std::chrono::milliseconds{random.below(20)};
    const ForwardingTarget port =
        random.below(4) == 0 ? kLanTarget : ForwardingTarget{static_cast<std::uint16_t>(random.below(5))};
    table.learn(mac(static_cast<std::uint32_t>(random.below(200))), static_cast<std::uint16_t>(random.below(3)), port,
                now);
    if (random.below(100) == 0) table.forget(port);
    if (random.below(10) == 0) table.sweep(now, 8);
    REQUIRE(table.size() <= table.capacity());
  }
  table.sweep(now + 1h, table.capacity());
  CHECK(table.size() == 0);
  // Each host has all of its share again.
  for (std::uint16_t host = 0; host < 5; ++host) {
    for (std::uint32_t number = 0; number < 16; ++number) {
      CHECK(table.learn(mac(number), 0, ForwardingTarget{host}, now + 1h) != ForwardingTable::Learned::kTargetFull);
    }
    table.forget(ForwardingTarget{host});
  }
}

}  // namespace
}  // namespace splitnic::iounit::forwarding_table_test
