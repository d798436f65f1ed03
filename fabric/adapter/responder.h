#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/adapter/context.h"

namespace splitnic::fabric {

/// The receiving half of an adapter: puts cells in order, checks and places them, consumes posted receives, does
/// atomics, answers reads. Thread: the adapter's owner.
class Responder {
 public:
  explicit Responder(AdapterContext& context) : context_(context) {}

  /// posted: counts those that were taken; the first that is not ends the list.
  Status post(QueuePair& queue_pair, std::span<const ReceiveRequest> requests, std::size_t& posted);
  Status post(SharedReceiveQueue& shared, const ReceiveRequest& request);
  /// A cell of a message, addressed to queue_pair by its peer. False: it was not taken; it was refused, is a copy, or
  /// comes out of turn.
  [[nodiscard]] bool take(QueuePair& queue_pair, const ReceivedCell& received);
  /// Makes sure that the present message has a receive; with a shared queue, takes one out of it. False: it has none.
  [[nodiscard]] bool has_receive(QueuePair& queue_pair) { return have_receive(queue_pair) == Verdict::good; }
  /// A send could not be placed, because the memory of its receive has gone.
  void refuse_gone(QueuePair& queue_pair, Stag tag, const ReceivedCell& received);
  /// Likewise a write, because the memory that it names has gone.
  void refuse_gone_target(QueuePair& queue_pair, Stag tag, const ReceivedCell& received);
  /// What a peer has under way begins with the expected packet at the latest, and is no more packets than this.
  static constexpr auto kPacketsUnderWay = static_cast<std::int32_t>(kMaxQueueDepth);
  /// The peer is being told that this packet was consumed and not taken; nullopt: that any may be one. Where it was
  /// taken all the same, before or after, the peer gets an ok. nullopt holds until kPacketsUnderWay more have come in.
  /// A queue pair that is about to be connected remembers the last of its first packets that was named.
  void doubt_consumption(QueuePair& queue_pair, std::optional<std::uint32_t> psn);
  /// A datagram for queue_pair, which takes such; message: what follows its header.
  void take_datagram(QueuePair& queue_pair, const Path& path, const DatagramHeader& header, const Cell& cell,
                     const CellPayload& message);
  /// Sends the pending acknowledgement or terminate message, if any; true if a cell went out. Never waits for requests.
  bool push_acknowledgement(QueuePair& queue_pair);
  /// Answers to the peer's reads and atomics, at most `budget` cells; returns how many went out.
  std::size_t push_responses(QueuePair& queue_pair, std::size_t budget);
  /// The payload of the cell that push_responses() would send next. nullopt: it has more to do than that, or nothing.
  [[nodiscard]] std::optional<std::size_t> next_payload(const QueuePair& queue_pair) const;
  /// To be called after the answers of a poll. If the peer has asked again for an answer that still waits, sends an
  /// acknowledgement of the packet before it. The peer learns that this end has the request.
  void reassure(QueuePair& queue_pair);
  /// A copy that was started for the response at `position` has ended.
  void transfer_ended(QueuePair& queue_pair, std::uint64_t position, bool moved);

 private:
  /// What became of a cell that came in order. Where it was refused for good, error_ and use_ say more.
  enum class Verdict {
    good,
    not_ready,         ///< no receive is posted, or the one that stands finds no place for its completion
    damaged,           ///< the packet CRC does not fit
    refused,           ///< by the protection table
    nonsense,          ///< lengths that contradict each other
    too_long,          ///< for the posted receive
    receive_is_void,   ///< the posted receive's memory was deregistered, or is gone
    unknown_receives,  ///< no such shared receive queue, or of another XRC domain
    overrun,           ///< the completion queue has no room for a receive out of a shared queue
  };

  // responder.cpp: order, placing, refusing
  Status fill(ReceiveQueue& receive, const Consumer& user, const ReceiveRequest& request, bool verbs_rules) const;
  Status fill_checked(ReceiveQueue& receive, ReceiveEntry& entry, const Consumer& user, const ReceiveRequest& request,
                      bool verbs_rules) const;
  [[nodiscard]] bool in_order_acknowledged(QueuePair& queue_pair, const ReceivedCell& received);
  [[nodiscard]] static bool keeps_cells(const QueuePair& queue_pair, const OpcodeTraits& what);
  [[nodiscard]] bool place_early(QueuePair& queue_pair, const ReceivedCell& received);
  void pass_early(QueuePair& queue_pair);
  [[nodiscard]] bool in_order_unacknowledged(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict accept(QueuePair& queue_pair, const ReceivedCell& received);
  [[nodiscard]] Verdict meet_faults(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict begin(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict name_receives(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict have_receive(QueuePair& queue_pair);
  [[nodiscard]] Verdict have_receive(QueuePair& queue_pair, const OpcodeTraits& what);
  [[nodiscard]] Verdict place(QueuePair& queue_pair, const ReceivedCell& received);
  [[nodiscard]] bool scatter(QueuePair& queue_pair, std::uint32_t at, const CellPayload& payload);
  [[nodiscard]] Verdict place_send(QueuePair& queue_pair, const CellPayload& payload);
  [[nodiscard]] Verdict place_write(QueuePair& queue_pair, const ReceivedCell& received);
  [[nodiscard]] Verdict refused(ProtectionError error, ProtectedUse use);
  void finish(QueuePair& queue_pair, const Cell& cell);
  void refuse(QueuePair& queue_pair, Verdict why, const ReceivedCell& received);
  void refuse_unacknowledged(QueuePair& queue_pair, Verdict why);
  void refuse_for_good(QueuePair& queue_pair, Syndrome syndrome, TerminateReason reason, const Cell& request,
                       std::size_t payload_bytes);
  [[nodiscard]] bool push_terminate(QueuePair& queue_pair);

  // read_responder.cpp: reads and atomics
  [[nodiscard]] Verdict take_request(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict carry_out_atomic(QueuePair& queue_pair, const Cell& cell, std::uint64_t& original);
  void answer_again(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] bool push_response(QueuePair& queue_pair);
  [[nodiscard]] bool push_read_cell(QueuePair& queue_pair, ResponseRecord& record);
  [[nodiscard]] bool store_directly(QueuePair& queue_pair, ResponseRecord& record);
  void response_failed(QueuePair& queue_pair, const ResponseRecord& record, ProtectionError error);

  AdapterContext& context_;
  ProtectionError error_ = ProtectionError::invalid_stag;
  ProtectedUse use_ = ProtectedUse::write;
};

/// By the verbs' rules a message of no bytes names no memory. Source: InfiniBand, C9-88.
[[nodiscard]] bool names_memory(const QueuePair& queue_pair, std::uint32_t bytes);

/// Terminate reasons that name no error of the protection table. Source: RFC 5040 section 4.8, RFC 5041 section 8.2.
inline constexpr TerminateReason kUnspecifiedOperationError{0, 2, 0xff};
inline constexpr TerminateReason kInvalidQueueNumber{1, 2, 1};
inline constexpr TerminateReason kMessageTooLong{1, 2, 5};
inline constexpr TerminateReason kLocalCatastrophe{0, 0, 0};

}  // namespace splitnic::fabric
