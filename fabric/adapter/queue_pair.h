#pragma once

#include <algorithm>
#include <array>
#include <boost/intrusive/set_hook.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "common/time.h"
#include "fabric/adapter/adapter_options.h"
#include "fabric/adapter/queue_pair_state.h"
#include "fabric/adapter/ring.h"
#include "fabric/memory/mpt.h"
#include "fabric/memory/protection_table.h"
#include "fabric/memory/remembered.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

class CompletionQueue;

/// Requests of a send queue, or of a receive queue.
inline constexpr std::size_t kMaxQueueDepth = std::size_t{1} << 16U;

/// Whether requests of this kind are cells, and so have packet sequence numbers.
[[nodiscard]] constexpr bool goes_over_the_wire(Operation operation) { return operation < Operation::bind_window; }
/// Whether the peer answers with data: the answer is the acknowledgement.
[[nodiscard]] constexpr bool is_answered(Operation operation) {
  return operation == Operation::rdma_read || operation == Operation::compare_swap || operation == Operation::fetch_add;
}
[[nodiscard]] constexpr bool is_write(Operation operation) {
  return operation == Operation::rdma_write || operation == Operation::rdma_write_with_immediate;
}

/// Where an asynchronous copy stands.
enum class DmaState : std::uint8_t { none, moving, moved, failed };

/// What has become of a request.
struct SendMarks {
  bool numbered = false;     ///< a cell of it was on the wire
  bool direct = false;       ///< the bytes are in the peer's memory: the closing cell alone is sent, also when retried
  bool answered = false;     ///< reads and atomics
  bool direct_sink = false;  ///< a read that the owner may answer through the window
  bool memory_done = false;  ///< a combined request's registration
  bool answer_lost = false;  ///< injected: the answer to what was sent last does not come
  DmaState dma = DmaState::none;
  CompletionStatus failure = CompletionStatus::success;  ///< found before its turn to complete
};

/// One request of a send queue. What every request uses comes first.
struct alignas(64) SendEntry : SendMarks {
  std::uint64_t settled_at = 0;  ///< done when the lane is settled to here; 0: consumption says nothing about it
  std::uint32_t bytes = 0;
  std::uint32_t psn = 0;               ///< from when it is numbered
  std::uint32_t message_sequence = 0;  ///< likewise, of reads and atomics
  Stag tag{};                          ///< what a bind or registration gave
  bool has_more = false;               ///< what begin_sent() leaves out may be set
  WorkRequest request{};

  /// Starts over with this request; segments beyond its count keep what they were.
  void begin(const WorkRequest& from, std::uint32_t message_bytes) {
    copy_first(from);
    copy_rest(from);
    has_more = true;
    mark(SendMarks{.direct = from.placed_bytes != 0});
    settled_at = 0;
    bytes = message_bytes;
    psn = message_sequence = 0;
    tag = Stag{};
  }
  /// The same for a simple request, which has left whole with this number: what such requests don't use stays empty, so
  /// that each of them takes few stores.
  void begin_sent(const WorkRequest& from, std::uint32_t message_bytes, std::uint32_t number, std::uint64_t position,
                  const SendMarks& marks) {
    if (has_more) [[unlikely]]
      clear_rest();
    copy_first(from);
    mark(marks);
    settled_at = position;
    bytes = message_bytes;
    psn = number;
  }

 private:
  static constexpr std::size_t kFirst = offsetof(WorkRequest, segments) + sizeof(LocalSegment);
  static_assert(kFirst == 64);
  void copy_first(const WorkRequest& from) {
    std::memcpy(static_cast<void*>(&request), &from, kFirst);
    if (from.segment_count > 1) [[unlikely]]
      std::copy_n(from.segments.begin() + 1, from.segment_count - 1, request.segments.begin() + 1);
  }
  [[gnu::noinline]] void clear_rest() {
    has_more = false;
    tag = Stag{};
    copy_rest(WorkRequest{});
  }
  void copy_rest(const WorkRequest& from) {
    request.datagram = from.datagram;
    request.remote_receives = from.remote_receives;
    request.invalidate = from.invalidate;
    request.delay = from.delay;
    request.swap_or_add = from.swap_or_add;
    request.compare = from.compare;
    request.memory = from.memory;
  }
  void mark(const SendMarks& marks) { static_cast<SendMarks&>(*this) = marks; }
};
inline constexpr SendMarks kSentInCells{.numbered = true};
inline constexpr SendMarks kSentDirectly{.numbered = true, .direct = true};

