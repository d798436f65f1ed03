#pragma once

#include <boost/describe/class.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/os/unique_fd.h"
#include "common/random.h"
#include "common/result.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/doorman.h"
#include "fabric/bridge/shm_connector.h"
#include "fabric/endnode/knock.h"
#include "fabric/endnode/local_ids.h"

namespace splitnic::fabric {

struct EndnodeOptions {
  std::string directory{};                      ///< where the fabric's endnodes meet, see fabric_folders()
  std::string own_directory{};                  ///< with what this user's endnodes count; empty: the same
  std::size_t window_bytes = kShmDefaultBytes;  ///< of each memory of a bridge
  std::size_t max_peers = 4096;
};

struct EndnodeCounters {
  std::uint64_t bridges_made = 0;
  std::uint64_t peers_died = 0;
  std::uint64_t refused_bridges = 0;  ///< the caller, or the one called, does not hold the ID that it goes by
  std::uint64_t knocks = 0;
  std::uint64_t refused_knocks = 0;  ///< malformed, or of an ID that nobody holds or that must call by itself
};
BOOST_DESCRIBE_STRUCT(EndnodeCounters, (), (bridges_made, peers_died, refused_bridges, knocks, refused_knocks))

/// What has become of a peer.
struct EndnodeChange {
  LocalId peer{};
  std::shared_ptr<Bridge> bridge{};  ///< null: the peer has died, and its bridge is of no more use
};

/// A process's attachment to a fabric whose endnodes find each other in a folder, without a daemon. It holds a local
/// ID, and makes one bridge to each peer that either side wants to reach: the endnode with the lower ID calls, the one
/// with the higher ID listens, by a doorman. The higher one that wants a bridge knocks, and the lower one calls.
///
/// The folder keeps other users out, but those who share the fabric. Beyond this, both ends check that the process that
/// the kernel attests at the other end holds the local ID. A peer's death is seen by its process (pidfd): a child that
/// it forked may keep its sockets open. Where its process can't be seen (another PID namespace), its ID is looked at
/// every kWatchInterval.
///
/// Thread: the owner. A forked child uses none of it and does not destroy it.
class Endnode {
 public:
  static constexpr Duration kWatchInterval = std::chrono::milliseconds(100);

  /// Takes a local ID, listens, and removes what endnodes have left that were killed. Errors: the folder can't be used,
  /// no ID is free, no descriptors or threads.
  [[nodiscard]] static Result<std::unique_ptr<Endnode>> open(EndnodeOptions options, RandomSource& random);
  Endnode(const Endnode&) = delete;
  Endnode& operator=(const Endnode&) = delete;

  [[nodiscard]] LocalId local_id() const { return held_.id(); }
  /// Wants a bridge to the peer, until there is one: if nobody holds the ID yet, it is tried again and again. A bridge
  /// that is down counts as none. peer: not the own ID. False: there are max_peers.
  bool reach(LocalId peer, Time now);
  /// The peer's bridge is of no more use, or not wanted any more. The next reach() makes another one.
  void forget(LocalId peer);
  /// Whether there is a bridge, handed out or about to be, whose user has not ended it or seen it go down.
  [[nodiscard]] bool has_bridge(LocalId peer) const;

  /// Bounded work. The next change; nullopt: there is none.
  [[nodiscard]] std::optional<EndnodeChange> poll(Time now);
  /// When poll() must run next, even if descriptor() is not readable.
  [[nodiscard]] Time next_deadline() const;
  /// Readable when poll() has something to do; the same for the endnode's life.
  [[nodiscard]] int descriptor() const { return events_.get(); }

  [[nodiscard]] const EndnodeCounters& counters() const { return counters_; }
  [[nodiscard]] const std::string& own_directory() const { return options_.own_directory; }
  [[nodiscard]] const std::shared_ptr<LocalIds>& ids() const { return held_.ids(); }

 private:
  struct Peer {
    bool wanted = false;     // by reach()
    bool asked_for = false;  // it knocked
    std::unique_ptr<ShmConnector> call;
    bool bridged = false;
    std::weak_ptr<Bridge> bridge;
    os::UniqueFd process;  // pidfd, while bridged
    bool unseen = false;   // bridged, without a pidfd
    Time try_at{};
    Duration wait{};
  };
  /// What descriptor() waits for; of a peer: its call, or its process.
  enum class Source : std::uint8_t { doorman, knock, call, process };

  Endnode(EndnodeOptions options, HeldId held, std::unique_ptr<Doorman> doorman, Knock knock, os::UniqueFd events);
  [[nodiscard]] bool watch(int descriptor, Source source, LocalId peer = {});
  void unwatch(int descriptor);
  void take_events(Time now);
  void take_calls(Time now);
  void take_knocks(Time now);
  void work_on(LocalId id, Peer& peer, Time now);
  void start(LocalId id, Peer& peer, Time now);
  void finish_call(LocalId id, Peer& peer, Time now);
  [[nodiscard]] bool is_process_of(LocalId id, const std::optional<BridgePeer>& process) const;
  [[nodiscard]] bool adopt(LocalId id, std::shared_ptr<Bridge> bridge, Time now);
  [[nodiscard]] static bool in_use(const Peer& peer);
  void end_bridge(LocalId id, Peer& peer);
  void retry(Peer& peer, Time now);

  EndnodeOptions options_;
  HeldId held_;  // before the sockets, which end first: the ID's next holder finds none
  os::UniqueFd events_;
  std::unique_ptr<Doorman> doorman_;
  Knock knock_;
  std::map<LocalId, Peer> peers_;
  std::deque<EndnodeChange> changes_;
  EndnodeCounters counters_;
};

}  // namespace splitnic::fabric
