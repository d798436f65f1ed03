#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/fabric/contents.h"
#include "bench/fabric/end.h"
#include "bench/fabric/measurement.h"
#include "common/result.h"
#include "fabric/verbs/verbs.h"

namespace splitnic::bench {

/// Where completions are taken to. It is kept: a new one would be initialized for each poll.
using CompletionBatch = std::array<verbs::Completion, 32>;

/// The queue pairs of one measurement, with completion queues of their own, so that nothing of an earlier one remains.
/// The busy ones come first.
class DataQueuePairs {
 public:
  static Result<DataQueuePairs> make(End& end, const Measurement& what);

  [[nodiscard]] std::size_t count() const { return queue_pairs_.size(); }
  /// Datagrams: the handle of the other end, and the queue pair that takes those of queue pair 0.
  [[nodiscard]] const verbs::AddressHandle& peer() const { return peer_; }
  [[nodiscard]] verbs::QpNumber peer_number() const { return peer_number_; }
  /// Puts the addresses of queue pair message.count and the next ones into the message; as many as fit.
  void put_addresses(ControlMessage& message) const;
  /// Connects the same ones with those of the peer's message. Errors: there are no such, or not so many.
  Result<void> connect(const ControlMessage& message);

  /// Which one carries the message.
  [[nodiscard]] std::size_t index_of(std::uint64_t sequence) const {
    return busy_ == 1 ? 0 : static_cast<std::size_t>(sequence % busy_);
  }
  [[nodiscard]] verbs::QueuePair& of(std::uint64_t sequence) { return queue_pairs_[index_of(sequence)]; }
  [[nodiscard]] verbs::CompletionQueue& sent() { return sent_; }
  [[nodiscard]] verbs::CompletionQueue& received() { return received_; }

 private:
  verbs::Status connect(std::size_t index, const verbs::QueuePairAddress& peer);

  verbs::CompletionQueue sent_;
  verbs::CompletionQueue received_;
  End* end_ = nullptr;
  std::size_t busy_ = 1;
  bool datagrams_ = false;
  verbs::AddressHandle peer_;
  verbs::QpNumber peer_number_{};
  std::vector<verbs::QueuePair> queue_pairs_;
};

/// One direction's messages, at the end that posts them. id: the flow's; both its ends know it.
class Outgoing {
 public:
  Outgoing(End& end, DataQueuePairs& with, const Measurement& what, std::uint32_t id);

  /// False: an earlier message still uses a place that the next list of messages needs.
  [[nodiscard]] bool may_post() const;
  /// Posts a list. False: it failed, which ends the end's run_until().
  bool post_next();
  /// Takes the completions that are there.
  void poll();

  [[nodiscard]] std::uint64_t posted() const { return posted_; }
  [[nodiscard]] std::uint64_t completed() const { return completed_; }
  /// Whether completed reads and atomics brought the expected bytes.
  Result<void> check() const;

 private:
  [[nodiscard]] verbs::WorkRequest request() const;
  void direct(verbs::WorkRequest& request, std::uint64_t sequence, std::size_t slot) const;

  End& end_;
  DataQueuePairs& with_;
  Measurement what_;
  SlotLayout layout_;
  std::uint32_t id_;
  std::uint64_t posted_ = 0;
  std::size_t next_slot_ = 0;  ///< of the next message: counted along, because dividing costs more than a post
  std::uint64_t completed_ = 0;
  std::vector<std::uint64_t> under_way_;       ///< of each busy queue pair
  std::vector<verbs::WorkRequest> list_;       ///< that is posted next
  std::vector<verbs::LocalSegment> segments_;  ///< of each slot
  verbs::RemoteKey remote_{};
  CompletionBatch batch_{};
};

/// The same messages, at the other end.
class Incoming {
 public:
  Incoming(End& end, DataQueuePairs& with, const Measurement& what, std::uint32_t id);

  /// Takes the messages that have arrived; a failure ends the end's run_until().
  void poll();
  /// The number of messages that have arrived so far. This end does not notice reads and atomics, nor the writes of a
  /// rate, because polling memory would slow them down.
  [[nodiscard]] std::uint64_t arrived() const { return arrived_; }
  /// Whether the memory holds the first `sent` messages.
  Result<void> check(std::uint64_t sent) const;

 private:
  void prepare_receive(std::uint64_t number);
  void post_receives();

  End& end_;
  DataQueuePairs& with_;
  Measurement what_;
  SlotLayout layout_;
  std::uint32_t id_;
  std::uint64_t arrived_ = 0;
  std::vector<verbs::LocalSegment> segments_;    ///< of each slot
  std::vector<verbs::ReceiveRequest> receives_;  ///< that are posted next, of one queue pair
  CompletionBatch batch_{};
};

}  // namespace splitnic::bench