/// A send queue. Positions: done <= next <= sent or its successor, sent <= posted. Requests that go over the wire are
/// numbered when their first cell leaves.
struct SendQueue {
  explicit SendQueue(const QueuePairAttributes& with)
      : entries(with.send_depth),
        depth(with.send_depth),
        memory(with.memory_requests ? with.send_depth : 0),  // binds alone: made with the first
        completed(entries.capacity()),
        inline_bytes(with.max_inline_bytes),
        inline_data(entries.capacity() * with.max_inline_bytes) {}

  static constexpr Time kWaits = kNever - Duration(1);  ///< see drop_at

  Ring<SendEntry> entries;
  std::size_t depth;
  std::vector<std::optional<MemoryRequest>> memory;  ///< by position mod depth; may be empty until the first
  /// By position mod capacity, of requests that are done: CompletionQueue::pushed() with their completion; 0: they have
  /// none. Only for completion queues that reserve no places.
  std::vector<std::uint64_t> completed;
  std::size_t inline_bytes;  ///< of one request
  std::vector<std::byte> inline_data;
  mutable RememberedRegion region;  ///< which the segments used last

  std::uint64_t posted = 0;
  std::uint64_t next = 0;         ///< being put on the wire, or carried out
  std::uint64_t sent = 0;         ///< beyond the last that was on the wire whole, or carried out, at any time
  std::uint64_t done = 0;         ///< completed
  std::uint64_t answered_to = 0;  ///< every read and atomic before it is answered
  std::uint64_t repeated = 0;     ///< requests that were sent again
  std::uint64_t drain_to = 0;     ///< sq_drained: what is before it is finished
  std::uint64_t cells_to = 0;     ///< beyond the last request that changes the peer's memory by cells

  std::uint32_t acknowledged_psn = 0;  ///< every packet before it is acknowledged
  std::uint32_t sent_psn = 0;          ///< every packet before it was on the wire whole
  std::uint32_t next_psn = 0;          ///< of the next request to be numbered
  std::uint32_t message_sequence = 0;  ///< of the last read or atomic
  std::size_t unanswered = 0;          ///< reads and atomics numbered and not answered
  std::size_t max_unanswered = 0;
  std::uint64_t asked_at = 0;  ///< where in its lane the last request of a read or atomic lies; 0: not known

  std::uint32_t next_offset = 0;  ///< of `next`: bytes on the wire
  std::uint16_t next_cell = 0;
  std::uint32_t packet_crc = kPacketCrcStart;
  ReadGrant pulled_by{};  ///< what the pull that is under way was started by
  unsigned retries_left = 0;
  unsigned receiver_not_ready_left = 0;
  bool awaits_earlier = false;    ///< `next` waits until those before it are done, if they are not
  bool awaits_turn = false;       ///< the peer has said that the answer will come, and has not been asked since
  bool loss_noticed = false;      ///< an answer was missed and asked for again; the next time is the timeout's
  Time acknowledge_by = kNever;   ///< kNever: nothing awaited, or not yet started by a poll
  Time room_by = kNever;          ///< when a message that finds no room ends; kNever: none waits so
  Time hold_until = Time::min();  ///< receiver not ready
  /// Datagrams: what finds no room is dropped from then on. kNever: there was room; kWaits: there was none, and no poll
  /// has begun the time.
  Time drop_at = kNever;
  std::uint64_t room_from = 0;    ///< Path::room_given() when that time began
  std::uint64_t same_way_to = 0;  ///< datagrams before this position go where the one goes that waits for room
  Time delay_until = kNever;      ///< of a delay at `next`; kNever: not yet started by a poll

