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

/// The queue pair of one measurement, with completion queues of its own: nothing is left over from the one before.
class DataQueuePair {
 public:
  static Result<DataQueuePair> make(End& end);

  [[nodiscard]] verbs::QueuePairAddress address() const { return queue_pair_.address(); }
  Result<void> connect(const verbs::QueuePairAddress& peer);

  [[nodiscard]] verbs::QueuePair& queue_pair() { return queue_pair_; }
  [[nodiscard]] verbs::CompletionQueue& sent() { return sent_; }
  [[nodiscard]] verbs::CompletionQueue& received() { return received_; }

 private:
  verbs::CompletionQueue sent_;
  verbs::CompletionQueue received_;
  verbs::QueuePair queue_pair_;
};

/// One direction's messages, at the end that posts them. id: the flow's; both its ends know it.
class Outgoing {
 public:
  Outgoing(End& end, DataQueuePair& with, const Measurement& what, std::uint32_t id);

  /// False: the message's place is still lent to an earlier one.
  [[nodiscard]] bool may_post() const { return posted_ - completed_ < layout_.slots; }
  /// False: it failed, which ends the end's run_until().
  bool post_next();
  /// Takes what is complete.
  void poll();

  [[nodiscard]] std::uint64_t posted() const { return posted_; }
  [[nodiscard]] std::uint64_t completed() const { return completed_; }
  /// Of reads and atomics, all complete: what they brought.
  Result<void> check() const;

 private:
  [[nodiscard]] verbs::WorkRequest request_of(std::uint64_t sequence) const;

  End& end_;
  DataQueuePair& with_;
  Measurement what_;
  SlotLayout layout_;
  std::uint32_t id_;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  std::vector<verbs::LocalSegment> segments_;  ///< of each slot
  verbs::RemoteKey remote_{};
};

/// The same messages, at the other end.
class Incoming {
 public:
  Incoming(End& end, DataQueuePair& with, const Measurement& what, std::uint32_t id);

  /// Looks for what has arrived; a failure ends the end's run_until().
  void poll();
  /// Messages, so far. Of reads and atomics nothing is noticed here; of a rate's writes neither, who polls memory would
  /// slow them down.
  [[nodiscard]] std::uint64_t arrived() const { return arrived_; }
  /// Whether what is in memory are the first `sent` messages.
  Result<void> check(std::uint64_t sent) const;

 private:
  void post_receive(std::uint64_t sequence);

  End& end_;
  DataQueuePair& with_;
  Measurement what_;
  SlotLayout layout_;
  std::uint32_t id_;
  std::uint64_t arrived_ = 0;
  std::vector<verbs::LocalSegment> segments_;  ///< of each slot
};

}  // namespace splitnic::bench
