#include "bench/fabric/flow.h"

#include <fmt/format.h>

#include <utility>

namespace splitnic::bench {

namespace {

using verbs::Status;

constexpr std::size_t kDepth = 2 * kMostInFlight;
constexpr std::size_t kCompletionsAtOnce = 16;
constexpr std::size_t kReads = kMostInFlight;

bool answers_itself(Verb verb) { return verb == Verb::read || verb == Verb::compare_swap; }

/// The word that compare-and-swaps count up, in the process's memory of the end that is asked.
constexpr std::size_t kCounterOffset = 0;

std::vector<verbs::LocalSegment> segments_of(const Area& area, const SlotLayout& layout) {
  std::vector<verbs::LocalSegment> segments;
  for (std::size_t slot = 0; slot < layout.slots; ++slot) {
    segments.push_back(area.segment(slot * layout.stride, layout.bytes));
  }
  return segments;
}

/// Takes the completions that are there; their number. A failed one ends the end's run_until().
std::size_t take(End& end, verbs::CompletionQueue& from) {
  std::array<verbs::Completion, kCompletionsAtOnce> completions;
  const std::size_t count = from.poll(completions);
  for (std::size_t i = 0; i < count; ++i) {
    if (completions[i].status == verbs::CompletionStatus::success) continue;
    end.note_failure(to_string(completions[i].status));
  }
  return count;
}

}  // namespace

Result<DataQueuePair> DataQueuePair::make(End& end) {
  DataQueuePair made;
  auto sent = end.context().create_completion_queue(kDepth);
  auto received = end.context().create_completion_queue(kDepth);
  if (!sent || !received) return fail("no completion queues");
  made.sent_ = std::move(*sent);
  made.received_ = std::move(*received);
  verbs::QueuePairOptions shape;
  shape.send_completions = &made.sent_;
  shape.receive_completions = &made.received_;
  shape.send_depth = shape.receive_depth = kDepth;
  shape.reads_in = shape.reads_out = kReads;
  auto queue_pair = end.domain().create_queue_pair(shape);
  if (!queue_pair) return fail("no queue pair: {}", to_string(queue_pair.error()));
  made.queue_pair_ = std::move(*queue_pair);
  return made;
}

Result<void> DataQueuePair::connect(const verbs::QueuePairAddress& peer) {
  const Status status = queue_pair_.connect(peer);
  if (status != Status::ok) return fail("the queue pairs could not be connected: {}", to_string(status));
  return {};
}

Outgoing::Outgoing(End& end, DataQueuePair& with, const Measurement& what, std::uint32_t id)
    : end_(end), with_(with), what_(what), layout_(what), id_(id) {
  Area& own = answers_itself(what.verb) ? end.sink(what.path) : end.source();
  segments_ = segments_of(own, layout_);
  remote_ = what.verb == Verb::read ? end.remote().source : end.remote().sink(what.path);
  if (answers_itself(what.verb)) {
    clear(own, layout_);
  } else {
    fill(own, layout_, id);
  }
}

verbs::WorkRequest Outgoing::request_of(std::uint64_t sequence) const {
  const verbs::LocalSegment& local = segments_[static_cast<std::size_t>(sequence % layout_.slots)];
  const verbs::RemoteAddress remote = remote_.at(layout_.offset_of(sequence));
  switch (what_.verb) {
    case Verb::send:
      return verbs::send(sequence, {local});
    case Verb::write:
      return verbs::rdma_write(sequence, {local}, remote);
    case Verb::write_immediate:
      return verbs::rdma_write_with_immediate(sequence, {local}, remote, static_cast<std::uint32_t>(sequence));
    case Verb::read:
      return verbs::rdma_read(sequence, {local}, remote);
    case Verb::compare_swap:
      break;
  }
  return verbs::compare_swap(sequence, local, remote_.at(kCounterOffset), sequence, sequence + 1);
}

bool Outgoing::post_next() {
  if (!answers_itself(what_.verb)) {
    end_.source().set_word(layout_.offset_of(posted_) + layout_.stamp_at, stamp_of(id_, layout_, posted_));
  }
  const Status status = with_.queue_pair().post_send(request_of(posted_));
  if (status == Status::ok) {
    ++posted_;
    return true;
  }
  end_.note_failure(fmt::format("posting a request: {}", to_string(status)));
  return false;
}

void Outgoing::poll() { completed_ += take(end_, with_.sent()); }

Result<void> Outgoing::check() const {
  if (what_.verb == Verb::read) return check_arrived(end_.sink(what_.path), layout_, id_, completed_);
  if (what_.verb == Verb::compare_swap) return check_counted(end_.sink(what_.path), layout_, completed_);
  return {};
}

Incoming::Incoming(End& end, DataQueuePair& with, const Measurement& what, std::uint32_t id)
    : end_(end), with_(with), what_(what), layout_(what), id_(id) {
  if (what.verb == Verb::read) {
    fill(end.source(), layout_, id);
    return;
  }
  clear(end.sink(what.path), layout_);
  if (!takes_receives(what.verb)) return;
  segments_ = segments_of(end.sink(what.path), layout_);
  // Twice as many as can be in flight: those that are taken in one round are posted again before the next.
  for (std::size_t i = 0; i < 2 * layout_.slots; ++i) post_receive(i);
}

void Incoming::post_receive(std::uint64_t sequence) {
  // A write with immediate brings its own address.
  const auto segment =
      what_.verb == Verb::send ? segments_[static_cast<std::size_t>(sequence % layout_.slots)] : verbs::LocalSegment{};
  const Status status = with_.queue_pair().post_receive(verbs::receive(sequence, segment));
  if (status != Status::ok) end_.note_failure(fmt::format("posting a receive: {}", to_string(status)));
}

void Incoming::poll() {
  if (takes_receives(what_.verb)) {
    for (std::size_t left = take(end_, with_.received()); left > 0; --left) {
      post_receive(arrived_ + 2 * layout_.slots);
      ++arrived_;
    }
  } else if (is_ping_pong(what_)) {
    const std::size_t at = layout_.offset_of(arrived_) + layout_.stamp_at;
    if (end_.sink(what_.path).word(at) == stamp_of(id_, layout_, arrived_)) ++arrived_;
  }
}

Result<void> Incoming::check(std::uint64_t sent) const {
  Area& sink = end_.sink(what_.path);
  if (what_.verb == Verb::compare_swap) {
    const std::uint64_t counted = sink.word(kCounterOffset);
    if (counted != sent) return fail("{} compare-and-swaps counted to {}", sent, counted);
    return {};
  }
  if (what_.verb == Verb::read) return {};
  const bool counts = takes_receives(what_.verb) || is_ping_pong(what_);
  if (counts && arrived_ != sent) return fail("{} messages were sent, {} arrived", sent, arrived_);
  return check_arrived(sink, layout_, id_, sent);
}

}  // namespace splitnic::bench