  /// cells_have_landed() of an acknowledged queue pair.
  [[nodiscard]] bool cells_are_done() const { return done >= cells_to; }
  /// Positions of which at least a cell has been on the wire, or bytes have moved or may have, or which were carried
  /// out, from done.
  [[nodiscard]] std::uint64_t started() const { return std::max(sent, next + (has_begun_next() ? 1U : 0U)) - done; }
  /// Whether some of the request at `next` has left, or moved through the window, or may have.
  [[nodiscard]] bool has_begun_next() const {
    if (next == posted) return false;
    const SendEntry& entry = entries[next];
    return next_cell != 0 || next_offset != 0 || entry.direct || entry.dma != DmaState::none;
  }
  /// Requests that are not done and will make a completion.
  [[nodiscard]] std::size_t signalled_under_way() const {
    std::size_t count = 0;
    for (std::uint64_t position = done; position != posted; ++position) count += entries[position].request.signalled;
    return count;
  }
  /// Whether the request at this position, which may be the next to be posted, finds a place. A place is free when its
  /// last request is done, and the program has taken the completion: so a program that posts until the queue is full
  /// never makes more completions than its completion queue was made for. taken_out: CompletionQueue::taken_out().
  /// Source: the verbs (a request is outstanding until its completion is retrieved).
  [[nodiscard]] bool has_place(std::uint64_t position, std::uint64_t taken_out) const {
    const bool all_taken = taken_out == std::numeric_limits<std::uint64_t>::max();
    return position - done < depth && (all_taken || position < depth || completed_at(position - depth) <= taken_out);
  }
  /// How many requests find a place now, at most so many.
  [[nodiscard]] std::uint64_t places(std::uint64_t most, std::uint64_t taken_out) const {
    const bool all_taken = taken_out == std::numeric_limits<std::uint64_t>::max();
    if (all_taken) return std::min<std::uint64_t>(most, depth - (posted - done));
    std::uint64_t count = 0;
    while (count != most && has_place(posted + count, taken_out)) ++count;
    return count;
  }
  [[nodiscard]] std::uint64_t completed_at(std::uint64_t position) const {
    return completed[position & (completed.size() - 1)];
  }
  /// The request at this position is done. pushed: see `completed`.
  void note_completed(std::uint64_t position, std::uint64_t pushed) {
    completed[position & (completed.size() - 1)] = pushed;
  }
  /// Others' completions have left the completion queue, and those before them have moved up. dropped: what
  /// CompletionQueue::forget() returned. What was taken out stays so, because as many places as were dropped are free.
  void follow_completions(std::span<const std::uint64_t> dropped) {
    for (std::uint64_t& pushed : completed) {
      const auto behind = std::ranges::partition_point(dropped, [&](std::uint64_t each) { return each > pushed; });
      pushed += static_cast<std::uint64_t>(behind - dropped.begin());
    }
  }
  void rewind_to(std::uint64_t position) {
    next = position;
    next_offset = 0;
    next_cell = 0;
    packet_crc = kPacketCrcStart;
  }
  /// The request of this packet, if it was on the wire whole and is not done; else null. Requests on the wire have
  /// successive numbers, so it steps over as many positions as are missing, and walks past local requests alone.
  [[nodiscard]] SendEntry* find_sent(std::uint32_t psn) {
    const auto is_local = [this](std::uint64_t at) { return !goes_over_the_wire(entries[at].request.operation); };
    std::uint32_t known = sent_psn;  // of the first packet from `at` on
    for (std::uint64_t at = sent; known - psn - 1 < at - done;) {
      at -= known - psn;  // there, unless requests between are local: then before
      while (is_local(at) && at != done) --at;
      if (is_local(at)) return nullptr;
      SendEntry& entry = entries[at];
      if (entry.psn == psn) return &entry;
      known = entry.psn;
    }
    return nullptr;
  }
  [[nodiscard]] std::span<std::byte> inline_at(std::uint64_t position) {
    return std::span(inline_data).subspan((position & (entries.capacity() - 1)) * inline_bytes, inline_bytes);
  }
  [[nodiscard]] std::optional<MemoryRequest>& memory_at(std::uint64_t position) {
    if (memory.empty()) memory.resize(depth);
    return memory[position % depth];
  }
};

