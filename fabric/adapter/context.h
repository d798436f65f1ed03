#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "fabric/adapter/completion_queue.h"
#include "fabric/adapter/counted_poll.h"
#include "fabric/adapter/datagrams.h"
#include "fabric/adapter/events.h"
#include "fabric/adapter/path.h"
#include "fabric/adapter/path_turns.h"
#include "fabric/adapter/placements.h"
#include "fabric/adapter/queue_pair.h"
#include "fabric/adapter/transfers.h"
#include "fabric/memory/protection_table.h"

namespace splitnic::fabric {

/// What the parts of one adapter share. Thread: the adapter's owner.
struct AdapterContext {
  AdapterContext(const AdapterOptions& with, RandomSource& random)
      : options(with),
        table(with.max_regions, random, with.numbers ? with.numbers->tags().first : 0),
        transfers(with.dma),
        events(with.max_events) {
    if (transfers.pulls()) table.set_watch(transfers);
  }

  /// quick: CountedPoll::quick.
  void begin_poll(bool quick) {
    ++poll.number;
    poll.quick = quick;
  }

  AdapterOptions options;
  ProtectionTable table;
  Transfers transfers;
  std::vector<std::unique_ptr<Path>> paths;                         ///< by number - 1; null: detached
  PathTurns turns;                                                  ///< which of them a poll looks at
  std::vector<std::unique_ptr<QueuePair>> queue_pair_slots;         ///< by the low bits of the number; null: free
  std::vector<std::unique_ptr<CompletionQueue>> completion_queues;  ///< by number - 1; null: destroyed
  std::vector<std::unique_ptr<SharedReceiveQueue>> shared_receive_queues;
  std::vector<std::unique_ptr<CompletionChannel>> completion_channels;
  DatagramTables datagrams;
  EventQueue events;
  AdapterCounters counters{};
  Time now{};        ///< of the last poll
  CountedPoll poll;  ///< the last one
  /// Requests that were done since then, at their post or before the links were polled. Their completions are news to a
  /// caller that polls, then sleeps.
  std::size_t done_at_post = 0;

  std::uint64_t to_place = Placements::kAtOnceBytes;  ///< bytes that may still be placed before the next poll

  bool overrun = false;  ///< a completion queue has failed; the next poll fails its queue pairs

  /// CompletionQueue::push(). A queue that reserves no places may have no room: then it fails.
  template <class Make>
  void push_completion(CompletionQueue& queue, Make&& make) {
    if (!queue.push(make)) [[unlikely]]
      lose_completion(queue);
  }
  /// Null: there is no queue pair of this number.
  [[nodiscard]] QueuePair* queue_pair(QpNumber number) const {
    QueuePair* candidate = queue_pair_slots[number.value & (queue_pair_slots.size() - 1)].get();
    return candidate != nullptr && candidate->number == number ? candidate : nullptr;
  }
  [[nodiscard]] CompletionQueue* completion_queue(CqNumber number) { return at(completion_queues, number.value); }
  [[nodiscard]] SharedReceiveQueue* shared_receive_queue(SrqNumber number) {
    return at(shared_receive_queues, number.value);
  }
  [[nodiscard]] CompletionChannel* completion_channel(ChannelNumber number) {
    return at(completion_channels, number.value);
  }
  /// number 0: the only path that is attached. Null: there is no such path.
  [[nodiscard]] Path* path(PathNumber number) { return number.value != 0 ? at(paths, number.value) : only_path(); }
  void report(const AsyncEvent& event) {
    if (!events.push(event)) ++counters.dropped_events;
  }

