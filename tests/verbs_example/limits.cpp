// Prints the table of limits of docs/verbs.md, as the code has them now.
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "fabric/bridge/link.h"
#include "fabric/verbs/verbs.h"
#include "fabric/wire/cell.h"

using namespace splitnic;

namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }

std::string milliseconds(Duration time) {
  return number(static_cast<std::uint64_t>(time / std::chrono::milliseconds(1))) + " ms";
}

void row(const std::string& what, const std::string& usual, const std::string& most, const std::string& beyond) {
  std::printf("| %s | %s | %s | %s |\n", what.c_str(), usual.c_str(), most.c_str(), beyond.c_str());
}

/// As an adapter answers that was asked for as much as can be.
verbs::AdapterLimits largest() {
  verbs::ContextOptions options;
  options.adapter.max_message_bytes = std::numeric_limits<std::uint32_t>::max();
  auto context = verbs::Context::open(options);
  return context ? context->limits() : verbs::AdapterLimits{};
}

}  // namespace

int main() {
  using Options = verbs::ContextOptions;
  const Options context;
  const fabric::AdapterOptions& adapter = context.adapter;
  const fabric::LinkOptions link;
  const verbs::QueuePairOptions queue_pair;
  const verbs::AdapterLimits most = largest();
  const std::string open = "`open()`: `bad_argument`";
  const std::string add_path = "`add_path()`: `bad_argument`";

  std::printf("| limit | default | maximum | beyond the maximum |\n|---|---|---|---|\n");
  row("paths of a context, `adapter.max_paths`", number(adapter.max_paths), "memory", "`no_resources`");
  row("queue pairs of a context, `adapter.max_queue_pairs`", number(adapter.max_queue_pairs),
      number(Options::kMaxQueuePairs), "`no_resources`; " + open);
  row("tags (regions and windows), `adapter.max_regions`", number(adapter.max_regions), number(Options::kMaxTags),
      "`no_resources`; " + open);
  row("completion queues, `adapter.max_completion_queues`", number(adapter.max_completion_queues), "memory",
      "`no_resources`");
  row("shared receive queues, `adapter.max_shared_receive_queues`", number(adapter.max_shared_receive_queues), "memory",
      "`no_resources`");
  row("completion channels, `adapter.max_completion_channels`", number(adapter.max_completion_channels), "memory",
      "`no_resources`");
  row("events not yet polled, `adapter.max_events`", number(adapter.max_events), number(Options::kMaxEvents),
      "further events are lost and counted as `dropped_events`; " + open);
  row("bytes of a message, `adapter.max_message_bytes`", number(adapter.max_message_bytes),
      number(most.message_bytes) + ", but at most 65535 cells of the path",
      "`bad_length`; posted before the path is up: `local_length_error`; `open()`: the maximum is used");
  row("payload bytes of a cell, `adapter.cell_payload_bytes`", number(adapter.cell_payload_bytes),
      number(fabric::kMaxCellPayload), "`open()`: the maximum is used. The two ends use the smaller of their values");
  row("regions into which, and queue pairs through which, the peer may store directly, `link.mpt_entries`",
      number(link.mpt_entries), number(Options::kMaxMptEntries), "further ones: data travels in cells; " + add_path);
  row("bytes of the control lane's slot ring, `link.slot_bytes[0]`", number(link.slot_bytes[0]),
      number(fabric::LinkOptions::kMaxSlotBytes), add_path);
  row("bytes of the data lane's slot ring, `link.slot_bytes[1]`", number(link.slot_bytes[1]),
      number(fabric::LinkOptions::kMaxSlotBytes), add_path);
  row("bytes of the control lane's payload ring, `link.payload_bytes[0]`", number(link.payload_bytes[0]),
      number(fabric::LinkOptions::kMaxPayloadBytes), add_path);
  row("bytes of the data lane's payload ring, `link.payload_bytes[1]`", number(link.payload_bytes[1]),
      number(fabric::LinkOptions::kMaxPayloadBytes), add_path);
  row("time until an unanswered request is sent again, `adapter.ack_timeout`", milliseconds(adapter.ack_timeout),
      milliseconds(Options::kLongestTimeout), open);
  row("number of these repetitions, `adapter.retry_count`", number(adapter.retry_count), "any", "");
  row("time that a sender waits after the answer that no receive is posted, `adapter.receiver_not_ready_delay`",
      milliseconds(adapter.receiver_not_ready_delay), milliseconds(Options::kLongestTimeout),
      "a sender waits at most 1 s; " + open);
  row("number of these waits, `adapter.receiver_not_ready_retries`", number(adapter.receiver_not_ready_retries), "any",
      "");
  row("requests of a send queue, `send_depth`", number(queue_pair.send_depth), number(most.queue_depth),
      "`bad_length`; a full queue: `queue_full`");
  row("requests of a receive queue, `receive_depth`", number(queue_pair.receive_depth), number(most.queue_depth),
      "`bad_length`; a full queue: `queue_full`");
  row("own outstanding reads and atomics, `reads_out`", number(queue_pair.reads_out), number(most.reads_out),
      "`bad_length`; a further one waits in the send queue");
  row("outstanding reads and atomics of the peer, `reads_in`", number(queue_pair.reads_in), number(most.reads_in),
      "`bad_length`; a further one ends the queue pair");
  row("bytes of an inline request, `max_inline_bytes`", number(queue_pair.max_inline_bytes), number(most.inline_bytes),
      "`bad_length`");
  row("completions of a completion queue", "none", number(most.completion_depth),
      "`bad_length`; a full completion queue: posts are refused with `queue_full`");
  row("receives of a shared receive queue", "none", number(most.queue_depth),
      "`bad_length`; a full queue: `queue_full`");
  row("segments of a request", "", number(fabric::kMaxSegments), "`bad_length`");
  row("bytes that a key opens", "", number(std::numeric_limits<std::uint32_t>::max()),
      "`bad_length`; a second key can open the rest");
  row("pages of a region", "", number(verbs::kMaxPages), "`bad_length`");
  row("time of a `delay()`", "", milliseconds(most.delay), "`bad_argument`");
  row("time without an answer of the peer until a request fails",
      milliseconds((adapter.retry_count + 1) * adapter.ack_timeout), "set by the options above", "`retry_exceeded`");
}