/// The acknowledgement that the responder has yet to send: one cumulative state, sent when the lane has room.
struct PendingAcknowledgement {
  bool wanted = false;
  Syndrome syndrome = Syndrome::ok;
  std::uint32_t psn = 0;
};

/// The terminate message, sent once. A peer that continues to send gets an acknowledgement with a refusal.
struct PendingTerminate {
  bool wanted = false;
  TerminateReason reason{};
  std::uint32_t psn = 0;
  std::uint8_t head_bytes = 0;  ///< of the refused cell; 0: none was at fault
  std::array<std::byte, kMaxCellHeadBytes> head{};

  void name(const Cell& refused, std::size_t payload_bytes) {
    head_bytes = static_cast<std::uint8_t>(encode_cell_head(refused, payload_bytes, head));
  }
};

/// A posted receive, its scatter list in place.
struct alignas(64) ReceiveEntry {
  std::uint64_t id = 0;
  std::uint32_t bytes = 0;
  std::uint32_t segment_count = 0;
  SegmentList segments{};

  /// As assignment, without the segments that are not used.
  void take(const ReceiveEntry& from) {
    id = from.id;
    bytes = from.bytes;
    segment_count = from.segment_count;
    std::copy_n(from.segments.begin(), segment_count, segments.begin());
  }
};

struct ReceiveQueue {
  explicit ReceiveQueue(std::size_t requests) : entries(requests), depth(requests) {}

  /// False: more are posted.
  [[nodiscard]] bool resize(std::size_t requests);

  Ring<ReceiveEntry> entries;
  std::size_t depth;
  std::uint64_t posted = 0;
  std::uint64_t taken = 0;
  RememberedRegion region;  ///< which the segments used last
  [[nodiscard]] bool empty() const { return posted == taken; }
};

/// Receives for several queue pairs. Source: the verbs (ibv_create_srq); S4 leaves it out.
struct SharedReceiveQueue {
  SharedReceiveQueue(ProtectionDomain of, std::size_t requests) : domain(of), queue(requests) {}

  ProtectionDomain domain;
  XrcReceives xrc{};
  ReceiveQueue queue;
  std::size_t limit = 0;     ///< an event when fewer are left; 0: not armed
  std::size_t users = 0;     ///< queue pairs
  bool verbs_rules = false;  ///< QueuePairAttributes::verbs_rules
};

/// The message that is coming in.
struct Reassembly {
  bool active = false;
  MessageKind kind = MessageKind::none;
  std::uint16_t next_cell = 0;
  std::uint32_t offset = 0;  ///< bytes placed
  std::uint32_t packet_crc = kPacketCrcStart;
  Stag tag{};  ///< of a write
  std::uint64_t address = 0;
  std::uint32_t message_bytes = 0;
  RememberedEntry remembered{};  ///< of a write: what its first cell was granted
  const RegionMemory* memory = nullptr;
  std::uint64_t memory_offset = 0;
};

/// Writes that were placed although an earlier packet is missing (Responder::place_early). Each is one cell, and ends a
/// one-touch entry as soon as the stream has caught up with it. Source: S3 Fig. 18B, table D.
struct EarlyWrites {
  static constexpr std::uint32_t kWindow = 8;  ///< packets beyond the expected one
  /// The entry's tag; 0: this packet was not placed.
  [[nodiscard]] Stag& at(std::uint32_t psn) { return tags[psn % kWindow]; }

