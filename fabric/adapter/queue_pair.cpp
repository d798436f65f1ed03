#include "fabric/adapter/queue_pair.h"

#include "common/check.h"
#include "fabric/adapter/context.h"

namespace splitnic::fabric {
namespace {

void flush_receives(AdapterContext& context, QueuePair& queue_pair) {
  queue_pair.incoming = Reassembly{};
  while (!queue_pair.receive.empty()) {
    Completion completion;
    completion.status = CompletionStatus::flushed;
    complete_receive(context, queue_pair, completion);
  }
}

void flush_sends(AdapterContext& context, QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  while (send.done != send.posted) complete_send(context, queue_pair, CompletionStatus::flushed);
  send.rewind_to(send.done);
  send.sent = send.done;
  send.acknowledge_by = kNever;
  send.hold_until = Time::min();
}

void enter_error(QueuePair& queue_pair) {
  queue_pair.state = queue_pair_move(queue_pair.state, QueuePairEvent::fail).to;
}

}  // namespace

void complete_send(AdapterContext& context, QueuePair& queue_pair, CompletionStatus status) {
  SendQueue& send = queue_pair.send;
  CHECK(send.done != send.posted);
  const WorkRequest& request = send.entries[send.done].request;
  CompletionQueue& queue = *context.completion_queue(queue_pair.options.send_completions);
  if (request.signalled || status != CompletionStatus::success) {
    Completion completion;
    completion.id = request.id;
    completion.queue_pair = queue_pair.number;
    completion.status = status;
    queue.push(completion);
  } else {
    queue.release();
  }
  ++send.done;
}

void complete_receive(AdapterContext& context, QueuePair& queue_pair, Completion completion) {
  ReceiveQueue& receive = queue_pair.receive;
  CHECK(!receive.empty());
  completion.id = receive.entries[receive.taken].id;
  completion.queue_pair = queue_pair.number;
  completion.receive = true;
  context.completion_queue(queue_pair.options.receive_completions)->push(completion);
  ++receive.taken;
}

void fail_queue_pair(AdapterContext& context, QueuePair& queue_pair, CompletionStatus first) {
  enter_error(queue_pair);
  const bool told = first != CompletionStatus::flushed && queue_pair.send.done != queue_pair.send.posted;
  if (told) complete_send(context, queue_pair, first);
  flush_sends(context, queue_pair);
  flush_receives(context, queue_pair);
}

void void_queue_pair(AdapterContext& context, QueuePair& queue_pair) {
  enter_error(queue_pair);
  for (std::uint64_t unknown = queue_pair.send.started(); unknown > 0; --unknown) {
    complete_send(context, queue_pair, CompletionStatus::outcome_unknown);
  }
  flush_sends(context, queue_pair);
  flush_receives(context, queue_pair);
  queue_pair.acknowledgement = PendingAcknowledgement{};
}

}  // namespace splitnic::fabric
