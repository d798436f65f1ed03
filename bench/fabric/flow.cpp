#include "bench/fabric/flow.h"

#include <fmt/format.h>

#include <utility>

#include "common/check.h"

namespace splitnic::bench {

namespace {

using verbs::Status;

constexpr std::size_t kDepth = 2 * kMostInFlightInLists;
constexpr std::size_t kIdleDepth = 4;
constexpr unsigned kLooksAtMemory = 64;  // of a target that polls it, between two turns of the verbs
constexpr std::size_t kReads = kMostInFlight;

bool answers_itself(Verb verb) { return verb == Verb::read || verb == Verb::compare_swap; }

/// The word that compare-and-swaps count up, in the process's memory of the end that is asked.
constexpr std::size_t kCounterOffset = 0;

std::vector<verbs::LocalSegment> segments_of(const Area& area, const SlotLayout& layout) {
  std::vector<verbs::LocalSegment> segments;
  for (std::size_t slot = 0; slot < layout.slots; ++slot) {
    segments.push_back(area.segment(layout.offset_in(slot), layout.bytes));
  }
  return segments;
}

/// Takes the completions that are there, and gives each one's id to `note`. A failed one ends the end's run_until().
template <class Note>
void take(End& end, verbs::CompletionQueue& from, CompletionBatch& completions, Note&& note) {
  const std::size_t count = from.poll(completions);
  for (std::size_t i = 0; i < count; ++i) {
    if (completions[i].status != verbs::CompletionStatus::success) end.note_failure(to_string(completions[i].status));
    note(completions[i].id);
  }
}

}  // namespace

Result<DataQueuePairs> DataQueuePairs::make(End& end, const Measurement& what) {
  end.set_may_sleep(takes_receives(what.verb) || !is_ping_pong(what));
  DataQueuePairs made;
  made.end_ = &end;
  made.busy_ = what.queue_pairs;
  made.datagrams_ = what.verb == Verb::datagram;
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
  shape.datagram = made.datagrams_;
  shape.acknowledged = !made.datagrams_;
  made.queue_pairs_.reserve(what.queue_pairs + what.idle_queue_pairs);
  for (std::size_t i = 0; i < made.queue_pairs_.capacity(); ++i) {
    if (i == what.queue_pairs) shape.send_depth = shape.receive_depth = shape.reads_in = shape.reads_out = kIdleDepth;
    auto queue_pair = end.domain().create_queue_pair(shape);
    if (!queue_pair) return fail("no queue pair: {}", to_string(queue_pair.error()));
    made.queue_pairs_.push_back(std::move(*queue_pair));
  }
  return made;
}

void DataQueuePairs::put_addresses(ControlMessage& message) const {
  const auto first = static_cast<std::size_t>(message.count);
  for (std::size_t i = 0; i < kAddressesAtOnce && first + i < count(); ++i) {
    message.addresses[i] = verbs::encode(queue_pairs_[first + i].address());
  }
}

Result<void> DataQueuePairs::connect(const ControlMessage& message) {
  if (message.count >= count()) return fail("asked for a queue pair that does not exist");
  const auto first = static_cast<std::size_t>(message.count);
  for (std::size_t i = 0; i < kAddressesAtOnce && first + i < count(); ++i) {
    const auto peer = verbs::decode_queue_pair_address(message.addresses[i]);
    if (!peer) return fail("the other process has no queue pair");
    const Status status = connect(first + i, *peer);
    if (status != Status::ok) return fail("the queue pairs could not be connected: {}", to_string(status));
  }
  return {};
}

verbs::Status DataQueuePairs::connect(std::size_t index, const verbs::QueuePairAddress& peer) {
  if (!datagrams_) return queue_pairs_[index].connect(end_->path_of(index), peer);
  auto handle = end_->domain().create_address_handle(end_->path_of(index));
  if (!handle) return handle.error();
  peer_ = std::move(*handle);
  peer_number_ = peer.queue_pair;
  return queue_pairs_[index].start();
}

Outgoing::Outgoing(End& end, DataQueuePairs& with, const Measurement& what, std::uint32_t id)
    : end_(end), with_(with), what_(what), layout_(what), id_(id), under_way_(what.queue_pairs) {
  Area& own = answers_itself(what.verb) ? end.sink(what.path) : end.source();
  segments_ = segments_of(own, layout_);
  SPLITNIC_CHECK(what.list == 1 || what.queue_pairs == 1);
  remote_ = what.verb == Verb::read ? end.remote().source : end.remote().sink(what.path);
  if (answers_itself(what.verb)) {
    clear(own, layout_);
  } else {
    fill(own, layout_, id);
  }
}

/// Without what differs from message to message.
verbs::WorkRequest Outgoing::request() const {
  const verbs::LocalSegment& local = segments_.front();
  switch (what_.verb) {
    case Verb::send:
      return verbs::send(0, {local});
    case Verb::datagram:
      return verbs::send_datagram(0, {local}, with_.peer(), with_.peer_number(), 0);
    case Verb::write:
      return verbs::rdma_write(0, {local}, remote_.at(0));
    case Verb::write_immediate:
      return verbs::rdma_write_with_immediate(0, {local}, remote_.at(0), 0);
    case Verb::read:
      return verbs::rdma_read(0, {local}, remote_.at(0));
    case Verb::compare_swap:
      break;
  }
  return verbs::compare_swap(0, local, remote_.at(kCounterOffset), 0, 0);
}

void Outgoing::direct(verbs::WorkRequest& request, std::uint64_t sequence, std::size_t slot) const {
  request.id = sequence;
  request.segments[0] = segments_[slot];
  request.immediate = static_cast<std::uint32_t>(sequence);
  if (what_.verb == Verb::compare_swap) {
    request.compare = sequence;
    request.swap_or_add = sequence + 1;
  } else if (what_.verb != Verb::send && what_.verb != Verb::datagram) {
    request.remote = remote_.at(layout_.offset_in(slot));
  }
}

bool Outgoing::may_post() const {
  if (posted_ - completed_ + what_.list > layout_.slots) return false;
  // Queue pairs do not wait for each other, so those of one may be complete while those of another are not.
  return what_.queue_pairs == 1 || under_way_[with_.index_of(posted_)] < layout_.slots / what_.queue_pairs;
}

/// A list goes to one queue pair.
bool Outgoing::post_next() {
  if (list_.empty()) list_.assign(what_.list, request());  // not before a datagram's way is known
  std::uint64_t sequence = posted_;
  std::size_t slot = next_slot_;
  for (verbs::WorkRequest& request : list_) {
    if (!answers_itself(what_.verb)) {
      end_.source().set_word(layout_.offset_in(slot) + layout_.stamp_at, stamp_of(id_, layout_, sequence, slot));
    }
    direct(request, sequence++, slot);
    if (++slot == layout_.slots) slot = 0;
  }
  std::size_t taken = 0;
  const Status status = with_.of(posted_).post_send(list_, taken);
  under_way_[with_.index_of(posted_)] += taken;
  posted_ += taken;
  next_slot_ = slot;
  if (status != Status::ok) end_.note_failure(fmt::format("posting a request: {}", to_string(status)));
  return status == Status::ok;
}

void Outgoing::poll() {
  take(end_, with_.sent(), batch_, [this](std::uint64_t sequence) {
    --under_way_[with_.index_of(sequence)];
    ++completed_;
  });
}

Result<void> Outgoing::check() const {
  if (what_.verb == Verb::read) return check_arrived(end_.sink(what_.path), layout_, id_, completed_);
  if (what_.verb == Verb::compare_swap) return check_counted(end_.sink(what_.path), layout_, completed_);
  return {};
}

Incoming::Incoming(End& end, DataQueuePairs& with, const Measurement& what, std::uint32_t id)
    : end_(end), with_(with), what_(what), layout_(what), id_(id) {
  if (what.verb == Verb::read) {
    fill(end.source(), layout_, id);
    return;
  }
  clear(end.sink(what.path), layout_);
  if (!takes_receives(what.verb)) return;
  segments_ = segments_of(end.sink(what.path), layout_);
  // Twice as many as can be in flight: those that are taken in one round are posted again before the next.
  for (std::size_t i = 0; i < 2 * layout_.slots; ++i) {
    prepare_receive(i);
    post_receives();
  }
}

/// number: of the receive, which its completions and the next posts keep.
void Incoming::prepare_receive(std::uint64_t number) {
  if (!receives_.empty() && with_.index_of(number) != with_.index_of(receives_.front().id)) post_receives();
  verbs::ReceiveRequest& request = receives_.emplace_back();
  request.id = number;
  // A write with immediate brings its own address.
  if (what_.verb == Verb::write_immediate) return;
  const std::size_t slot = static_cast<std::size_t>(number < layout_.slots ? number : number - layout_.slots);
  request.segment = segments_[slot];
  request.segment.address -= layout_.head;
  request.segment.bytes += static_cast<std::uint32_t>(layout_.head);
}

void Incoming::post_receives() {
  if (receives_.empty()) return;
  std::size_t posted = 0;
  const Status status = with_.of(receives_.front().id).post_receive(receives_, posted);
  if (status != Status::ok) end_.note_failure(fmt::format("posting a receive: {}", to_string(status)));
  receives_.clear();
}

void Incoming::poll() {
  if (takes_receives(what_.verb)) {
    post_receives();  // of the last poll: what it took may have been answered since
    take(end_, with_.received(), batch_, [this](std::uint64_t number) {
      prepare_receive(number);
      ++arrived_;
    });
  } else if (is_ping_pong(what_)) {
    const std::size_t at = layout_.offset_of(arrived_) + layout_.stamp_at;
    const std::uint64_t stamp = stamp_of(id_, layout_, arrived_);
    for (unsigned look = 0; look < kLooksAtMemory; ++look) {
      if (end_.sink(what_.path).word(at) != stamp) continue;
      ++arrived_;
      break;
    }
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