  std::array<Stag, kWindow> tags{};
};

/// The answer to an own read that is coming in.
struct AnswerReassembly {
  bool active = false;
  std::uint16_t next_cell = 0;
  std::uint32_t offset = 0;
  std::uint32_t packet_crc = kPacketCrcStart;
};

/// A read or atomic of the peer: what is needed to answer it, again if need be.
struct ResponseRecord {
  MessageKind kind = MessageKind::none;
  std::uint32_t psn = 0;
  std::uint32_t message_sequence = 0;
  ProtectionDomain domain{};
  SrqNumber shared_receives{};  ///< that it named, to an XRC target
  Stag tag{};
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
  Stag sink_tag{};
  std::uint64_t sink_address = 0;
  std::uint64_t original = 0;  ///< an atomic's result: computed once, sent again with each repeated request
  DmaState dma = DmaState::none;
  bool one_shot = false;  ///< a read that has taken a one-shot entry

  /// Starts over, with a read that is answered in cells and takes no one-shot entry. In place: the copy of a record
  /// that was just filled would wait until its parts have left the store queue.
  void begin_read(ProtectionDomain of, std::uint32_t packet, std::uint32_t message, const RemoteAddress& at,
                  std::uint32_t length) {
    kind = MessageKind::read_request;
    psn = packet;
    message_sequence = message;
    domain = of;
    shared_receives = SrqNumber{};
    tag = at.tag;
    address = at.address;
    bytes = length;
    sink_tag = Stag{};
    sink_address = original = 0;
    dma = DmaState::none;
    one_shot = false;
  }
};

/// S3's queue of incoming read requests, by message sequence number. Records stay until their places are needed: a peer
/// asks for no more than `depth` at a time, so by then it has its answer. Source: S3 Fig. 18A.
struct ResponseQueue {
  explicit ResponseQueue(std::size_t requests) : records(requests), depth(requests) {}

  Ring<ResponseRecord> records;
  std::size_t depth;
  std::uint64_t taken = 0;     ///< accepted since connected; the last one's message sequence number
  std::uint64_t next = 0;      ///< being answered, perhaps again
  std::uint64_t answered = 0;  ///< every one before it was answered whole, at any time
  bool asked_again = false;    ///< since the last poll's answers
  std::uint32_t offset = 0;
  std::uint16_t cell = 0;
  std::uint32_t packet_crc = kPacketCrcStart;
  bool in_cells = false;  ///< answers have left in cells that the peer may not have placed yet

  [[nodiscard]] bool idle() const { return next == taken; }
  [[nodiscard]] std::uint64_t oldest_kept() const { return taken - std::min<std::uint64_t>(taken, depth); }
  void restart_at(std::uint64_t position) {
    next = position;
    answered = std::max(answered, next);
    offset = 0;
    cell = 0;
    packet_crc = kPacketCrcStart;
  }
};

/// How long a queue pair waits, and how often. Source: the verbs (ibv_modify_qp).
struct QueuePairTimes {
  explicit QueuePairTimes(const AdapterOptions& options)
      : ack_timeout(options.ack_timeout),
        retry_count(options.retry_count),
        receiver_not_ready_retries(options.receiver_not_ready_retries),
        receiver_not_ready_delay(options.receiver_not_ready_delay) {}

  Duration ack_timeout;
  unsigned retry_count;
  unsigned receiver_not_ready_retries;  ///< QueuePairSettings::kWithoutEnd
  Duration receiver_not_ready_delay;
};

struct Path;

/// Of QueuePairTurns: when a poll looks at the queue pair.
struct QueuePairTurn {
  enum class State : std::uint8_t { idle, active, waiting };
  /// In place of a deadline: nothing is left for it, or it stays active.
  static constexpr Time kIdle = Time::min();
  static constexpr Time kStays = Time::min() + Duration(1);

  State state = State::idle;
  Time until = kNever;    ///< while waiting: its deadline
  Time look_at = kNever;  ///< its place among the deadlines
};

