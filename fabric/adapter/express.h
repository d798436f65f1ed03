#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/adapter/context.h"
#include "fabric/adapter/express_parts.h"
#include "fabric/adapter/requester.h"
#include "fabric/adapter/responder.h"
#include "fabric/link/slot_lane.h"

namespace splitnic::fabric {

/// The short way of the most frequent messages, which are one slot, from one piece of remembered memory or inline data,
/// and into one piece: sends, writes and reads of connected, acknowledged queue pairs, and datagrams that are not for a
/// group. And writes that are only to be announced.
/// Requester and Responder do the same for all messages, and everything that is more than this: what waits, what is
/// refused or retried. So each function here first makes sure that nothing else is to be done, then does all of it, and
/// otherwise changes nothing.
/// Thread: the adapter's owner. Source: design, "Slots and a payload ring", "Consumption is acknowledgement", "Check
/// once".
class Express {
 public:
  Express(AdapterContext& context, Requester& requester, Responder& responder)
      : context_(context), requester_(requester), responder_(responder) {}

  /// Posts and sends requests from the first on, up to the first that is the requester's; returns how many.
  std::size_t post(QueuePair& queue_pair, std::span<const WorkRequest> requests);

  /// Why a burst ended.
  enum class End {
    enough,    ///< as many as were wanted
    empty,     ///< the lane has no slot
    left,      ///< the next one is as it was: it is for CellLink::front()
    refused,   ///< the responder has refused the last one, which is consumed; refused() says which
    answered,  ///< the last one, which is consumed, has answered a read
  };
  struct Burst {
    std::size_t taken = 0;  ///< without the last one, where `end` tells of it
    End end = End::enough;
    QueuePair* reader = nullptr;  ///< whose read was answered
  };
  /// Takes and consumes the lane's oldest slots, at most so many. The path is open.
  [[nodiscard]] Burst take(Path& path, VirtualLane lane, std::size_t most);
  /// As take(), of the lane's oldest slot alone, if that is like the last one that take() has taken: a send or a
  /// datagram with its bytes in its lines, or the answer to a read, and there is nothing else to say of it. empty:
  /// there is no slot, or one of another kind; left: there is something else to say. Nothing was consumed then.
  /// answered: a read of path.receiver. (Where faults are injected, take() takes nothing.)
  [[nodiscard]] End take_one(Path& path, VirtualLane lane) {
    SlotLane& slots = *path.slots[static_cast<std::size_t>(lane)];
    switch (path.last_kind[static_cast<std::size_t>(lane)]) {
      case MessageKind::send:
        return take_one_send(path, slots);
      case MessageKind::datagram:
        return take_one_datagram(path, slots);
      case MessageKind::read_response:
        return take_one_answer(path, slots);
      default:
        return End::empty;
    }
  }
  /// The message that take() has refused.
  [[nodiscard]] const Cell& refused() const { return refused_.cell; }

 private:
  /// The extended headers of the messages that go this way.
  struct Headers {
    Stag tag{};
    std::uint64_t address = 0;
    std::uint32_t bytes = 0;
    std::uint32_t immediate = 0;
  };
  /// How datagrams leave that go by one address handle.
  struct Route {
    AddressHandleNumber handle{};
    Path* path = nullptr;
    SlotLane* slots = nullptr;
    std::uint32_t most_bytes = 0;  ///< of a message
    DatagramWords header{};        ///< all but the queue key
  };
  /// What a message carries.
  struct Source {
    const std::byte* from = nullptr;  ///< null: the requester finds out why it can't be had
    std::uint32_t bytes = 0;
  };
  /// What has left.
  struct Put {
    std::uint64_t position = 0;  ///< the slot's; 0: nothing
    bool direct = false;         ///< the bytes went through the peer window
  };
  enum class Verdict { taken, left, refused, answered };

