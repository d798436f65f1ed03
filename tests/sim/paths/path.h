#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "datagram_network.h"
#include "fabric/bridge/link.h"
#include "fabric/link/udp_link.h"
#include "lossy_relay.h"
#include "tests/sim_bridge/sim_bridge.h"

namespace splitnic::sim {

/// relayed: two bridges with a relay between them, which loses, repeats and reorders cells. datagrams: links over UDP,
/// and a network that does so with datagrams.
enum class PathKind : std::uint8_t { bridge, relayed, datagrams };

struct PathOptions {
  PathKind kind = PathKind::bridge;
  fabric::SimBridgeOptions bridge;
  fabric::LinkOptions link;  ///< of both ends, but for the port addresses
  unsigned lost_permille = 0;
  unsigned doubled_permille = 0;
  unsigned late_permille = 0;     ///< later cells overtake these
  unsigned damaged_permille = 0;  ///< datagrams
};

/// The faults of a relay or network, for people; empty for a bridge: "; a relay loses 3, doubles 0 and delays 7
/// permille".
std::string faults_text(const PathOptions& options);

/// The two ends' links and what lies between them. Only over one bridge the peers can store directly: a relay forwards
/// cells, which it does not read, and no protection table.
class Path {
 public:
  virtual ~Path() = default;
  /// random: of every fault; lent.
  [[nodiscard]] static std::unique_ptr<Path> made(const PathOptions& options, RandomSource& random);

  /// What the end's adapter uses.
  [[nodiscard]] virtual fabric::CellLink& cells(std::size_t end) = 0;
  /// The memory of the end's bridge for buffers, and where it begins there; none without a bridge.
  [[nodiscard]] virtual fabric::PeerMemory buffers(std::size_t end) = 0;
  [[nodiscard]] virtual std::size_t buffers_offset(std::size_t end) const = 0;
  [[nodiscard]] virtual bool lossy() const = 0;
  [[nodiscard]] virtual bool up() const = 0;
  /// Nothing is under way.
  [[nodiscard]] virtual bool quiet() const = 0;
  /// Carries what is due. Returns how much the relay or the network moved.
  virtual std::size_t advance(Time now) = 0;
  [[nodiscard]] virtual Time next_event(Time now) const = 0;

  /// An end's link starts anew; the program lives.
  virtual void restart(std::size_t end) = 0;
  /// An end's program died: its link is another one from now on. scribble: so is what its memory holds.
  virtual void die(std::size_t end, bool scribble) = 0;
  virtual void cut() = 0;
  virtual void restore() = 0;
};

class BridgePath final : public Path {
 public:
  BridgePath(const PathOptions& options, RandomSource& random);

  [[nodiscard]] fabric::CellLink& cells(std::size_t end) override {
    if (sealed_[end] != nullptr) return *sealed_[end];
    return *links_[end];
  }
  [[nodiscard]] fabric::PeerMemory buffers(std::size_t end) override {
    const auto range = links_[end]->buffers();
    return links_[end]->bridge().local_memory().slice(range.offset, range.bytes);
  }
  [[nodiscard]] std::size_t buffers_offset(std::size_t end) const override { return links_[end]->buffers().offset; }
  [[nodiscard]] bool lossy() const override { return relayed_; }
  [[nodiscard]] bool up() const override;
  [[nodiscard]] bool quiet() const override;
  std::size_t advance(Time now) override;
  [[nodiscard]] Time next_event(Time now) const override;
  void restart(std::size_t end) override;
  void die(std::size_t end, bool scribble) override;
  void cut() override;
  void restore() override;

 private:
  [[nodiscard]] fabric::SimBridgePair& bridge_of(std::size_t end) {
    return relayed_ && end == 1 ? *bridges_[1] : *bridges_[0];
  }
  /// bears: the end whose port address it has.
  [[nodiscard]] std::unique_ptr<fabric::FabricLink> make_link(fabric::Bridge& on, std::size_t bears);
  void restart_relay();
  void make_sealed(std::size_t end);

  PathOptions options_;
  bool relayed_;
  RandomSource& random_;
  std::vector<std::unique_ptr<fabric::SimBridgePair>> bridges_;
  std::array<std::unique_ptr<fabric::FabricLink>, 2> links_;
  std::array<std::unique_ptr<fabric::test::SealedLink>, 2> sealed_;  // relayed only
  fabric::test::LossyRelay relay_;
  std::vector<std::unique_ptr<fabric::FabricLink>> relay_links_;  // towards end 0, towards end 1
};

class DatagramPath final : public Path {
 public:
  DatagramPath(const PathOptions& options, RandomSource& random);

  [[nodiscard]] fabric::CellLink& cells(std::size_t end) override { return *links_[end]; }
  [[nodiscard]] fabric::PeerMemory buffers(std::size_t /*end*/) override {
    return fabric::PeerMemory::over(nullptr, 0);
  }
  [[nodiscard]] std::size_t buffers_offset(std::size_t /*end*/) const override { return 0; }
  [[nodiscard]] bool lossy() const override { return true; }
  [[nodiscard]] bool up() const override { return links_[0]->up() && links_[1]->up(); }
  [[nodiscard]] bool quiet() const override;
  std::size_t advance(Time now) override;
  [[nodiscard]] Time next_event(Time now) const override;
  void restart(std::size_t end) override { links_[end]->restart(); }
  void die(std::size_t end, bool scribble) override;
  /// As long as both ends need to believe that the other is gone.
  void cut() override;
  void restore() override {}

 private:
  void make_link(std::size_t end);

  RandomSource& random_;
  std::array<fabric::test::DatagramNetwork, 2> networks_;  // from end 0, from end 1
  std::array<std::unique_ptr<fabric::UdpLink>, 2> links_;
};

}  // namespace splitnic::sim
