#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "fabric/adapter/context.h"
#include "fabric/adapter/placer.h"

namespace splitnic::fabric {

/// The sending half of an adapter: cuts messages into cells or has them stored through the peer window, carries out
/// local requests in their turn, awaits acknowledgements and answers, retries. Thread: the adapter's owner.
class Requester {
 public:
  explicit Requester(AdapterContext& context) : context_(context), placer_(context) {}

  Status post(QueuePair& queue_pair, const WorkRequest& request);
  /// Whether the queue pair could post the request if it had room. bytes: of its message.
  Status check(const QueuePair& queue_pair, const WorkRequest& request, std::uint32_t& bytes) const;
  /// Puts at most `budget` cells on the wire; returns how many. Stops where the lane is full: nothing blocks.
  std::size_t pump(QueuePair& queue_pair, std::size_t budget);
  /// The payload of the cell that pump() would send next. nullopt: it has more to do than that, or something else.
  [[nodiscard]] std::optional<std::size_t> next_payload(const QueuePair& queue_pair) const;
  /// A copy that was started for the request at `position` has ended.
  void transfer_ended(QueuePair& queue_pair, std::uint64_t position, bool moved);

  /// The peer's answers. Numbers that can't be are ignored.
  void take_acknowledgement(QueuePair& queue_pair, const Cell& cell);
  /// The lane of its path is settled further. Returns how many requests ended by it.
  std::size_t take_settled(QueuePair& queue_pair);
  /// The peer consumed a message without taking it: the one with this packet sequence number. See also
  /// Path::refuse_sent().
  static void take_not_taken(QueuePair& queue_pair, std::uint32_t psn);
  void take_terminate(QueuePair& queue_pair, const ReceivedCell& received);
  void take_read_response(QueuePair& queue_pair, const ReceivedCell& received);
  /// The oldest read or atomic that has left and is not answered; null: there is none.
  [[nodiscard]] static SendEntry* unanswered(QueuePair& queue_pair);
  /// The answer to this request is in place.
  void answered(QueuePair& queue_pair, SendEntry& entry);
  void take_atomic_response(QueuePair& queue_pair, const ReceivedCell& received);

  /// Timeouts by context.now.
  void check_time(QueuePair& queue_pair);
  /// When check_time or pump wants to run next, without anything coming in.
  [[nodiscard]] Time next_deadline(const QueuePair& queue_pair) const;
  /// Until when the queue pair only waits: before, polls have nothing to do for it unless something comes in for it.
  /// QueuePairTurn::kStays: they have something to do, or may have.
  [[nodiscard]] Time waits_until(const QueuePair& queue_pair) const;
  /// As next_deadline(), for a datagram queue pair.
  [[nodiscard]] Time next_datagram_deadline(const QueuePair& queue_pair) const;

 private:
  /// What a turn of the request at `next` came to.
  enum class Step { cell, carried_out, stop };

  // requester.cpp: what goes out
  [[nodiscard]] bool may_begin(const QueuePair& queue_pair, const SendEntry& entry) const;
  [[nodiscard]] Step advance(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] std::optional<Step> meet_faults(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] bool is_lost(const QueuePair& queue_pair, const SendEntry& entry) const;
  void lose_answer(const QueuePair& queue_pair, SendEntry& entry) const;
  void send_twice(QueuePair& queue_pair, SendEntry& entry, Path& path, Cell cell, std::size_t bytes,
                  std::span<const std::byte> head, std::uint32_t packet_crc);
  [[nodiscard]] Step carry_out(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] CompletionStatus run_memory_request(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] Step move_directly(QueuePair& queue_pair, SendEntry& entry);
  void report_unmoved(QueuePair& queue_pair, const SendEntry& entry);
  [[nodiscard]] std::optional<Step> pull(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] bool may_pull(const QueuePair& queue_pair, const SendEntry& entry) const;
  [[nodiscard]] DmaStart start_pull(QueuePair& queue_pair, const SendEntry& entry);
  [[nodiscard]] bool find_sinks(const QueuePair& queue_pair, const WorkRequest& request, DmaTransfer& transfer) const;
  [[nodiscard]] Step send_message_cell(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] Step send_request_cell(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] bool load(QueuePair& queue_pair, SendEntry& entry, ClaimedPayload to);
  void number(QueuePair& queue_pair, SendEntry& entry);
  void message_sent(QueuePair& queue_pair);
  /// The request at `next` can't go on: ends it when those before it have ended.
  Step fail_at_turn(QueuePair& queue_pair, SendEntry& entry, CompletionStatus status);

  // datagrams.cpp
  enum class Copy { sent, dropped, blocked, failed };
  [[nodiscard]] Step send_datagram(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] Copy send_copy(QueuePair& queue_pair, SendEntry& entry, const AddressHandle& to, PathNumber by);

  // requester_answers.cpp: acknowledgements and responses
  void complete_acknowledged(QueuePair& queue_pair, std::uint32_t psn);
  void progressed(QueuePair& queue_pair);
  [[nodiscard]] bool complete_ready(QueuePair& queue_pair);
  void complete_consumed(QueuePair& queue_pair, CompletionQueue& completions, std::uint64_t refused_to,
                         std::uint64_t settled);
  void refused(QueuePair& queue_pair, CompletionStatus status);
  [[nodiscard]] bool answer_is_lost(const QueuePair& queue_pair, std::uint32_t psn) const;
  [[nodiscard]] SendEntry* answered_by(QueuePair& queue_pair, const Cell& cell, bool read);
  void answer_missed(QueuePair& queue_pair);
  static void awaits_turn(QueuePair& queue_pair);
  [[nodiscard]] std::optional<ProtectionError> sink_refusal(const QueuePair& queue_pair, const SendEntry& entry,
                                                            std::uint32_t psn) const;
  [[nodiscard]] std::optional<ProtectionError> place_answer(QueuePair& queue_pair, SendEntry& entry,
                                                            const CellPayload& payload, bool last);
  [[nodiscard]] std::optional<ProtectionError> place_part(QueuePair& queue_pair, const SendEntry& entry,
                                                          const LocalSegment& segment, std::uint32_t offset,
                                                          const CellPayload& payload, bool last);
  void end_before_refusal(QueuePair& queue_pair);
  void refuse_answer(QueuePair& queue_pair, const SendEntry& entry, const ReceivedCell& received, ProtectionError error,
                     CompletionStatus status);
  void retry(QueuePair& queue_pair);
  void mend(QueuePair& queue_pair);
  [[nodiscard]] static bool is_timed(const QueuePair& queue_pair);
  [[nodiscard]] static bool may_be_lost(const QueuePair& queue_pair);
  void ask_again(QueuePair& queue_pair);
  [[nodiscard]] static bool waits_for_path(const QueuePair& queue_pair);
  [[nodiscard]] bool lacks_room(const QueuePair& queue_pair) const;
  [[nodiscard]] bool waits_for_others(const QueuePair& queue_pair) const;
  [[nodiscard]] bool lacked_room_for_long(QueuePair& queue_pair);
  void await_room(QueuePair& queue_pair);

  AdapterContext& context_;
  Placer placer_;
};

/// Ends the stream for good, because of a failure that no request of the peer has caused: sends one terminate message,
/// flushes everything posted here, and ends the oldest send with `first`. answer: the peer's answer at fault, or null.
void end_stream(AdapterContext& context, QueuePair& queue_pair, TerminateReason reason, CompletionStatus first,
                const ReceivedCell* answer = nullptr);

}  // namespace splitnic::fabric