  [[nodiscard]] bool sends_at_once(const QueuePair& queue_pair) const;
  [[nodiscard]] std::size_t post_others(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] std::size_t store_writes(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] std::size_t post_slots(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] static Source source_of(SendQueue& send, const WorkRequest& request);
  [[nodiscard]] static Source inline_source_of(SendQueue& send, const WorkRequest& request);
  [[nodiscard]] static Put put_cell(const QueuePair& queue_pair, SlotLane& slots, const WorkRequest& request,
                                    const Source& source, std::size_t most_payload);
  [[nodiscard]] Put put_write(const QueuePair& queue_pair, SlotLane& slots, const WorkRequest& request,
                              const Source& source, std::size_t most_payload);
  [[nodiscard]] static WindowPlace granted_place(const QueuePair& queue_pair, const WorkRequest& request,
                                                 std::uint32_t bytes);
  [[nodiscard]] std::size_t post_datagrams(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] bool find_route(const QueuePair& queue_pair, AddressHandleNumber handle, Route& route) const;
  [[nodiscard]] static bool put_datagram(const QueuePair& queue_pair, Route& route, const WorkRequest& request,
                                         const Source& source);
  // express_alone.cpp
  /// As post(), of one request.
  [[nodiscard]] std::size_t post_one(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
    const WorkRequest& request = requests.front();
    if (request.operation == Operation::send) {
      return request.segments[0].bytes <= kSlotBodyInBoth ? post_one_send(queue_pair, requests)
                                                          : post_one_long_send(queue_pair, requests);
    }
    return request.operation == Operation::rdma_write_with_immediate ? post_one_immediate(queue_pair, requests)
                                                                     : post_others(queue_pair, requests);
  }
  [[nodiscard]] std::size_t post_one_send(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] std::size_t post_one_long_send(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] std::size_t post_one_immediate(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] End take_one_send(Path& path, SlotLane& slots);
  [[nodiscard]] End take_one_datagram(Path& path, SlotLane& slots);
  [[nodiscard]] End take_one_answer(Path& path, SlotLane& slots);  // express.cpp
  [[nodiscard]] static bool finds_one(const SlotLane& slots, SlotReceiver::Row& row, std::uint64_t kind);
  [[nodiscard]] static std::byte* place_of_one(const QueuePair& queue_pair, const SlotReceiver::Row& row,
                                               std::uint32_t bytes);
  void consume_one(SlotLane& slots, SlotReceiver::Row& row);
  [[nodiscard]] bool put_send(QueuePair& queue_pair, const WorkRequest& request, bool in_lines);
  [[nodiscard]] bool put_immediate(QueuePair& queue_pair, const WorkRequest& request);
  [[nodiscard]] SlotLane* lane_of_one(const QueuePair& queue_pair, const WorkRequest& request) const;
  void note_one(QueuePair& queue_pair, const WorkRequest& request, std::uint64_t position, const SendMarks& marks);
  // express_rows.cpp
  [[nodiscard]] static bool may_begin_row(const WorkRequest& request) {
    const bool sends = request.operation == Operation::send && request.segments[0].bytes <= kSlotBodyInBoth;
    return sends || request.operation == Operation::rdma_write_with_immediate;
  }
  /// As post(), of a list whose first request may_begin_row(). What a row leaves goes on as post_others().
  [[nodiscard]] std::size_t post_row(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
    return requests.front().operation == Operation::send ? post_send_row(queue_pair, requests)
                                                         : post_immediate_row(queue_pair, requests);
  }
  [[nodiscard]] std::size_t post_send_row(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] std::size_t post_immediate_row(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  template <Operation operation>
  [[nodiscard]] std::size_t post_row_of(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] Burst take_row(Path& path, SlotLane& slots, std::size_t most);
  // express_announcements.cpp
  [[nodiscard]] std::size_t post_announcements(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  // express_reads.cpp
  [[nodiscard]] std::size_t post_reads(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] std::byte* sink_of(const QueuePair& queue_pair, const LocalSegment& segment) const;
  [[nodiscard]] Verdict take_read(const Path& path, QueuePair& queue_pair, const ReceivedSlot& slot);
  [[nodiscard]] Verdict take_answer(QueuePair& queue_pair, ReceivedSlot& slot);

  /// The queue pair of this number. The last one is known before the message's number is.
  [[nodiscard, gnu::always_inline]] QueuePair* find_receiver(Path& path, QpNumber number) const {
    QueuePair* last = path.receiver;
    if (last != nullptr && last->number == number) return last;
    return path.receiver = context_.queue_pair(number);
  }
  /// The same, if whole messages that come in order need nothing but to be placed; else null.
  [[nodiscard]] QueuePair* receiver(Path& path, QpNumber number) const {
    QueuePair* queue_pair = find_receiver(path, number);
    if (queue_pair == nullptr || !path.serves(queue_pair->path)) return nullptr;
    const bool usual = express_parts::is_plain(queue_pair->options) && queue_pair->rules().connected &&
                       queue_pair->taking == Taking::usual && !queue_pair->incoming.active &&
                       !queue_pair->acknowledgement.wanted;
    return usual ? queue_pair : nullptr;
  }
  [[nodiscard]] Verdict take_send(QueuePair& queue_pair, CompletionQueue& completions, SlotReceiver& from,
                                  ReceivedSlot& slot, const OpcodeTraits& what);
  [[nodiscard]] Verdict take_write(QueuePair& queue_pair, CompletionQueue& completions, ReceivedSlot& slot,
                                   const OpcodeTraits& what);
  [[nodiscard]] Verdict take_datagram(Path& path, SlotReceiver& from, ReceivedSlot& slot, const OpcodeTraits& what);
  [[nodiscard]] const ProtectionEntry* granted(const QueuePair& queue_pair, RememberedTarget& last, Right right,
                                               const RemoteAddress& at, std::uint32_t bytes, std::uint32_t psn) const;
  [[nodiscard]] const ProtectionEntry* target_of(QueuePair& queue_pair, const Headers& headers,
                                                 std::uint32_t psn) const;
  [[nodiscard]] static ReceivedCell as_received(const ReceivedSlot& slot, const Headers& headers,
                                                const CellPayload& payload = {});
  void complete(QueuePair& queue_pair, CompletionQueue& completions, const ReceivedSlot& slot, const OpcodeTraits& what,
                const Headers& headers, bool stands);

  AdapterContext& context_;
  Requester& requester_;
  Responder& responder_;
  ReceivedCell refused_{};
};

}  // namespace splitnic::fabric
