#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/link/loopback.h"
#include "fabric/link/udp_link.h"
#include "fabric/link/udp_socket.h"
#include "tests/sim_bridge/sim_bridge.h"
#include "tests/unit/fabric/datagram_network.h"

/// Two ends of each kind of link, with one way to let time pass.
namespace splitnic::fabric::test {

inline constexpr std::array<PortAddress, 2> kLinkPorts{PortAddress{0x0200'0000'00a1}, PortAddress{0x0200'0000'00b2}};

/// What the tests use of a pair of links. All are made of two FabricLinks or two UdpLinks.
template <class Link>
class LinkPair {
 public:
  CellLink& end(std::size_t index) { return link(index); }
  Link& link(std::size_t index) { return *links_.at(index); }
  void restart(std::size_t index) { link(index).restart(); }
  [[nodiscard]] Time now() const { return now_; }

 protected:
  void poll_links(Duration by) {
    now_ += by;
    for (Link* each : links_) each->poll(now_);
  }
  static LinkOptions fabric_options(std::size_t index) {
    LinkOptions options;
    options.port_address = kLinkPorts.at(index);
    options.slot_bytes = {1U << 10U, 4U << 10U};
    options.payload_bytes = {4U << 10U, 16U << 10U};
    return options;
  }
  static UdpOptions udp_options(std::size_t index) {
    UdpOptions options;
    options.port_address = kLinkPorts.at(index);
    options.window_bytes = {4U << 10U, 16U << 10U};
    return options;
  }

  SeededRandom random_{11};
  std::array<Link*, 2> links_{};
  Time now_{};
};

class ShmLinks : public LinkPair<FabricLink> {
 public:
  ShmLinks() {
    auto pair = shm_pair(1U << 20U, 1U << 20U);
    REQUIRE(pair.has_value());
    bridges_ = {std::move(pair->first), std::move(pair->second)};
    for (std::size_t i = 0; i < 2; ++i) {
      made_[i] = std::make_unique<FabricLink>(*bridges_[i], fabric_options(i), random_);
      made_[i]->restart();
      links_[i] = made_[i].get();
    }
  }
  void step() { poll_links(std::chrono::microseconds(10)); }

 private:
  std::array<std::unique_ptr<Bridge>, 2> bridges_;
  std::array<std::unique_ptr<FabricLink>, 2> made_;
};

class SimLinks : public LinkPair<FabricLink> {
 public:
  SimLinks() {
    for (std::size_t i = 0; i < 2; ++i) {
      made_[i] = std::make_unique<FabricLink>(bridges_.end(i), fabric_options(i), random_);
      made_[i]->restart();
      links_[i] = made_[i].get();
    }
  }
  void step() {
    bridges_.advance(now_ + std::chrono::microseconds(10));
    poll_links(std::chrono::microseconds(10));
  }

 private:
  static SimBridgeOptions options() {
    SimBridgeOptions options;
    options.write_delay_max = std::chrono::microseconds(20);
    options.torn_permille = 300;
    return options;
  }
  SeededRandom bridge_random_{12};
  SimBridgePair bridges_{options(), bridge_random_};
  std::array<std::unique_ptr<FabricLink>, 2> made_;
};

class LoopbackLinks : public LinkPair<FabricLink> {
 public:
  LoopbackLinks() {
    auto made = Loopback::create({fabric_options(0), fabric_options(1)}, {&random_, &random_});
    REQUIRE(made.has_value());
    loopback_ = std::move(*made);
    for (std::size_t i = 0; i < 2; ++i) links_[i] = &loopback_->end(i);
  }
  void step() { poll_links(std::chrono::microseconds(10)); }

 private:
  std::unique_ptr<Loopback> loopback_;
};

/// Through two sockets of this machine. Their time is simulated; the kernel delivers at once.
class UdpSocketLinks : public LinkPair<UdpLink> {
 public:
  UdpSocketLinks() {
    for (auto& socket : sockets_) {
      auto opened = UdpSocket::open({});
      REQUIRE(opened.has_value());
      socket = std::move(*opened);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      auto link = sockets_[i]->connect(sockets_[1 - i]->local(), udp_options(i), random_);
      REQUIRE(link.has_value());
      made_[i] = std::move(*link);
      links_[i] = made_[i].get();
    }
  }
  void step() { poll_links(std::chrono::microseconds(10)); }
  UdpSocket& socket(std::size_t index) { return *sockets_[index]; }

 private:
  std::array<std::unique_ptr<UdpSocket>, 2> sockets_;
  std::array<std::unique_ptr<UdpLink>, 2> made_;
};

/// Over a network that loses, repeats, damages and reorders datagrams.
class UdpNetworkLinks : public LinkPair<UdpLink> {
 public:
  UdpNetworkLinks() {
    for (std::size_t i = 0; i < 2; ++i) {
      made_[i] = std::make_unique<UdpLink>(networks_[i], udp_options(i), random_);
      links_[i] = made_[i].get();
    }
  }
  void step() {
    const Time next = now_ + std::chrono::microseconds(10);
    for (std::size_t i = 0; i < 2; ++i) {
      networks_[i].deliver(next, [this, i, next](const auto& datagram) { link(1 - i).peer().take(datagram, next); });
    }
    poll_links(std::chrono::microseconds(10));
  }
  DatagramNetwork& network(std::size_t from) { return networks_[from]; }

 private:
  static DatagramFaults faults() {
    return {.lost = 50,
            .duplicated = 50,
            .damaged = 20,
            .delay_min = std::chrono::microseconds(10),
            .delay_max = std::chrono::microseconds(100),
            .late = 100};
  }
  SeededRandom network_random_{13};
  std::array<DatagramNetwork, 2> networks_{DatagramNetwork(network_random_, faults()),
                                           DatagramNetwork(network_random_, faults())};
  std::array<std::unique_ptr<UdpLink>, 2> made_;
};

}  // namespace splitnic::fabric::test

/// Every link.
#define SPLITNIC_EVERY_LINK                                                                                  \
  splitnic::fabric::test::ShmLinks, splitnic::fabric::test::SimLinks, splitnic::fabric::test::LoopbackLinks, \
      splitnic::fabric::test::UdpSocketLinks, splitnic::fabric::test::UdpNetworkLinks
