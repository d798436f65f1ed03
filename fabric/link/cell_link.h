#pragma once

#include <algorithm>
#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/check.h"
#include "common/range.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/full_fence.h"
#include "fabric/ids.h"
#include "fabric/memory/store_habit.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

/// Bytes of the own or the peer's memory, by offset from its start.
using MemoryRange = ByteRange;

struct SlotLane;

/// What a link promises. The transport leaves out work because of these properties, never because of a link's kind.
struct LinkProperties {
  /// Every released cell arrives once and in the order of its lane, or the epoch ends.
  bool lossless = false;
  /// A cell may arrive with other bytes than it left with. Cells and packets carry CRCs.
  bool corrupts = true;
  /// Of lossless links: the peer's consumption can be seen (CellLink::settled), and acknowledges messages.
  bool reports_settled = false;
};

/// The memory that both ends share beside the lanes, for direct writes. Ranges are offsets in local memory (buffers,
/// mpt, admissions) or in the peer window (peer_*); they are empty while the link is not up.
struct DirectAccess {
  explicit DirectAccess(Bridge& on) : bridge(on) {}
  /// The link is not up any more.
  void end() {
    for (MemoryRange* range : {&buffers, &peer_buffers, &mpt, &peer_mpt, &admissions, &peer_admissions}) *range = {};
    admission_changes = {};
    own_epoch = peer_epoch = Epoch{};
  }
  /// For bytes that were loaded out of the peer's buffers before: whether these were still of this epoch. Where they
  /// were, all that the peer had issued before has arrived in local memory when this returns. It reads through the
  /// window, which is slow where that is no memory.
  [[nodiscard]] bool is_still_peers() const {
    if (own_epoch == Epoch{}) return false;
    // E1 (full fence): the bytes are loaded before the anchor's epochs; pairs with L1 in FabricLink::announce(), before
    // which the peer overwrites its anchor, and after which its buffers are used. Without it the anchor could be the
    // old one, and the bytes new.
    full_fence();
    std::array<boost::endian::little_uint64_buf_t, 2> epochs;
    bridge.peer_window().read(peer_epochs_at, std::as_writable_bytes(std::span(epochs)));
    // E2 (fence): what the peer had issued before has arrived; pairs with the write that ends a grant
    // (MptPublisher::clear(), dismiss()). Without it a look at the table could find a grant that was revoked before.
    bridge.fence();
    return Epoch{epochs[0].value()} == peer_epoch && Epoch{epochs[1].value()} == own_epoch;
  }

  Bridge& bridge;
  MemoryRange buffers{};       ///< what this end may grant to the peer
  MemoryRange peer_buffers{};  ///< where the peer's grants may lie
  MemoryRange mpt{};           ///< the peer's grants (fabric/memory/mpt_layout.h)
  MemoryRange peer_mpt{};      ///< this end's
  MemoryRange admissions{};    ///< the peer's queue pairs that this end may store through; at least a line
  MemoryRange peer_admissions{};
  PeerMemory admission_changes{};  ///< the first word of admissions: the peer raises it with each change
  StoreHabit announced{};          ///< how bytes are stored that a message announces to the peer
  std::uint32_t tag_out = 0;       ///< seals what this end writes into peer_mpt; new with every epoch
  std::uint32_t tag_in = 0;        ///< likewise of the peer
  std::size_t peer_epochs_at = 0;  ///< in the peer window: both epochs in the peer's anchor, its own first
  Epoch peer_epoch{};              ///< 0: the link is not up
  Epoch own_epoch{};               ///< likewise
};

/// Where the payload of a claimed cell goes: one or two pieces of write-only memory, filled from the start.
class ClaimedPayload {
 public:
  ClaimedPayload() = default;
  explicit ClaimedPayload(std::span<std::byte> first, std::span<std::byte> second = {}, StoreHabit* stores = nullptr)
      : first_(first), second_(second), stores_(stores) {}

  [[nodiscard]] std::size_t size() const { return first_.size() + second_.size(); }
  /// How to fill it; null: plainly.
  [[nodiscard]] StoreHabit* stores() const { return stores_; }
  /// The next bytes to fill, contiguous, at most at_most; empty only if at_most is 0 or nothing is left.
  [[nodiscard]] std::span<std::byte> next(std::size_t at_most) {
    if (first_.empty()) {
      first_ = second_;
      second_ = {};
    }
    const auto taken = first_.first(std::min(at_most, first_.size()));
    first_ = first_.subspan(taken.size());
    return taken;
  }
  /// Fills the next bytes; from: at most size().
  void put(std::span<const std::byte> from) {
    while (!from.empty()) {
      const auto piece = next(from.size());
      std::copy_n(from.begin(), piece.size(), piece.begin());
      from = from.subspan(piece.size());
    }
  }

