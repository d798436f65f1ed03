#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/random.h"
#include "common/result.h"
#include "fabric/endnode/endnode.h"
#include "fabric/ibverbs/peer_link.h"
#include "fabric/link/loopback.h"
#include "fabric/placement/local_placements.h"
#include "fabric/threads/shared_adapter.h"
#include "fabric/wire/datagram.h"

namespace splitnic::ibverbs {

class Peers;

/// The address of an adapter's port with this local ID; the same on every endnode.
[[nodiscard]] fabric::PortAddress port_address_of(std::uint16_t local_id);
/// 0: not such an address.
[[nodiscard]] std::uint16_t local_id_of(const fabric::Gid& gid);

/// A path that something names, such as a connected queue pair: it stays as long. Ends before the device. Thread: any.
class PathUse {
 public:
  PathUse() = default;
  PathUse(PathUse&& other) noexcept { *this = std::move(other); }
  PathUse& operator=(PathUse&& other) noexcept {
    std::swap(peers_, other.peers_);
    std::swap(local_id_, other.local_id_);
    std::swap(path_, other.path_);
    return *this;
  }
  PathUse(const PathUse&) = delete;
  PathUse& operator=(const PathUse&) = delete;
  ~PathUse();

  /// 0: none.
  [[nodiscard]] fabric::PathNumber path() const { return path_; }

 private:
  friend class Peers;
  PathUse(Peers& peers, std::uint16_t local_id, fabric::PathNumber path)
      : peers_(&peers), local_id_(local_id), path_(path) {}

  Peers* peers_ = nullptr;
  std::uint16_t local_id_ = 0;
  fabric::PathNumber path_{};
};

/// The endnode of an opened device: its local ID, and a path to every local ID that a PathUse names, to which a
/// datagram waits to go, or that has a bridge to this one. A path that is none of these is idle: its bridge and its
/// wish for one end at once, and the path when kIdlePathsKept others have become idle after it; until then, completions
/// that wait may name it. Thread: any.
class Peers {
 public:
  static constexpr std::size_t kMaxPaths = 4096;
  static constexpr std::size_t kIdlePathsKept = 16;

  /// random: lent; drawn from under the adapter's lock. Adapter and placements outlive the object; placements are
  /// started, and hear of bridges. Errors: no local ID, no
  /// descriptors.
  [[nodiscard]] static Result<std::unique_ptr<Peers>> open(fabric::SharedAdapter& adapter, RandomSource& random,
                                                           fabric::LocalPlacements& placements);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  [[nodiscard]] std::uint16_t local_id() const { return local_id_; }
  [[nodiscard]] const std::shared_ptr<fabric::LocalIds>& ids() const { return endnode_->ids(); }
  /// The path to the endnode with this local ID. Begins to make a bridge if there is none. Path 0: not a local ID, or
  /// no path is left.
  [[nodiscard]] PathUse path_to(std::uint16_t local_id);
  /// Of a path's peer; 0: no such path. Takes no lock.
  [[nodiscard]] std::uint16_t local_id_of(fabric::PathNumber path) const {
    return path.value < ids_.size() ? ids_[path.value].load(std::memory_order_relaxed) : std::uint16_t{0};
  }
  /// Of the endnode.
  [[nodiscard]] fabric::EndnodeCounters counters();
  [[nodiscard]] const std::string& own_directory() const { return endnode_->own_directory(); }
  /// The path goes down soon, as if its peer had died; the peer sees this end die. False: there is no peer beyond it.
  /// Takes no lock; the adapter's may be held.
  [[nodiscard]] bool kill(fabric::PathNumber path);

 private:
  friend class PathUse;
  struct Peer {
    fabric::PathNumber path{};
    std::size_t users = 0;
    bool idle = false;
  };
  using Ended = std::vector<PeerLink::Parts>;  // ends without the locks: the last reference to a bridge unmaps it

  Peers(fabric::SharedAdapter& adapter, RandomSource& random, fabric::LocalPlacements& placements)
      : adapter_(adapter), random_(random), placements_(placements) {}
  [[nodiscard]] bool loop_is_up(const std::array<fabric::PathNumber, 2>& ends);
  [[nodiscard]] Result<void> watch();
  /// Takes the endnode's changes and ends what has become idle; the progress thread calls it.
  void follow();
  void release(std::uint16_t local_id);
  void receive_the_rest(fabric::PathNumber path);
  void cut(std::uint16_t local_id, Ended& ended);
  // Under lock_:
  void set_timer(Time deadline);
  /// Null: no path is left.
  [[nodiscard]] Peer* find_or_add(std::uint16_t local_id);
  [[nodiscard]] Peer* loop_back();
  [[nodiscard]] bool is_needed(fabric::ChannelAdapter& adapter, std::uint16_t local_id, const Peer& peer) const;
  void note_if_idle(fabric::ChannelAdapter& adapter, std::uint16_t local_id, Peer& peer);
  /// The paths of idle_ from this place on have become idle.
  void end_idle_from(std::size_t before, Ended& ended);
  void remove_longest_idle();

  fabric::SharedAdapter& adapter_;
  RandomSource& random_;
  fabric::LocalPlacements& placements_;
  std::uint16_t local_id_ = 0;
  std::unique_ptr<fabric::Endnode> endnode_;  // under lock_, apart from its IDs
  os::UniqueFd timer_;
  std::shared_ptr<const os::UniqueFd> hang_ups_;  // readable when a peer has hung up; links live longer than this
  fabric::WatchNumber timer_watch_{};
  fabric::WatchNumber hang_up_watch_{};
  fabric::WatchNumber endnode_watch_{};
  std::mutex lock_;  // taken before the adapter's
  std::unordered_map<std::uint16_t, Peer> peers_;
  std::deque<std::uint16_t> idle_;  // the longest first; some may be used again
  std::array<std::atomic<std::uint16_t>, kMaxPaths + 1> ids_{};
  std::atomic<std::uint16_t> killed_{0};  // a peer that is to be cut off; 0: none
};

}  // namespace splitnic::ibverbs