/// How a queue pair takes what its peer sends. One state, since the short way of a message has to look at it.
enum class Taking : std::uint8_t {
  usual,
  /// A refusal names a message, and the peer may have sent another copy of it before it read that. Until an ok of all
  /// packets up to QueuePair::doubted_to has left, consumption acknowledges nothing, and what is taken gets an ok.
  doubted,
  refusing,  ///< a packet was refused for good: earlier requests get their answers, then the queue pair ends
};

/// Thread: the adapter's owner.
struct QueuePair {
  QueuePair(QpNumber own, const QueuePairAttributes& with, const QueuePairTimes& waits)
      : number(own),
        options(with),
        times(waits),
        domain(with.domain),
        shared_receives(with.shared_receives),
        receive_completions(with.receive_completions),
        send(with),
        receive(with.shared_receives.value != 0 || with.xrc != XrcRole::none ? 1 : with.receive_depth),
        responses(with.reads_in) {}

  [[nodiscard]] const QueuePairRules& rules() const { return queue_pair_rules(state); }
  [[nodiscard]] Consumer consumer() const { return {domain, number}; }
  /// What is posted completes as flushed at once.
  [[nodiscard]] bool flushes_sends() const {
    return options.flush_posts && (state == QueuePairState::sq_error || state == QueuePairState::error);
  }
  [[nodiscard]] bool flushes_receives() const { return options.flush_posts && state == QueuePairState::error; }
  /// The request at send.next may begin or go on. In sq_drained those may that had begun.
  [[nodiscard]] bool sends_on() const {
    return rules().begin_sends || (rules().connected && send.next < send.drain_to);
  }

  QpNumber number;
  QueuePairAttributes options;
  QueuePairTimes times;
  QueuePairState state = QueuePairState::reset;
  bool answers_reads = true;
  QueuePairPeer peer{};
  Path* path = nullptr;  ///< to the peer, from ready_to_receive on

  /// As made; of an XRC target: those of the shared receive queue that the present message names.
  ProtectionDomain domain;
  SrqNumber shared_receives;
  CqNumber receive_completions;

  SendQueue send;
  AnswerReassembly answer{};

  ReceiveQueue receive;  ///< with a shared queue: the one that the present message took
  std::uint32_t expected_psn = 0;
  Reassembly incoming{};
  EarlyWrites early{};
  RememberedTarget target{};  ///< of the peer's writes
  RememberedTarget source{};  ///< of its reads
  Stag taken{};               ///< the one-shot entry that the first cell of a write has taken; 0: none, or it has ended
  /// A packet was refused and may be sent again. Until it arrives again, this end sends no acknowledgement.
  bool silent = false;
  Taking taking = Taking::usual;
  std::uint32_t doubted_to = 0;
  PendingAcknowledgement acknowledgement{};
  PendingTerminate terminate{};
  bool terminated_by_peer = false;
  ResponseQueue responses;
  bool draining = false;  ///< an event is due when nothing is in flight
  QueuePairTurn turn{};   ///< when polls look at it
  boost::intrusive::set_member_hook<> in_deadlines{};

  CompletionQueue* send_cq = nullptr;  ///< of options.send_completions; null: an XRC target
  /// Of receive_completions; null: an XRC target that no message has named a queue to.
  CompletionQueue* receive_cq = nullptr;

  [[nodiscard]] bool owes_answers() const { return acknowledgement.wanted || terminate.wanted || !responses.idle(); }
  /// Requests that have not left, or answers that are due.
  [[nodiscard]] bool has_to_send() const { return send.next != send.posted || owes_answers(); }
  /// Posted requests, answers that are due, or a message that is partly in: polls have something to do, or may have.
  /// The rest of an unacknowledged message may never come.
  [[nodiscard]] bool outstanding() const {
    return send.done != send.posted || owes_answers() || (incoming.active && options.acknowledged);
  }
};

}  // namespace splitnic::fabric