 private:
  std::span<std::byte> first_{};
  std::span<std::byte> second_{};
  StoreHabit* stores_ = nullptr;
};

/// The payload of a received cell, where the link has it: in memory that the peer may be able to write. Copy each byte
/// once. One or two pieces.
class CellPayload {
 public:
  CellPayload() = default;
  explicit CellPayload(PeerMemory first, PeerMemory second = {}) : pieces_{first, second} {}

  [[nodiscard]] std::size_t size() const { return pieces_[0].size() + pieces_[1].size(); }
  [[nodiscard]] const std::array<PeerMemory, 2>& pieces() const { return pieces_; }
  /// [offset, offset + bytes), which is inside.
  [[nodiscard]] CellPayload slice(std::size_t offset, std::size_t bytes) const {
    SPLITNIC_CHECK(within(size(), {offset, bytes}));
    const std::size_t in_first = pieces_[0].size();
    if (offset >= in_first) return CellPayload(pieces_[1].slice(offset - in_first, bytes));
    const std::size_t here = std::min(bytes, in_first - offset);
    const PeerMemory first = pieces_[0].slice(offset, here);
    return here == bytes ? CellPayload(first) : CellPayload(first, pieces_[1].slice(0, bytes - here));
  }
  /// The first to.size() bytes.
  void copy_out(std::span<std::byte> to) const {
    const std::size_t in_first = std::min(to.size(), pieces_[0].size());
    pieces_[0].copy_out(0, to.first(in_first));
    pieces_[1].copy_out(0, to.subspan(in_first));
  }

 private:
  std::array<PeerMemory, 2> pieces_{};
};

/// A received cell: its fields by value, checked as far as a cell alone can show; its payload where it lies.
struct ReceivedCell {
  /// A source queue pair or port addresses of 0: the link carries none. cell.payload is set only if the link corrupts.
  Cell cell{};
  std::optional<CellFault> fault{};  ///< set: nothing else can be used
  CellPayload payload{};
  std::span<const std::byte> bytes{};  ///< the whole cell, private, for the packet CRC; empty unless the link corrupts
};

/// One attachment of an adapter to the fabric, to one peer: lanes that carry cells both ways, and the wake-up. A path
/// runs over one such link; a socket that serves many peers has many. An epoch begins with each transition to up and
/// ends when the link goes down or the peer starts anew; nothing of one epoch arrives in another. Thread: the adapter's
/// owner, who also polls the link. Source: S1 III; design, "Node, adapters, ports, paths".
class CellLink {
 public:
  virtual ~CellLink() = default;

  /// The same for the link's life.
  [[nodiscard]] virtual LinkProperties properties() const = 0;
  [[nodiscard]] virtual bool up() const = 0;
  /// Requests may be posted while it is down: they wait until it comes up, or for as long as for an answer.
  [[nodiscard]] virtual bool awaited() const { return false; }
  /// Changes with every transition to up, so that users see that an epoch went by between two of their polls.
  [[nodiscard]] virtual std::uint64_t incarnation() const = 0;
  /// Where the link keeps incarnation() while it is up, and 0 else; for the link's life. Null: nowhere.
  [[nodiscard]] virtual const std::uint64_t* live_incarnation() const { return nullptr; }
  [[nodiscard]] virtual PortAddress port_address() const = 0;
  [[nodiscard]] virtual PortAddress peer_port_address() const = 0;
  /// Null: the peer's memory cannot be written, and everything is segmented. The same object for the link's life.
  [[nodiscard]] virtual DirectAccess* direct() { return nullptr; }

  // The lanes, while up. Bounded and without system calls.

