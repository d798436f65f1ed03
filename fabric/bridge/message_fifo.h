#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "fabric/bridge/bridge.h"

namespace splitnic::fabric {

/// A byte ring in the receiver's memory, written by the sender alone. Records start on 64-byte lines:
///
///     0          2          4                    8
///    +----------+----------+--------------------+------------------------------ - -+
///    | lines 16 | seq   16 | epoch tag       32 | record (one cell)  ..  unused    |
///    +----------+----------+--------------------+------------------------------ - -+
///    |<------- the head word, written last ---->|
///
/// lines: the record's length in 64-byte lines, head word included, 1 .. 0x7fff; bit 15: padding up to the ring's end.
/// seq: low 16 bits of the record's number since the epoch began, paddings counted. epoch tag: of both epochs
/// (FabricLink). A record is there when all three fit. Before a head word is written, the place of the next one is
/// zeroed, so that old payload is never taken for a record; therefore one line of the ring always stays free. The
/// receiver pushes its tail (lines consumed since the start, 64 bits) back into the sender's memory in batches. Ring:
/// power of two lines, at most 32768, so that (lines in flight) < (seq range). Source: S2 Figs. 6-9 (head advanced by
/// the write that inserts); design, "Message FIFO".
inline constexpr std::size_t kFifoLine = 64;
inline constexpr std::size_t kFifoHeadBytes = 8;
inline constexpr std::size_t kMaxFifoLines = 32768;

/// Where one lane's pieces lie. Offsets in bytes, multiples of 64.
struct FifoPlace {
  std::size_t ring_offset = 0;  ///< of the ring, in the receiver's memory
  std::size_t ring_bytes = 0;
  std::size_t tail_offset = 0;  ///< of the 64-bit tail, in the sender's memory
};

/// Thread: the bridge's owner.
class FifoSender {
 public:
  FifoSender() = default;
  /// place.ring_* in the peer window of bridge; place.tail_offset in its local memory.
  FifoSender(Bridge& bridge, const FifoPlace& place, std::uint32_t epoch_tag);

  /// Appends one record made of the pieces in order, 1 .. max_record_bytes() together; false when it does not fit now
  /// (FabricLink::prepare_sleep and notify know of it). A peer's impossible tail counts as "no room" and sets faulty().
  [[nodiscard]] bool send(std::initializer_list<std::span<const std::byte>> pieces);
  /// Whether send() would take a record of so many bytes now; if so, it will until one is sent.
  [[nodiscard]] bool prepare(std::size_t bytes);
  /// Longest record the ring can ever take, in bytes.
  [[nodiscard]] std::size_t max_record_bytes() const;
  /// Whether the peer has consumed everything sent, as far as it said so.
  [[nodiscard]] bool drained();
  /// Records accepted by send().
  [[nodiscard]] std::uint64_t records_sent() const { return records_; }
  /// Lines written, padding included: changes with everything that the peer could be told of.
  [[nodiscard]] std::uint64_t lines_written() const { return head_; }
  /// The last send() found no room; until one succeeds.
  [[nodiscard]] bool wants_room() const { return wants_room_; }
  /// wants_room(), and the peer has consumed something since the last send().
  [[nodiscard]] bool room_again();
  [[nodiscard]] bool faulty() const { return faulty_; }

 private:
  [[nodiscard]] bool room_for(std::size_t lines);
  void read_tail();
  void append(std::size_t lines, std::uint16_t lines_field, std::initializer_list<std::span<const std::byte>> pieces);
  [[nodiscard]] std::size_t position() const { return static_cast<std::size_t>(head_ & (ring_lines_ - 1)); }

  Bridge* bridge_ = nullptr;
  PeerWindow* window_ = nullptr;
  PeerMemory local_;
  FifoPlace place_;
  std::size_t ring_lines_ = 0;
  std::uint32_t epoch_tag_ = 0;
  std::uint64_t head_ = 0;      // lines written, only grows
  std::uint64_t tail_ = 0;      // lines the peer has consumed, cached
  std::uint64_t sequence_ = 0;  // records and paddings
  std::uint64_t records_ = 0;
  bool wants_room_ = false;
  bool faulty_ = false;
};

class FifoReceiver {
 public:
  FifoReceiver() = default;
  /// place.ring_* in local memory of bridge; place.tail_offset in its peer window.
  FifoReceiver(Bridge& bridge, const FifoPlace& place, std::uint32_t epoch_tag);

  /// The oldest record, without its head word (length rounded up to whole lines); nullopt when there is none. Peer
  /// memory: copy out once. A head word with our epoch tag and sequence but an impossible length sets faulty().
  [[nodiscard]] std::optional<PeerMemory> front();
  /// Consumes front().
  void pop();
  /// Pushes the tail to the sender if it has moved enough (a quarter of the ring) or `now_or_never`.
  void push_tail(bool now_or_never);
  /// Lines that the sender has been told of.
  [[nodiscard]] std::uint64_t lines_returned() const { return pushed_tail_; }
  [[nodiscard]] bool faulty() const { return faulty_; }

 private:
  [[nodiscard]] bool refresh_front();
  [[nodiscard]] std::size_t position() const { return static_cast<std::size_t>(tail_ & (ring_lines_ - 1)); }

  PeerMemory ring_;
  PeerWindow* window_ = nullptr;
  FifoPlace place_;
  std::size_t ring_lines_ = 0;
  std::uint32_t epoch_tag_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t pushed_tail_ = 0;
  std::uint64_t sequence_ = 0;
  std::size_t front_lines_ = 0;
  bool faulty_ = false;
};

}  // namespace splitnic::fabric
