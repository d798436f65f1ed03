#pragma once

#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/bridge/shm_connector.h"
#include "fabric/bridge/shm_listener.h"
#include "tests/sim_bridge/sim_bridge.h"
#include "tests/unit/common/os_temporary_directory.h"

/// Bridges that the conformance tests run against, two ends each, with one way to let what is under way arrive.
namespace splitnic::fabric::test {

inline constexpr std::size_t kTestBytes = 1U << 20U;

/// How many seeds a random walk tries: single-threaded walks tell ThreadSanitizer nothing, and cost it 20 times as
/// much.
constexpr std::uint64_t seeds(std::uint64_t usual) {
#ifdef __SANITIZE_THREAD__
  return usual / 20;
#else
  return usual;
#endif
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* from = reinterpret_cast<const std::byte*>(text.data());
  return {from, from + text.size()};
}

inline std::vector<std::byte> random_bytes(RandomSource& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

class ShmPairBridges {
 public:
  ShmPairBridges() {
    auto pair = shm_pair(kTestBytes, 2 * kTestBytes);
    REQUIRE(pair.has_value());
    ends_ = {std::move(pair->first), std::move(pair->second)};
  }
  Bridge& end(std::size_t index) { return *ends_.at(index); }
  void settle() {}
  bool rung(std::size_t index) { return end(index).take_doorbells(); }

 private:
  std::array<std::unique_ptr<Bridge>, 2> ends_;
};

using os::TemporaryDirectory;

/// Host (end 0) and unit (end 1) as two processes would set it up, through a real socket.
class ShmSocketBridges {
 public:
  ShmSocketBridges() {
    ShmListenOptions listen;
    listen.path = directory_.path("socket");
    auto listener = ShmListener::listen(listen);
    REQUIRE(listener.has_value());
    ShmConnectOptions connect;
    connect.path = listen.path;
    connect.local_bytes = kTestBytes;
    connect.window_bytes = 2 * kTestBytes;
    auto connector = ShmConnector::start(connect, Time{});
    REQUIRE(connector.has_value());
    (*listener)->poll(Time{});
    auto accepted = (*listener)->take();
    REQUIRE(accepted.has_value());
    REQUIRE(accepted->uid == getuid());
    auto bridge = (*connector)->poll(Time{});
    REQUIRE(bridge.has_value());
    REQUIRE(bridge->has_value());
    ends_ = {std::move(**bridge), std::move(accepted->bridge)};
  }
  Bridge& end(std::size_t index) { return *ends_.at(index); }
  void hang_up(std::size_t index) { ends_.at(index).reset(); }
  void settle() {}
  bool rung(std::size_t index) { return end(index).take_doorbells(); }

 private:
  TemporaryDirectory directory_;
  std::array<std::unique_ptr<Bridge>, 2> ends_;
};

/// Delays and torn writes, but no loss: what every bridge promises, the simulated one keeps too.
class SimBridges {
 public:
  SimBridges() : pair_(options(), random_) {}
  Bridge& end(std::size_t index) { return pair_.end(index); }
  void settle() {
    now_ += std::chrono::milliseconds(1);
    pair_.advance(now_);
  }
  bool rung(std::size_t index) {
    settle();
    return end(index).take_doorbells();
  }

 private:
  static SimBridgeOptions options() {
    SimBridgeOptions options;
    options.local_bytes = {kTestBytes, 2 * kTestBytes};
    options.torn_permille = 800;
    options.doorbell_lost_permille = 0;
    options.doorbell_spurious_permille = 0;
    return options;
  }
  SeededRandom random_{7};
  SimBridgePair pair_;
  Time now_{};
};

}  // namespace splitnic::fabric::test
