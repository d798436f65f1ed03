#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "fabric/adapter/placements.h"
#include "fabric/bridge/peer_memory.h"
#include "fabric/placement/board.h"
#include "fabric/placement/shared_file.h"

namespace splitnic::fabric {

/// A region of a peer, as this process reaches it.
struct PlacedRegion {
  std::size_t at = 0;   ///< its place on the board
  BoardRegion about{};  ///< as read there, and checked
  bool usable = false;  ///< false: its requests go the general way
  std::optional<PeerFile> file{};

  /// Whether the bytes are inside, and the right is granted.
  [[nodiscard]] bool allows(const PlacementTarget& target, Right right) const;
};

/// Another endnode's board, and what of its memory is mapped here. Thread: the adapter's owner, unless a function says
/// something else.
class PeerBoard {
 public:
  static constexpr std::size_t kMostFiles = 256;

  /// Finds the board among the descriptors of the process. Null: this process may not see them, or there is no such
  /// board. wants_process: to use process_vm_writev(), where the kernel permits it and the peer offers it.
  [[nodiscard]] static std::shared_ptr<PeerBoard> open(pid_t pid, std::uint16_t local_id, bool wants_process);
  PeerBoard(const PeerBoard&) = delete;
  PeerBoard& operator=(const PeerBoard&) = delete;

  [[nodiscard]] std::uint16_t local_id() const { return local_id_; }
  [[nodiscard]] std::uint64_t identity() const { return identity_; }
  /// Whether its owner is at work in the memory of the endnode with this ID. Thread: any.
  [[nodiscard]] bool is_busy_with(std::uint16_t local_id) const {
    return memory_.watch<std::uint64_t>(offsetof(BoardHeader, busy)) == local_id;
  }
  /// Counts what its owner has ended, in anybody's memory. Thread: any.
  [[nodiscard]] std::uint64_t work_ended() const { return memory_.watch<std::uint64_t>(offsetof(BoardHeader, ended)); }
  /// The peer is no more. Thread: any, as is the next.
  void end() { ended_ = true; }
  [[nodiscard]] bool ended() const { return ended_; }

  /// The region behind the tag. Null: it is not published, or not prepared: wanted says where it is then.
  [[nodiscard]] const PlacedRegion* find(Stag tag, std::optional<std::size_t>& wanted) {
    const bool same = last_ != nullptr && last_->about.tag == tag.value && is_current(*last_);
    return same ? last_ : find_slowly(tag, wanted);
  }
  /// Maps the region at this place of the board, if it can be. Thread: any.
  [[nodiscard]] PlacedRegion prepare(std::size_t at) const;
  /// Returns what was there before, for the caller to end elsewhere, together with all that is out of date.
  [[nodiscard]] std::vector<PlacedRegion> install(PlacedRegion region);

  /// What must hold while the initiator is `busy` (board_layout.h).
  [[nodiscard]] bool admits(const PlacementTarget& target, const PlacedRegion& region, Right right,
                            std::uint16_t initiator, std::uint64_t identity) const;
  [[nodiscard]] bool store(const PlacementTarget& target, const PlacedRegion& region,
                           std::span<const iovec> from) const;
  [[nodiscard]] bool load(const PlacementTarget& target, const PlacedRegion& region, std::span<const iovec> to) const;

 private:
  PeerBoard(pid_t pid, Mapping mapping, PeerMemory memory, const BoardHeader& header)
      : pid_(pid),
        mapping_(std::move(mapping)),
        memory_(memory),
        local_id_(static_cast<std::uint16_t>(header.local_id)),
        identity_(header.identity) {}
  [[nodiscard]] static std::shared_ptr<PeerBoard> adopt(pid_t pid, int descriptor, std::uint16_t local_id,
                                                        bool wants_process);
  [[nodiscard]] bool is_current(const PlacedRegion& region) const {
    return memory_.watch<std::uint32_t>(region.at) == region.about.generation;
  }
  [[nodiscard]] const PlacedRegion* find_slowly(Stag tag, std::optional<std::size_t>& wanted);

  const pid_t pid_;
  const Mapping mapping_;
  const PeerMemory memory_;  // the peer can write it
  const std::uint16_t local_id_;
  const std::uint64_t identity_;
  bool reaches_process_ = false;
  std::atomic<bool> ended_{false};
  std::unordered_map<std::size_t, PlacedRegion> regions_;  // by place
  const PlacedRegion* last_ = nullptr;
  std::size_t files_ = 0;
};

}  // namespace splitnic::fabric
