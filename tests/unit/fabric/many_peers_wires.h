#pragma once

#include "adapter_requests.h"
#include "link_fixtures.h"

/// One program's links to many peers, of every kind, and the death of any of them.
namespace splitnic::fabric::test {

/// What lies between the program and one peer.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual CellLink& program() = 0;
  virtual CellLink& peer() = 0;
  virtual void step(Time now) = 0;
  /// The peer's process dies without a word, and another one takes its place. Whoever uses peer() has gone before.
  virtual void kill() = 0;
  /// The program needs another link, too, and must have detached the one so far before kill().
  [[nodiscard]] virtual bool final_hang_up() const { return false; }
};

inline LinkOptions small_link(std::uint64_t port) {
  LinkOptions options;
  options.port_address = PortAddress{port};
  options.slot_bytes = {1U << 10U, 2U << 10U};
  options.payload_bytes = {1U << 10U, 4U << 10U};
  return options;
}
inline UdpOptions small_udp(std::uint64_t port) {
  UdpOptions options;
  options.port_address = PortAddress{port};
  options.window_bytes = {4U << 10U, 8U << 10U};
  return options;
}

/// A bridge that the death of its peer's program leaves in place.
class BridgeWire final : public Wire {
 public:
  BridgeWire(RandomSource& random, std::uint64_t port) : random_(random), port_(port), bridges_(options(), random) {
    links_[0] = make(0);
    links_[1] = make(1);
  }
  CellLink& program() override { return *links_[0]; }
  CellLink& peer() override { return *links_[1]; }
  void step(Time now) override {
    bridges_.advance(now);
    for (auto& link : links_) link->poll(now);
  }
  void kill() override {
    links_[1].reset();
    bridges_.forget(1, true);
    links_[1] = make(1);
  }

 private:
  static SimBridgeOptions options() {
    SimBridgeOptions options = LinkedPair::rough();
    options.local_bytes = {32U << 10U, 32U << 10U};
    return options;
  }
  std::unique_ptr<FabricLink> make(std::size_t end) {
    auto link = std::make_unique<FabricLink>(bridges_.end(end), small_link(2 * port_ + end), random_);
    link->restart();
    return link;
  }
  RandomSource& random_;
  std::uint64_t port_;
  SimBridgePair bridges_;
  std::array<std::unique_ptr<FabricLink>, 2> links_;
};

/// Another adapter of the same program. Its end is final, as that of shared memory is.
class LoopbackWire final : public Wire {
 public:
  LoopbackWire(RandomSource& random, std::uint64_t port) : random_(random), port_(port) { make(); }
  CellLink& program() override { return loopback_->end(0); }
  CellLink& peer() override { return loopback_->end(1); }
  void step(Time now) override {
    for (std::size_t i = 0; i < 2; ++i) loopback_->end(i).poll(now);
  }
  void kill() override { make(); }
  [[nodiscard]] bool final_hang_up() const override { return true; }

 private:
  void make() {
    auto made = Loopback::create({small_link(2 * port_), small_link(2 * port_ + 1)}, {&random_, &random_}, 32U << 10U);
    REQUIRE(made.has_value());
    loopback_ = std::move(*made);
  }
  RandomSource& random_;
  std::uint64_t port_;
  std::unique_ptr<Loopback> loopback_;
};

/// A network with losses, copies and delays.
class NetworkWire final : public Wire {
 public:
  NetworkWire(RandomSource& random, std::uint64_t port) : random_(random), port_(port) {
    for (std::size_t i = 0; i < 2; ++i) make(i);
  }
  CellLink& program() override { return *links_[0]; }
  CellLink& peer() override { return *links_[1]; }
  void step(Time now) override {
    for (std::size_t i = 0; i < 2; ++i) {
      networks_[i].deliver(now, [this, i, now](const auto& datagram) { links_[1 - i]->peer().take(datagram, now); });
    }
    for (auto& link : links_) link->poll(now);
  }
  void kill() override { make(1); }

 private:
  static DatagramFaults faults() {
    return {.lost = 20,
            .duplicated = 20,
            .damaged = 5,
            .delay_min = microseconds(10),
            .delay_max = microseconds(60),
            .late = 50};
  }
  void make(std::size_t i) { links_[i] = std::make_unique<UdpLink>(networks_[i], small_udp(2 * port_ + i), random_); }
  RandomSource& random_;
  std::uint64_t port_;
  std::array<DatagramNetwork, 2> networks_{DatagramNetwork(random_, faults()), DatagramNetwork(random_, faults())};
  std::array<std::unique_ptr<UdpLink>, 2> links_;
};

/// The program's one socket, and one of the peer's.
class SocketWire final : public Wire {
 public:
  SocketWire(UdpSocket& programs, RandomSource& random, std::uint64_t port)
      : programs_(programs), random_(random), port_(port) {
    make_peer({});
    auto link = programs_.connect(peers_->local(), small_udp(2 * port_), random_);
    REQUIRE(link.has_value());
    program_ = std::move(*link);
  }
  CellLink& program() override { return *program_; }
  CellLink& peer() override { return *peer_; }
  void step(Time now) override {
    program_->poll(now);
    peer_->poll(now);
  }
  void kill() override {
    const UdpAddress address = peers_->local();
    peer_.reset();
    peers_.reset();
    make_peer(address);
  }

 private:
  void make_peer(const UdpAddress& at) {
    auto socket = UdpSocket::open(at);
    REQUIRE(socket.has_value());
    peers_ = std::move(*socket);
    auto link = peers_->connect(programs_.local(), small_udp(2 * port_ + 1), random_);
    REQUIRE(link.has_value());
    peer_ = std::move(*link);
  }
  UdpSocket& programs_;
  RandomSource& random_;
  std::uint64_t port_;
  std::unique_ptr<UdpSocket> peers_;
  std::unique_ptr<UdpLink> program_;
  std::unique_ptr<UdpLink> peer_;
};

}  // namespace splitnic::fabric::test
