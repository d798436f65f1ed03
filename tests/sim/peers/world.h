#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../paths/paths_world.h"
#include "fabric/adapter/channel_adapter.h"

namespace splitnic::sim {

struct MessageHead;

inline constexpr std::size_t kPeers = 3;
inline constexpr std::size_t kRegions = 12;
inline constexpr std::size_t kRegionBytes = 2048;
inline constexpr std::size_t kServices = 3;
/// Reliable and unreliable connection, unreliable datagrams.
enum class Service : std::uint8_t { reliable, unreliable, datagram };

struct PeersScenario {
  std::uint64_t seed = 0;
  std::array<PathOptions, kPeers> paths;
  std::uint32_t cell_payload = 256;
  std::uint64_t in_flight_max = 1;  ///< of one queue pair
  std::uint64_t crash_gap = 1;      ///< mean operations between two
};
PeersScenario draw_peers_scenario(std::uint64_t seed);
std::string to_text(const PeersScenario& scenario);

/// Of PeersSummary::counts: S3's table D, over real links.
inline constexpr const char* kPlacedEarly = "writes placed early";
inline constexpr const char* kTouchedTwice = "one-touch entries touched twice";

struct PeersSummary : SeedResult {
  std::uint64_t operations = 0;
  std::map<std::string, std::uint64_t> counts;
};

/// One adapter that owns memory, with three peers, each on a path of its own: a bridge, a relay and a network of
/// datagrams that lose, repeat and reorder. The peers send over connections and datagrams, and all connections take
/// their receives out of one shared queue; they write, read and add; the owner deregisters what they are writing to.
/// No model predicts the results; these invariants must hold:
///
/// - each message that arrives was sent on this connection, in this life of its peer, and is whole; the bytes behind it
///   are untouched;
///   over a reliable connection once and in order, over an unreliable one at most once and in order;
/// - a reliable request that succeeds was carried out once; one on a tag that is good all the while succeeds;
/// - memory whose tag has ended does not change; a one-touch tag ends with its first write, and takes no second one,
///   also where the second one overtakes the first;
/// - when a peer dies, its queue pairs end; no other queue pair ends, and no tag.
class PeersWorld final : PathsWorld {
 public:
  PeersWorld(const PeersScenario& scenario, bool trace);
  ~PeersWorld();

  PeersSummary run(std::uint64_t operations);

 private:
  struct Region;
  struct Request;
  struct Link;
  struct Peer;

  // world.cpp: time, connections, crashes
  void operation();
  void step();
  void settle();
  [[nodiscard]] bool at_rest() const;
  [[nodiscard]] std::string restless() const;
  void judge();
  [[nodiscard]] fabric::AdapterOptions adapter_options();
  void make_peer(std::size_t peer);
  void connect(std::size_t peer, Service service);
  void forget(Link& link);
  void revive();
  void crash();
  void open(std::size_t region);
  void close(std::size_t region);
  void judge_two(Region& region);
  void look(const Region& region);

  // traffic.cpp: requests, completions, events
  void ask();
  void say(Peer& peer, Link& link);
  void use(Peer& peer, Link& link, Request request);
  void use_twice(Peer& peer, Link& link, std::size_t region);
  bool post(Peer& peer, Link& link, Request request, fabric::WorkRequest work);
  void answer(Peer& peer, Link& link);
  void refill();
  void take_all();
  void take_at_owner(const fabric::Completion& done);
  void take_at_peer(Peer& peer, const fabric::Completion& done);
  void arrived(const fabric::Completion& done, std::span<const std::byte> place, std::size_t skip);
  void arrived(Peer& peer, Link& link, const MessageHead& head);
  void answered(Peer& peer, Link& link, const fabric::Completion& done);
  void carried_out(Peer& peer, Link& link, const Request& request);
  void carried_out_of_two(const Request& request);
  void failed(Peer& peer, Link& link, const Request& request, fabric::CompletionStatus status);
  void take_event(std::optional<std::size_t> peer, const fabric::AsyncEvent& event);
  [[nodiscard]] bool good_all_the_while(const Request& request) const;
  [[nodiscard]] bool may_fail(const Link& link) const;

  void count(const std::string& what, std::uint64_t number = 0);
  void violate(const std::string& what) { verdicts_.violate(now_, what); }

  const PeersScenario& scenario_;
  fabric::Node node_;  // of all adapters
  std::unique_ptr<fabric::ChannelAdapter> owner_;
  fabric::CqNumber completions_{};
  fabric::ProtectionDomain domain_{};
  fabric::SrqNumber shared_{};
  std::vector<std::byte> inbox_;
  fabric::Stag inbox_tag_{};
  std::vector<std::byte> memory_;  // the regions
  std::vector<Region> regions_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<bool> posted_ = {};    // receives, by place
  std::vector<std::byte> outgoing_;  // of answers, by peer
  fabric::Stag outgoing_tag_{};
  std::uint64_t lives_ = 0;
  std::optional<std::size_t> crashed_;
  int idle_steps_ = 0;  // successive steps in which nothing moved
  PeersSummary summary_;
};

}  // namespace splitnic::sim
