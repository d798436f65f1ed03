#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "common/os/unique_fd.h"
#include "common/random.h"
#include "common/result.h"
#include "fabric/adapter/placements.h"
#include "fabric/bridge/peer_memory.h"
#include "fabric/placement/board_layout.h"

namespace splitnic::fabric {

/// A mapped file or part of one; ends with the object.
class Mapping {
 public:
  /// Errors: the kernel's. offset: of a page.
  [[nodiscard]] static Result<Mapping> of(int descriptor, std::uint64_t offset, std::size_t bytes, bool writable);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_;
  std::size_t bytes_;
};

/// Of a peer through a queue pair.
struct BoardAccess {
  QpNumber queue_pair{};
  std::uint16_t peer = 0;  ///< its local ID
  friend bool operator==(const BoardAccess&, const BoardAccess&) = default;
};

/// This endnode's own board (board_layout.h).
class Board {
 public:
  /// Errors: no memory, no descriptors. shows_witness: peers may try whether they can read this process's memory.
  [[nodiscard]] static Result<std::unique_ptr<Board>> create(std::uint16_t local_id, bool shows_witness,
                                                             RandomSource& random);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  [[nodiscard]] std::uint64_t identity() const { return *witness_; }
  /// What a board's memfd is called.
  [[nodiscard]] static std::string name(std::uint16_t local_id);

  /// Thread: any. False: the set of the tag is full, and peers do not see the region. region.generation is ignored.
  [[nodiscard]] bool publish(BoardRegion region);
  /// No access to the region begins after this. False: it was not published.
  bool revoke(Stag tag);
  /// identity: 0 to end it.
  void admit_peer(std::uint16_t local_id, std::uint64_t identity);

  // Thread: the adapter's owner.

  /// Returns whose access this has ended or changed: the queue pair's, or that of another one whose place it takes.
  [[nodiscard]] std::optional<BoardAccess> connect(const PlacementUser& user, std::uint16_t peer);
  /// Returns what this has ended; nullopt: the queue pair was not on the board.
  std::optional<BoardAccess> disconnect(QpNumber number);
  /// What follows is ordered after it for everybody who looks at `busy` after a full fence.
  void enter(std::uint16_t owner);
  void leave();

  /// Nothing on it holds any more.
  void clear();

 private:
  Board(os::UniqueFd file, Mapping mapping, PeerMemory memory)
      : file_(std::move(file)), mapping_(std::move(mapping)), memory_(memory) {}

  os::UniqueFd file_;
  Mapping mapping_;
  PeerMemory memory_;  // nobody else can write it
  std::unique_ptr<std::uint64_t> witness_;
  std::mutex lock_;  // regions
  std::uint64_t ended_ = 0;
};

}  // namespace splitnic::fabric