  /// The longest payload of a cell on this lane, 64 .. kMaxCellPayload; the same for an epoch.
  [[nodiscard]] virtual std::size_t max_payload(VirtualLane lane) const = 0;
  /// Finds room for a cell with the head that its opcode calls for and payload_bytes, and says where the payload goes;
  /// false: the lane is full (wants_room()). payload_bytes: at most max_payload(). At most one claim of a link at a
  /// time: claiming again replaces it, and nothing is lost by a claim that is never released.
  [[nodiscard]] virtual bool claim(VirtualLane lane, const Cell& cell, std::size_t payload_bytes,
                                   ClaimedPayload& to) = 0;
  /// Sends the claimed cell; everything stored through the peer window before is visible to the peer before the cell.
  /// cell: as claimed; the link fills in the port addresses. packet_crc: runs over the packet's cells where the link
  /// corrupts; untouched elsewhere.
  /// Returns the cell's position in the lane, which settled() will reach; 0 where properties().reports_settled is not
  /// set.
  virtual std::uint64_t release(VirtualLane lane, const Cell& cell, std::uint32_t& packet_crc) = 0;
  /// How far the peer has dealt with what was released: each cell with Cell::awaited up to this position was taken, or
  /// a not_taken cell that names it has come in and was popped before. Grows; ends with the epoch.
  [[nodiscard]] virtual std::uint64_t settled(VirtualLane /*lane*/) { return 0; }
  /// The last claim() found no room; until one succeeds.
  [[nodiscard]] virtual bool wants_room(VirtualLane lane) const = 0;
  /// The peer has consumed everything released, as far as it said so. A link that loses cells answers true when nothing
  /// waits at this end.
  [[nodiscard]] virtual bool drained(VirtualLane lane) = 0;

  /// The oldest cell that came in; null: there is none. Good until pop(). A cell that is not addressed to this end by
  /// its peer has the fault port_address.
  [[nodiscard]] virtual const ReceivedCell* front(VirtualLane lane) = 0;
  /// Consumes front().
  virtual void pop(VirtualLane lane) = 0;
  /// Everything popped so far has been dealt with: placed, or a not_taken cell was released that names it. Before what
  /// is released next.
  virtual void settle(VirtualLane /*lane*/) {}
  /// The lane's rings, where cells are slots without CRCs or addresses; null: they are not. Who finds claim(), front()
  /// and the rest too general may use the rings themselves, in turns with these: nothing is claimed, and front() was
  /// popped. The same object for an epoch; only while up.
  [[nodiscard]] virtual SlotLane* slots(VirtualLane /*lane*/) { return nullptr; }
  /// Gives the peer the room of what was consumed, and reports to it how far this end has settled, when that is much,
  /// or `all` of it. Once per burst. True: there was something to report.
  virtual bool return_room(VirtualLane lane, bool all) = 0;

  /// Flushes what was released, and wakes the peer if it sleeps and there is something new for it. Once per burst,
  /// after everything was released, also after a refused claim. Nearly free otherwise.
  virtual void notify() = 0;

  // For the owner, who polls the link.

  /// Advances the epochs' handshake and timers; bounded. Returns 1 if up() or the epoch changed, else 0.
  virtual std::size_t poll(Time now) = 0;
  /// Whether poll(now) would do nothing, because the last one was moments ago.
  [[nodiscard]] virtual bool rests(Time /*now*/) const { return false; }
  /// Arms the wake-up, makes sure that it arrived, and polls once more. False: something came in, and nothing is armed.
  [[nodiscard]] virtual bool prepare_sleep() = 0;
  /// Armed by prepare_sleep(), this end has sent more: announces it, and arms for what may now be awaited. False:
  /// something came in; disarm() before it is dealt with.
  [[nodiscard]] virtual bool rearm() {
    notify();
    return prepare_sleep();
  }
  /// What prepare_sleep() armed still holds, and has no deadline: whatever comes makes the descriptor readable, and
  /// nothing else needs this end. So the link needs no prepare_sleep() before the next sleep, and no poll after it.
  /// Ends when poll() takes the doorbell. False: ask the link at every sleep.
  [[nodiscard]] virtual bool stays_armed() const { return false; }
  /// Back from sleep: disarms, takes what made the descriptor readable.
  virtual void disarm() = 0;
  /// When to poll again although nothing woke this end. outstanding: the caller waits for something of the peer.
  [[nodiscard]] virtual Time next_deadline(Time now, bool outstanding) const = 0;
  /// Readable when the link wants to be polled; -1: there is none (the simulation).
  [[nodiscard]] virtual int descriptor() const = 0;
};

}  // namespace splitnic::fabric
