#pragma once

#include <vector>

#include "fabric/adapter/completion_queue.h"
#include "fabric/adapter/queue_pair.h"
#include "fabric/memory/mpt.h"
#include "fabric/memory/protection_table.h"

namespace splitnic::fabric {

/// What requester and responder share of one adapter. Thread: the adapter's owner.
struct AdapterContext {
  AdapterContext(FabricLink& on, const AdapterOptions& with, RandomSource& random)
      : link(on), options(with), table(with.max_regions, random) {}

  FabricLink& link;
  AdapterOptions options;
  ProtectionTable table;
  MptPublisher grants;
  MptView peer_grants;
  std::vector<CompletionQueue> completion_queues;
  AdapterCounters counters{};
  Time now{};  ///< of the last poll

  [[nodiscard]] CompletionQueue* completion_queue(CqNumber number) {
    const bool exists = number.value != 0 && number.value <= completion_queues.size();
    return exists ? &completion_queues[number.value - 1] : nullptr;
  }
};

/// Ends the oldest request of the send queue.
void complete_send(AdapterContext& context, QueuePair& queue_pair, CompletionStatus status);
/// Ends the oldest posted receive.
void complete_receive(AdapterContext& context, QueuePair& queue_pair, Completion completion);
/// To error: the oldest send ends with `first` (unless that is flushed or nothing is posted), everything else is
/// flushed.
void fail_queue_pair(AdapterContext& context, QueuePair& queue_pair, CompletionStatus first);
/// To error because an epoch went by: sends of which a cell was on the wire end as outcome_unknown, the rest is
/// flushed.
void void_queue_pair(AdapterContext& context, QueuePair& queue_pair);

}  // namespace splitnic::fabric
