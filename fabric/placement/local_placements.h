#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/random.h"
#include "common/result.h"
#include "fabric/adapter/placements.h"
#include "fabric/bridge/bridge.h"
#include "fabric/placement/board.h"
#include "fabric/placement/peer_board.h"
#include "fabric/threads/shared_adapter.h"

namespace splitnic::fabric {

/// Which memory of peers, and of this process, is reached past the fabric.
enum class PlacementReach : std::uint8_t {
  none,
  shared,   ///< files that several processes map, device memory
  process,  ///< private memory too, by process_vm_writev() and process_vm_readv()
};

/// A registered region, as peers may see it.
struct PublishedRegion {
  Stag tag{};
  std::uint64_t base = 0;  ///< that keys name the first byte by
  std::span<std::byte> memory{};
  ProtectionDomain domain{};
  Rights rights{};
  bool may_move = false;  ///< the program may map something else there
};

/// The placements of an endnode: its own board, and those of its peers. A peer is one only if it runs as the same user
/// on this machine, in a PID namespace that this process sees, and the kernel lets this process open the peer's
/// descriptors. So a process reaches nothing by it that it could not reach without it.
///
/// Thread: any, where nothing else is said; no function may be called under the adapter's lock unless it says so. A
/// forked child uses none of it and does not destroy it.
class LocalPlacements final : public Placements {
 public:
  /// How long the end of an access waits for a peer that is at work in the memory.
  static constexpr Duration kQuietWithin = std::chrono::seconds(2);

  explicit LocalPlacements(PlacementReach reach) : reach_(reach) {}
  ~LocalPlacements() override;

  /// Before everything else; without it there are none. adapter: lent until stop(). peer_of: the local ID at the other
  /// end of a path; may be called under the adapter's lock. Errors: no memory, no descriptors.
  [[nodiscard]] Result<void> start(SharedAdapter& adapter, std::uint16_t local_id, RandomSource& random,
                                   std::function<std::uint16_t(PathNumber)> peer_of);
  /// No peer reaches this process's memory any more; every request goes the general way.
  void stop();

  /// A bridge to the peer is there; it has gone. Thread: one at a time.
  void reached(PathNumber path, std::uint16_t peer, const std::optional<BridgePeer>& process);
  void lost(PathNumber path);

  /// Shows the region to peers, if its memory is of a kind that they can reach.
  void publish(const PublishedRegion& region);
  /// Ends what publish() began; no peer is at work in the region's memory when it returns. False: a peer that was
  /// stopped in the middle of it still is, after kQuietWithin; no access begins any more.
  [[nodiscard]] bool revoke(Stag tag);
  /// Waits, for kQuietWithin at most, until the peers of this queue pair whose access has ended or changed have ended
  /// what they had begun before that. gone: the number may be another queue pair's soon.
  void settle(QpNumber number, bool gone);

  // Under the adapter's lock.
  void admit(const PlacementUser& user) override;
  void dismiss(QpNumber number) override;
  [[nodiscard]] bool offers(const PlacementTarget& target) override;
  [[nodiscard]] bool write(const PlacementTarget& target, std::span<const iovec> from) override;
  [[nodiscard]] bool read(const PlacementTarget& target, std::span<const iovec> to) override;

 private:
  struct Wanted {
    PathNumber path{};
    std::size_t at = 0;  ///< on the peer's board; 0: the board itself
    friend bool operator==(const Wanted&, const Wanted&) = default;
  };
  struct Peer {
    std::uint16_t local_id = 0;
    pid_t process = 0;
    unsigned tries = 0;  ///< to find the board, which are left
    std::shared_ptr<PeerBoard> board;
  };
  [[nodiscard]] const PlacedRegion* find(Peer& peer, const PlacementTarget& target, Right right);
  template <class Move>
  [[nodiscard]] bool move(const PlacementTarget& target, Right right, Move&& copy);
  using SharedDescriptor = std::shared_ptr<const os::UniqueFd>;
  [[nodiscard]] SharedDescriptor descriptor_of(const SharedFile& file);
  void want(const Wanted& what);
  void prepare_wanted();
  void find_board(PathNumber path);
  void forget(const Peer& peer);
  /// No peer, or not this one, is at work in this process's memory that was when it was called. False: one still is,
  /// after kQuietWithin.
  [[nodiscard]] bool await_quiet(std::optional<std::uint16_t> peer = std::nullopt);
  void note_unsettled(const std::optional<BoardAccess>& access);
  [[nodiscard]] Peer* peer_at(PathNumber path) { return path.value < peers_.size() ? &peers_[path.value] : nullptr; }

  const PlacementReach reach_;
  SharedAdapter* adapter_ = nullptr;  // null: not started, or stopped
  std::uint16_t local_id_ = 0;
  std::function<std::uint16_t(PathNumber)> peer_of_;
  std::unique_ptr<Board> board_;
  os::UniqueFd wake_;
  WatchNumber watch_{};
  // Under the adapter's lock:
  std::vector<Peer> peers_;  // by path
  std::vector<Wanted> wanted_;
  std::vector<BoardAccess> unsettled_;  // has ended or changed, and nobody has waited for the peer; each once
  bool stopped_ = true;
  std::mutex lock_;
  std::vector<std::shared_ptr<PeerBoard>> boards_;   // whose owners may be at work here
  std::map<std::uint32_t, SharedDescriptor> files_;  // by tag
  std::set<std::uint32_t> unquiet_;                  // tags whose end a peer has outlasted
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<const os::UniqueFd>> known_files_;  // device, inode
};

}  // namespace splitnic::fabric
