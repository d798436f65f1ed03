#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_memory.h"
#include "fabric/wire/cell.h"
#include "tests/hostile/board.h"

namespace splitnic::fabric::hostile {

/// The fields of a record's head word; fields without a value are correct.
struct FalseHead {
  std::optional<std::uint16_t> lines_field{};
  std::optional<std::uint16_t> sequence{};
  std::optional<std::uint32_t> epoch_tag{};
};

/// A message FIFO written by hand.
class RawFifo {
 public:
  RawFifo() = default;
  /// tail: the word in the writer's memory where the receiver reports what it has consumed.
  RawFifo(std::span<std::byte> ring, const std::byte* tail, std::uint32_t epoch_tag)
      : ring_(ring), tail_(tail), epoch_tag_(epoch_tag) {}

  /// Writes a record as soon as there is room. Returns its place in the ring; empty: there was no room in time.
  std::span<std::byte> put(std::span<const std::byte> record, const FalseHead& head = {});
  /// Writes only the head word of the next record.
  void put_head(const FalseHead& head);

 private:
  [[nodiscard]] bool wait_for_room(std::size_t lines) const;
  void write_head(std::size_t lines, const FalseHead& head);

  std::span<std::byte> ring_{};
  const std::byte* tail_ = nullptr;
  std::uint32_t epoch_tag_ = 0;
  std::uint64_t head_ = 0;
  std::uint64_t sequence_ = 0;
};

/// An initiator that sets up its bridge and its link correctly, and then misuses everything that it can reach. It runs
/// in its own process.
class HostileHost {
 public:
  static constexpr QpNumber kNumber{77};
  /// The duration of an attack that does not end by itself.
  static constexpr Duration kAttackFor = std::chrono::milliseconds(100);

  HostileHost(const std::string& path, Board& board, std::uint64_t seed);
  void set_up();
  /// Call it after the attack: writes the findings to the board.
  void look_around();

  [[nodiscard]] bool goes_on() const { return monotonic_now() < until_; }
  [[nodiscard]] const Introduction& owner() const { return board_.introduction; }
  [[nodiscard]] Board& board() { return board_; }
  [[nodiscard]] SeededRandom& random() { return random_; }

  /// The whole local memory of the owner, and the scratchpads before it.
  [[nodiscard]] std::span<std::byte> window() { return theirs_.subspan(ShmMemory::kHeaderBytes); }
  [[nodiscard]] std::span<std::byte> scratchpads() { return theirs_.first(kScratchpads * sizeof(std::uint32_t)); }
  /// The memory that the owner writes.
  [[nodiscard]] std::span<std::byte> own_memory() { return mine_.subspan(ShmMemory::kHeaderBytes); }
  [[nodiscard]] std::span<std::byte> part(const MemoryRange& range) {
    return window().subspan(range.offset, range.bytes);
  }
  /// The layouts of the owner's memory and of this initiator's memory.
  [[nodiscard]] const Anchor& layout() const { return layout_; }
  [[nodiscard]] const Anchor& own_layout() const { return own_layout_; }
  [[nodiscard]] int window_descriptor() const { return their_descriptor_.get(); }
  [[nodiscard]] int doorbell() const { return bridge_->doorbell_descriptor(); }
  [[nodiscard]] FabricLink& link() { return *link_; }
  [[nodiscard]] RawFifo& fifo(VirtualLane lane = VirtualLane::data) { return fifos_[static_cast<std::size_t>(lane)]; }
  void ring() { bridge_->ring(); }
  /// Repeats the handshake. before: called with the bytes of this end's anchor after the anchor is committed and before
  /// it is announced.
  void handshake_again(void (*before)(std::span<std::byte> anchor, SeededRandom& random));

  /// A cell from the connected queue pair, with the next packet sequence number.
  [[nodiscard]] Cell cell(Opcode opcode);
  /// The same for an operation on [offset, offset + bytes) of a grant.
  [[nodiscard]] Cell cell(Opcode opcode, const Grant& grant, std::int64_t offset, std::uint32_t bytes);
  /// Sends a cell with correct CRCs. False: there is no room any more.
  bool put(const Cell& cell, std::span<const std::byte> payload = {}, VirtualLane lane = VirtualLane::data);
  [[nodiscard]] std::vector<std::byte> sealed(const Cell& cell, std::span<const std::byte> payload = {});
  [[nodiscard]] std::vector<std::byte> random_bytes(std::size_t bytes);
  /// Takes the cells that the owner sent, and returns their room.
  std::vector<Cell> take();
  /// Waits until the owner has sent such a cell; false: it sent none within a second.
  bool wait_for(Opcode opcode);

  std::uint32_t psn = kPsnToOwner;
  std::uint32_t message_sequence = 0;

 private:
  void note(const Cell& cell);

  Board& board_;
  SeededRandom random_;
  Time until_{};
  os::UniqueFd their_descriptor_;
  std::span<std::byte> theirs_{};
  std::span<std::byte> mine_{};
  std::unique_ptr<Bridge> bridge_;
  std::unique_ptr<FabricLink> link_;
  Anchor layout_;
  Anchor own_layout_;
  std::array<std::byte, kAnchorBytes> own_anchor_{};
  std::array<RawFifo, kLanes> fifos_;
  std::uint32_t packet_crc_ = kPacketCrcStart;
  std::uint64_t puts_ = 0;
  std::vector<std::vector<std::byte>> received_;
};

}  // namespace splitnic::fabric::hostile
