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
#include "fabric/wire/slot.h"
#include "tests/hostile/board.h"

namespace splitnic::fabric::hostile {

/// A slot ring with its payload ring, written by hand.
class RawSlots {
 public:
  /// What a slot takes in the rings.
  struct Place {
    std::span<std::byte> line{};  ///< the first; empty: there was no room in time
    std::span<std::byte> payload{};
  };

  RawSlots() = default;
  /// tail: the line in the writer's memory where the receiver reports what it has consumed. opposite: the line in the
  /// receiver's memory where the writer's link reports the same of the opposite ring.
  RawSlots(std::span<std::byte> slots, std::span<std::byte> payload, const std::byte* tail, const std::byte* opposite,
           std::uint32_t seed)
      : slots_(slots), payload_(payload), tail_(tail), opposite_(opposite), seed_(seed) {}

  /// Writes a slot as soon as there is room; body: what follows the header, in the first line and the second. The
  /// header's shape says how many lines that are; its `settled` is filled in. second_line: the second line's sequence
  /// word is correct.
  Place put(const SlotHeader& header, std::span<const std::byte> body, bool second_line = true);
  /// Writes a slot with the cell's fields, and its payload as a sender lays it out.
  Place put(const Cell& cell, std::span<const std::byte> payload);
  /// Writes only the sequence word of the next line; off: added to the correct one.
  void put_sequence(std::uint32_t off);
  [[nodiscard]] std::size_t payload_lines() const { return payload_.size() / kSlotLine; }

 private:
  [[nodiscard]] bool wait_until_free(std::size_t lines) const;
  [[nodiscard]] std::span<std::byte> line(std::uint64_t number) {
    return slots_.subspan(number % (slots_.size() / kSlotLine) * kSlotLine, kSlotLine);
  }

  std::span<std::byte> slots_{};
  std::span<std::byte> payload_{};
  const std::byte* tail_ = nullptr;
  const std::byte* opposite_ = nullptr;
  std::uint32_t seed_ = 0;
  std::uint64_t head_ = 0;
  std::size_t payload_at_ = 0;
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
  /// Hears the owner's doorbells; the owner receives nothing on its other end.
  [[nodiscard]] int doorbell() const { return bridge_->doorbell_descriptor(); }
  /// The eventfd that rings the owner.
  [[nodiscard]] int event() const { return event_.get(); }
  [[nodiscard]] FabricLink& link() { return *link_; }
  [[nodiscard]] RawSlots& slots(VirtualLane lane = VirtualLane::data) { return slots_[static_cast<std::size_t>(lane)]; }
  void ring() { bridge_->ring(); }
  /// Repeats the handshake. before: called with the bytes of this end's anchor after the anchor is committed and before
  /// it is announced.
  void handshake_again(void (*before)(std::span<std::byte> anchor, SeededRandom& random));

  /// A cell from the connected queue pair, with the next packet sequence number.
  [[nodiscard]] Cell cell(Opcode opcode);
  /// The same for an operation on [offset, offset + bytes) of a grant.
  [[nodiscard]] Cell cell(Opcode opcode, const Grant& grant, std::int64_t offset, std::uint32_t bytes);
  /// Sends a cell. False: there is no room any more.
  bool put(const Cell& cell, std::span<const std::byte> payload = {}, VirtualLane lane = VirtualLane::data);
  /// Header and extended headers of the cell, as a terminate message names it.
  [[nodiscard]] static std::vector<std::byte> head_of(const Cell& cell);
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
  os::UniqueFd event_;
  std::span<std::byte> theirs_{};
  std::span<std::byte> mine_{};
  std::unique_ptr<Bridge> bridge_;
  std::unique_ptr<FabricLink> link_;
  Anchor layout_;
  Anchor own_layout_;
  std::array<std::byte, kAnchorBytes> own_anchor_{};
  std::array<RawSlots, kLanes> slots_;
  std::uint64_t puts_ = 0;
};

}  // namespace splitnic::fabric::hostile