 private:
  [[nodiscard]] Path* only_path();
  void lose_completion(CompletionQueue& queue);
  template <class T>
  [[nodiscard]] static T* at(const std::vector<std::unique_ptr<T>>& objects, std::uint32_t number) {
    return number != 0 && number <= objects.size() ? objects[number - 1].get() : nullptr;
  }
};

/// The queue pair is about to be connected to this peer, over this path; or it has no peer any more.
void join_path(QueuePair& queue_pair, Path& path, const QueuePairPeer& peer);
void leave_path(QueuePair& queue_pair);

/// Whether the numbers of a packet's cells suffice for so many bytes on the queue pair's path.
[[nodiscard]] bool fits_packet(std::uint32_t bytes, const QueuePair& queue_pair);
/// Whether the peer has placed all that the queue pair has sent in cells. What is stored before that would be visible
/// before older bytes, and be overwritten by them. A cell that is consumed may be refused and sent again, so that only
/// the end of its request counts; of a queue pair without acknowledgements, whose requests end when they have left, the
/// whole lane must be consumed. Source: design, "Direct writes".
[[nodiscard]] bool cells_have_landed(QueuePair& queue_pair);

/// The header of a cell of queue_pair to its peer.
[[nodiscard]] Cell addressed_cell(const QueuePair& queue_pair, Opcode opcode, std::uint32_t psn);
/// Sends the cell that was claimed last (CellLink::claim). Returns its position in the lane.
std::uint64_t release_cell(AdapterContext& context, Path& path, VirtualLane lane, const Cell& cell,
                           std::size_t payload_bytes, std::uint32_t& packet_crc);
/// Sends a message of one cell with this payload; false: the lane is full.
[[nodiscard]] bool send_cell(AdapterContext& context, Path& path, VirtualLane lane, const Cell& cell,
                             std::span<const std::byte> payload = {});

/// Ends the oldest request of the send queue. queue: the send queue's.
inline void complete_send(AdapterContext& context, CompletionQueue& queue, QueuePair& queue_pair,
                          CompletionStatus status) {
  SendQueue& send = queue_pair.send;
  SPLITNIC_CHECK(send.done != send.posted);
  const SendEntry& entry = send.entries[send.done];
  if (entry.request.signalled || status != CompletionStatus::success) {
    context.push_completion(queue, [&](Completion& completion) {
      completion.id = entry.request.id;
      completion.queue_pair = queue_pair.number;
      completion.status = status;
      completion.operation = entry.request.operation;
      completion.tag = entry.tag;
      completion.bytes = is_answered(entry.request.operation) ? entry.bytes : 0;
    });
    if (!queue.reserves()) send.note_completed(send.done, queue.pushed());
  } else {
    queue.release();
    if (!queue.reserves()) send.note_completed(send.done, 0);
  }
  ++send.done;
}
inline void complete_send(AdapterContext& context, QueuePair& queue_pair, CompletionStatus status) {
  complete_send(context, *queue_pair.send_cq, queue_pair, status);
}

/// Whether such a cell, which ends with an immediate, uses the receive that stands.
[[nodiscard]] inline bool uses_standing_receive(const QueuePair& queue_pair, const OpcodeTraits& what) {
  return queue_pair.options.standing_receive.has_value() && what.is(MessageKind::write);
}

/// Ends the oldest posted receive. queue: the receive queue's. say(Completion&) adds what its completion says beside
/// the request and the queue pair.
template <class Say>
void complete_receive(AdapterContext& context, CompletionQueue& queue, QueuePair& queue_pair, Say&& say) {
  ReceiveQueue& receive = queue_pair.receive;
  SPLITNIC_CHECK(!receive.empty());
  context.push_completion(queue, [&](Completion& completion) {
    completion.id = receive.entries[receive.taken].id;
    completion.queue_pair = queue_pair.number;
    completion.receive = true;
    say(completion);
  });
  ++receive.taken;
}

template <class Say>
void complete_receive(AdapterContext& context, QueuePair& queue_pair, Say&& say) {
  complete_receive(context, *queue_pair.receive_cq, queue_pair, say);
}

/// The same of the receive that stands, which the caller has reserved a place for.
template <class Say>
void complete_standing_receive(AdapterContext& context, CompletionQueue& queue, const QueuePair& queue_pair,
                               Say&& say) {
  context.push_completion(queue, [&](Completion& completion) {
    completion.id = *queue_pair.options.standing_receive;
    completion.queue_pair = queue_pair.number;
    completion.receive = true;
    say(completion);
  });
}

/// A datagram that lies in its receive's memory.
struct DatagramArrival {
  QpNumber source{};
  PathNumber path{};
  std::uint32_t bytes = 0;  ///< with the route header
  bool solicited = false;
  bool has_immediate = false;
  std::uint32_t immediate = 0;
};
/// Ends the oldest posted receive with it.
inline void complete_datagram(AdapterContext& context, QueuePair& queue_pair, const DatagramArrival& arrival) {
  ++context.counters.datagrams_received;
  complete_receive(context, queue_pair, [&](Completion& completion) {
    completion.bytes = arrival.bytes;
    completion.solicited = arrival.solicited;
    completion.has_immediate = arrival.has_immediate;
    completion.immediate = arrival.immediate;
    completion.has_route = true;
    completion.source = arrival.source;
    completion.path = arrival.path;
  });
}

/// To error: the oldest send ends with `first` (unless that is flushed or nothing is posted), everything else is
/// flushed.
void fail_queue_pair(AdapterContext& context, QueuePair& queue_pair, CompletionStatus first);
/// What a queue pair that flushes posts was given in sq_error or error.
void flush_posted_sends(AdapterContext& context, QueuePair& queue_pair);
void flush_posted_receives(AdapterContext& context, QueuePair& queue_pair);
/// To error without an event, everything flushed, because the user asked for it.
void flush_queue_pair(AdapterContext& context, QueuePair& queue_pair);
/// To sq_error: likewise, of the send queue alone. Nothing of it is in flight.
void fail_sends(AdapterContext& context, QueuePair& queue_pair, CompletionStatus first);
/// To error because an epoch ended or the peer gave up: sends that had begun end as outcome_unknown, the rest is
/// flushed.
void void_queue_pair(AdapterContext& context, QueuePair& queue_pair);
/// Of an XRC target: the shared receive queue that its present message names is going. A receive out of it is
/// forgotten, and the message, which the peer sends again, is refused then.
void leave_receives(QueuePair& queue_pair);
/// A read of a one-shot entry has been answered, and its answer has arrived for sure or will not be given again: the
/// entry ends.
void end_one_shot(AdapterContext& context, const QueuePair& queue_pair, const ResponseRecord& record);
/// To reset: everything posted is forgotten without completions.
void reset_queue_pair(AdapterContext& context, QueuePair& queue_pair);
}  // namespace splitnic::fabric
