#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "common/random.h"
#include "common/result.h"
#include "fabric/endnode/endnode.h"
#include "fabric/link/loopback.h"
#include "fabric/threads/shared_adapter.h"
#include "fabric/wire/datagram.h"

namespace splitnic::ibverbs {

class PeerLink;

/// The address of an adapter's port with this local ID; the same on every endnode.
[[nodiscard]] fabric::PortAddress port_address_of(std::uint16_t local_id);
/// 0: not such an address.
[[nodiscard]] std::uint16_t local_id_of(const fabric::Gid& gid);

/// The endnode of an opened device: its local ID, and a path to every local ID that the program has named, or that has
/// a bridge to this one. Thread: any.
class Peers {
 public:
  static constexpr std::size_t kMaxPaths = 4096;

  /// random: lent; drawn from under the adapter's lock. The adapter outlives the object. Errors: no local ID, no
  /// descriptors.
  [[nodiscard]] static Result<std::unique_ptr<Peers>> open(fabric::SharedAdapter& adapter, RandomSource& random);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  [[nodiscard]] std::uint16_t local_id() const { return local_id_; }
  /// The path to the endnode with this local ID. Begins to make a bridge if there is none. 0: not a local ID, or no
  /// path is left.
  [[nodiscard]] fabric::PathNumber path_to(std::uint16_t local_id);
  /// Of a path's peer; 0: no such path. Takes no lock.
  [[nodiscard]] std::uint16_t local_id_of(fabric::PathNumber path) const {
    return path.value < ids_.size() ? ids_[path.value].load(std::memory_order_relaxed) : std::uint16_t{0};
  }

 private:
  Peers(fabric::SharedAdapter& adapter, RandomSource& random) : adapter_(adapter), random_(random) {}
  [[nodiscard]] Result<void> loop_back();
  [[nodiscard]] bool loop_is_up(const std::array<fabric::PathNumber, 2>& ends);
  [[nodiscard]] Result<void> watch();
  /// Takes the endnode's changes; the progress thread calls it.
  void follow();
  void set_timer(Time deadline);
  [[nodiscard]] fabric::PathNumber find_or_add(std::uint16_t local_id);  // under lock_

  fabric::SharedAdapter& adapter_;
  RandomSource& random_;
  std::uint16_t local_id_ = 0;
  std::shared_ptr<fabric::Loopback> loopback_;
  std::unique_ptr<fabric::Endnode> endnode_;  // under lock_
  int timer_ = -1;
  fabric::WatchNumber timer_watch_{};
  fabric::WatchNumber endnode_watch_{};
  std::mutex lock_;  // taken before the adapter's
  std::unordered_map<std::uint16_t, fabric::PathNumber> paths_;
  std::array<std::atomic<std::uint16_t>, kMaxPaths + 1> ids_{};
};

}  // namespace splitnic::ibverbs
