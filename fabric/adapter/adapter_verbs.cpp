#include <algorithm>
#include <ranges>
#include <utility>

#include "common/check.h"
#include "common/sequence.h"
#include "fabric/adapter/adapter_state.h"
#include "fabric/adapter/request_check.h"

/// A ChannelAdapter's verbs that make, change and unmake objects: none is on the path of a packet.
namespace splitnic::fabric {
namespace {

/// Puts the object into a free number, or a new one while there are fewer than `most`. 0: none is left.
template <class T>
std::uint32_t take_number(std::vector<std::unique_ptr<T>>& objects, std::unique_ptr<T> object, std::size_t most) {
  const auto free = std::find(objects.begin(), objects.end(), nullptr);
  if (free != objects.end()) {
    *free = std::move(object);
    return static_cast<std::uint32_t>(free - objects.begin() + 1);
  }
  if (objects.size() == most) return 0;
  objects.push_back(std::move(object));
  return static_cast<std::uint32_t>(objects.size());
}

template <class T>
std::optional<T> if_any(std::uint32_t number) {
  return number == 0 ? std::nullopt : std::optional(T{number});
}

bool takes_sends(const QueuePair& queue_pair) {
  return queue_pair.rules().post_send && queue_pair.options.xrc != XrcRole::target;
}

}  // namespace

AdapterLimits ChannelAdapter::limits() const {
  const AdapterOptions& options = state_->context.options;
  AdapterLimits limits;
  limits.queue_pairs = options.max_queue_pairs;
  limits.completion_queues = options.max_completion_queues;
  limits.shared_receive_queues = options.max_shared_receive_queues;
  limits.completion_channels = options.max_completion_channels;
  limits.tags = options.max_regions;
  limits.queue_depth = kMaxQueueDepth;
  limits.completion_depth = kMaxCompletionDepth;
  limits.segments = kMaxSegments;
  limits.inline_bytes = kMaxInlineBytes;
  limits.reads_in = limits.reads_out = kMaxReads;
  limits.message_bytes = options.max_message_bytes;
  limits.delay = kLongestDelay;
  return limits;
}

std::optional<PathNumber> ChannelAdapter::attach(CellLink& link) {
  auto& paths = state_->context.paths;
  const auto free = std::find(paths.begin(), paths.end(), nullptr);
  const PathNumber number{static_cast<std::uint32_t>(free - paths.begin() + 1)};
  const auto made = if_any<PathNumber>(take_number(
      paths, std::make_unique<Path>(state_->context, number, link, state_->context.options.cell_payload_bytes),
      state_->context.options.max_paths));
  if (!made) return made;
  Path& path = *state_->context.path(*made);
  state_->context.turns.add(path);
  if (link.up()) state_->begin_epoch(path);
  return made;
}

Status ChannelAdapter::pair(PathNumber first, PathNumber second) {
  Path* one = first.value != 0 ? state_->context.path(first) : nullptr;
  Path* other = second.value != 0 ? state_->context.path(second) : nullptr;
  if (one == nullptr || other == nullptr || one == other) return Status::bad_argument;
  one->twin = other;
  other->twin = one;
  return Status::ok;
}

Status ChannelAdapter::detach(PathNumber number) {
  Path* path = number.value != 0 ? state_->context.path(number) : nullptr;
  if (path == nullptr) return Status::bad_argument;
  if (path->open) state_->end_epoch(*path);
  for (QueuePair* queue_pair : state_->queue_pairs) {
    if (queue_pair->path != path) continue;
    if (queue_pair->rules().connected) void_queue_pair(state_->context, *queue_pair);  // it has awaited the link
    leave_path(*queue_pair);
  }
  if (path->twin != nullptr) path->twin->twin = nullptr;
  state_->context.datagrams.forget(number);
  state_->context.turns.remove(*path);
  state_->context.paths[number.value - 1].reset();
  return Status::ok;
}

ProtectionDomain ChannelAdapter::allocate_domain() {
  auto& domains = state_->domains;
  auto free = std::find(domains.begin() + 1, domains.end(), false);
  if (free == domains.end()) free = domains.insert(free, false);
  *free = true;
  return ProtectionDomain{static_cast<std::uint32_t>(free - domains.begin())};
}

Status ChannelAdapter::deallocate_domain(ProtectionDomain domain) {
  auto& domains = state_->domains;
  if (domain.value >= domains.size() || !domains[domain.value]) return Status::bad_argument;
  const auto& shared = state_->context.shared_receive_queues;
  const bool in_use =
      state_->context.table.tags_in(domain) != 0 ||
      std::any_of(state_->queue_pairs.begin(), state_->queue_pairs.end(),
                  [domain](const QueuePair* queue_pair) { return queue_pair->options.domain == domain; }) ||
      std::any_of(shared.begin(), shared.end(),
                  [domain](const auto& queue) { return queue != nullptr && queue->domain == domain; });
  if (in_use) return Status::in_use;
  domains[domain.value] = false;
  state_->context.table.forget_domain(domain);
  return Status::ok;
}

std::optional<Stag> ChannelAdapter::register_memory(ProtectionDomain domain, std::span<std::byte> memory,
                                                    Rights rights) {
  return state_->context.table.insert(domain, RegionMemory::of_process(memory), rights, false);
}

std::optional<Stag> ChannelAdapter::register_bridge_memory(ProtectionDomain domain, MemoryRange range, Rights rights,
                                                           bool placeable, PathNumber number, QpNumber queue_pair) {
  AdapterContext& context = state_->context;
  Path* path = context.path(number);
  if (path == nullptr || path->direct == nullptr || !state_->follow(*path)) return std::nullopt;
  if (!path->direct->buffers.contains(range) || path->drains.covers(range)) return std::nullopt;
  const PeerMemory bytes = path->direct->bridge.local_memory().slice(range.offset, range.bytes);
  const auto memory = RegionMemory::of_bridge(bytes, range.offset, path->number);
  EntryOptions options;
  options.rights = rights;
  options.placeable = placeable;
  options.queue_pair = queue_pair;
  const auto tag = context.table.register_region(domain, memory, options);
  if (!tag) return std::nullopt;
  path->regions.push_back(tag->index());
  // In a strict domain regions are local: who was granted one would store what its check refuses afterwards.
  if (placeable && !context.table.find(*tag)->strict) {
    MptGrant grant;
    grant.tag = *tag;
    grant.address = region_address(*tag);
    grant.length = range.bytes;
    grant.window_offset = range.offset;
    grant.rights = rights;
    grant.domain = domain;
    grant.queue_pair = queue_pair;
    // No slot is no loss: the peer's writes to it come segmented.
    static_cast<void>(path->grants.grant(*path->direct, grant));
  }
  return *tag;
}

std::uint64_t ChannelAdapter::region_address(Stag tag) const {
  const ProtectionEntry* entry = state_->context.table.find(tag);
  return entry == nullptr ? 0 : entry->base;
}

Status ChannelAdapter::deregister(Stag tag, DirectWrites writes) {
  AdapterContext& context = state_->context;
  const ProtectionEntry* entry = context.table.find(tag);
  Path* path = entry != nullptr && entry->memory.in_bridge() ? context.path(entry->memory.path()) : nullptr;
  if (path != nullptr) {
    static_cast<void>(state_->follow(*path));
    entry = context.table.find(tag);
  }
  const bool granted = path != nullptr && entry != nullptr && entry->placeable;
  const MemoryRange range = granted ? MemoryRange{entry->memory.bridge_offset(), entry->memory.size()} : MemoryRange{};
  const auto gone = context.table.deregister(tag);
  if (!gone) return gone.error() == ProtectionError::windows_bound ? Status::in_use : Status::bad_tag;
  if (path != nullptr) std::erase(path->regions, tag.index());
  if (!granted) return Status::ok;
  path->grants.revoke(*path->direct, tag);
  if (writes == DirectWrites::drain) path->drains.begin(tag, range);
  context.turns.attend(*path);
  return Status::ok;
}

bool ChannelAdapter::in_quarantine(MemoryRange range, PathNumber number) const {
  const Path* path = state_->context.path(number);
  return path != nullptr && path->drains.covers(range);
}

bool ChannelAdapter::in_quarantine(QpNumber queue_pair) const {
  return std::ranges::any_of(state_->context.paths,
                             [&](const auto& path) { return path != nullptr && path->drains.covers(queue_pair); });
}

ProtectionTable& ChannelAdapter::table() {
  state_->follow_all();
  return state_->context.table;
}

const ProtectionEntry* ChannelAdapter::entry_at(std::uint32_t index) {
  AdapterContext& context = state_->context;
  const ProtectionEntry* entry = context.table.at(index);
  if (entry == nullptr || entry->kind != EntryKind::region) return table().at(index);
  if (!entry->memory.in_bridge()) return entry;
  if (Path* path = context.path(entry->memory.path())) static_cast<void>(state_->follow(*path));
  return context.table.at(index);
}

std::optional<CqNumber> ChannelAdapter::make_completion_queue(std::size_t capacity, ChannelNumber channel,
                                                              CompletionRoom room) {
  AdapterContext& context = state_->context;
  CompletionChannel* reports_to = context.completion_channel(channel);
  if (capacity > kMaxCompletionDepth || (reports_to == nullptr && channel.value != 0)) return std::nullopt;
  auto& queues = context.completion_queues;
  const auto free = std::find(queues.begin(), queues.end(), nullptr);
  const CqNumber number{static_cast<std::uint32_t>(free - queues.begin() + 1)};
  const auto made =
      if_any<CqNumber>(take_number(queues, std::make_unique<CompletionQueue>(capacity, number, reports_to, room),
                                   context.options.max_completion_queues));
  if (made && reports_to != nullptr) reports_to->attach();
  return made;
}

CqNumber ChannelAdapter::create_completion_queue(std::size_t capacity) {
  const auto made = make_completion_queue(capacity);
  SPLITNIC_CHECK(made.has_value());
  return *made;
}

Status ChannelAdapter::resize_completion_queue(CqNumber queue, std::size_t capacity) {
  CompletionQueue* found = state_->context.completion_queue(queue);
  if (found == nullptr) return Status::bad_argument;
  if (capacity == 0 || capacity > kMaxCompletionDepth) return Status::bad_length;
  std::size_t to_come = 0;
  for (const QueuePair* queue_pair : state_->queue_pairs) {
    if (queue_pair->options.send_completions == queue) to_come += queue_pair->send.signalled_under_way();
  }
  return found->resize(capacity, to_come) ? Status::ok : Status::in_use;
}

Status ChannelAdapter::destroy_completion_queue(CqNumber queue) {
  CompletionQueue* found = state_->context.completion_queue(queue);
  if (found == nullptr) return Status::bad_argument;
  if (found->users != 0) return Status::in_use;
  if (found->channel() != nullptr) found->channel()->detach(queue);
  state_->context.completion_queues[queue.value - 1].reset();
  return Status::ok;
}

Status ChannelAdapter::arm(CqNumber queue, Arm what) {
  CompletionQueue* found = state_->context.completion_queue(queue);
  if (found == nullptr || found->channel() == nullptr) return Status::bad_argument;
  found->arm(what);
  return Status::ok;
}

std::optional<ChannelNumber> ChannelAdapter::create_completion_channel(std::function<void()> wake) {
  AdapterContext& context = state_->context;
  return if_any<ChannelNumber>(take_number(context.completion_channels,
                                           std::make_unique<CompletionChannel>(std::move(wake)),
                                           context.options.max_completion_channels));
}

std::optional<CqNumber> ChannelAdapter::take_notification(ChannelNumber channel) {
  CompletionChannel* found = state_->context.completion_channel(channel);
  return found == nullptr ? std::nullopt : found->take();
}

bool ChannelAdapter::has_notification(ChannelNumber channel) const {
  const CompletionChannel* found = state_->context.completion_channel(channel);
  return found != nullptr && !found->empty();
}

Status ChannelAdapter::destroy_completion_channel(ChannelNumber channel) {
  CompletionChannel* found = state_->context.completion_channel(channel);
  if (found == nullptr) return Status::bad_argument;
  if (found->in_use()) return Status::in_use;
  state_->context.completion_channels[channel.value - 1].reset();
  return Status::ok;
}

std::optional<SrqNumber> ChannelAdapter::create_shared_receive_queue(ProtectionDomain domain, std::size_t depth,
                                                                     bool verbs_rules, const XrcReceives& xrc) {
  if (depth == 0 || depth > kMaxQueueDepth) return std::nullopt;
  AdapterContext& context = state_->context;
  CompletionQueue* completions = context.completion_queue(xrc.completions);
  if ((xrc.domain.value != 0) != (completions != nullptr)) return std::nullopt;
  auto queue = std::make_unique<SharedReceiveQueue>(domain, depth);
  queue->verbs_rules = verbs_rules;
  queue->xrc = xrc;
  const auto made = if_any<SrqNumber>(
      take_number(context.shared_receive_queues, std::move(queue), context.options.max_shared_receive_queues));
  if (made && completions != nullptr) ++completions->users;
  return made;
}

Status ChannelAdapter::arm_limit(SrqNumber queue, std::size_t receives) {
  SharedReceiveQueue* found = state_->context.shared_receive_queue(queue);
  if (found == nullptr || receives > found->queue.depth) return Status::bad_argument;
  found->limit = receives;
  return Status::ok;
}

std::size_t ChannelAdapter::armed_limit(SrqNumber queue) const {
  const SharedReceiveQueue* found = state_->context.shared_receive_queue(queue);
  return found == nullptr ? 0 : found->limit;
}

Status ChannelAdapter::resize_shared_receive_queue(SrqNumber queue, std::size_t depth) {
  SharedReceiveQueue* found = state_->context.shared_receive_queue(queue);
  if (found == nullptr) return Status::bad_argument;
  if (depth == 0 || depth > kMaxQueueDepth) return Status::bad_length;
  return found->queue.resize(depth) ? Status::ok : Status::in_use;
}

Status ChannelAdapter::destroy_shared_receive_queue(SrqNumber queue) {
  SharedReceiveQueue* found = state_->context.shared_receive_queue(queue);
  if (found == nullptr) return Status::bad_argument;
  if (found->users != 0) return Status::in_use;
  if (CompletionQueue* completions = state_->context.completion_queue(found->xrc.completions)) {
    for (QueuePair* target : state_->queue_pairs) {
      if (target->options.xrc == XrcRole::target && target->shared_receives == queue) {
        leave_receives(*target);
      }
    }
    --completions->users;
  }
  state_->context.shared_receive_queues[queue.value - 1].reset();
  return Status::ok;
}

std::optional<QpNumber> ChannelAdapter::State::draw_number() {
  std::vector<std::uint32_t> free;
  for (std::size_t slot = kWellKnownNumbers; slot < context.queue_pair_slots.size(); ++slot) {
    if (context.queue_pair_slots[slot] == nullptr) free.push_back(static_cast<std::uint32_t>(slot));
  }
  if (free.empty()) return std::nullopt;
  const std::uint32_t slot = free[static_cast<std::size_t>(random.below(free.size()))];
  const auto mask = static_cast<std::uint32_t>(context.queue_pair_slots.size() - 1);
  const auto& of_node = context.options.numbers;
  const NumberRange range = of_node ? of_node->queue_pairs() : NumberRange{0, NumberSpace::kNumbers};
  QpNumber number = kMulticastQueuePair;
  while (number == kMulticastQueuePair)
    number.value = range.first + ((random.next32() & (range.count - 1) & ~mask) | slot);
  return number;
}

std::optional<QpNumber> ChannelAdapter::create_queue_pair(const QueuePairAttributes& options) {
  AdapterContext& context = state_->context;
  CompletionQueue* sends = context.completion_queue(options.send_completions);
  CompletionQueue* receives = context.completion_queue(options.receive_completions);
  SharedReceiveQueue* shared = context.shared_receive_queue(options.shared_receives);
  const bool shares = shared != nullptr && shared->domain == options.domain && shared->xrc.domain.value == 0;
  const bool ordinary_fits = sends != nullptr && receives != nullptr && (options.shared_receives.value == 0 || shares);
  const bool target_fits = sends == nullptr && receives == nullptr && shared == nullptr &&
                           options.xrc_domain.value != 0 && options.acknowledged;
  const bool objects_fit = options.xrc == XrcRole::none ? ordinary_fits
                           : options.xrc == XrcRole::initiator
                               ? ordinary_fits && shared == nullptr && options.acknowledged
                               : target_fits;
  const bool service_fits = (!options.datagram || (!options.acknowledged && !options.memory_requests)) &&
                            (!options.standing_receive || (!options.datagram && options.xrc == XrcRole::none));
  const bool within_limits = options.send_depth <= kMaxQueueDepth && options.receive_depth <= kMaxQueueDepth &&
                             options.max_inline_bytes <= kMaxInlineBytes && options.reads_in <= kMaxReads &&
                             options.reads_out <= kMaxReads &&
                             state_->queue_pairs.size() < context.options.max_queue_pairs;
  if (!objects_fit || !within_limits || !service_fits) return std::nullopt;
  QpNumber number = options.number;
  if (number.value == 0) {
    const auto drawn = state_->draw_number();
    if (!drawn) return std::nullopt;
    number = *drawn;
  } else if (number.value >= kWellKnownNumbers || state_->context.queue_pair_slots[number.value] != nullptr) {
    return std::nullopt;
  }
  auto& slot = state_->context.queue_pair_slots[number.value & (state_->context.queue_pair_slots.size() - 1)];
  slot = std::make_unique<QueuePair>(number, options, QueuePairTimes(context.options));
  slot->send.max_unanswered = options.reads_out;
  slot->send_cq = sends;
  slot->receive_cq = receives;
  state_->queue_pairs.push_back(slot.get());
  if (sends != nullptr) ++sends->users;
  if (receives != nullptr) ++receives->users;
  if (shared != nullptr) ++shared->users;
  return number;
}

void ChannelAdapter::State::note_connection(const QueuePair& queue_pair) {
  if (queue_pair.path != nullptr) left_connections[slot_of(queue_pair.number)] = queue_pair.number;
}

/// What lies in the lanes was sent to the number's former connection, and could pass for the new one's, which may
/// repeat its packet sequence numbers. It is refused, as of a queue pair that is not connected. Not before a number's
/// first connection: what comes so early is no older than that.
void ChannelAdapter::State::end_former_connection(const QueuePair& queue_pair) {
  if (left_connections[slot_of(queue_pair.number)] != queue_pair.number) return;
  take_waiting(*queue_pair.path);
  if (queue_pair.path->twin != nullptr) take_waiting(*queue_pair.path->twin);
  left_connections[slot_of(queue_pair.number)] = QpNumber{};
}

/// The peer may not have read yet what was refused before the queue pair was connected. A peer that has yet to come is
/// owed nothing.
void ChannelAdapter::State::doubt_early(QueuePair& queue_pair) {
  if (queue_pair.path == nullptr) return;
  const bool refused = std::exchange(queue_pair.taking, Taking::usual) == Taking::doubted;
  if (!queue_pair.path->open) return;
  if (refused) responder.doubt_consumption(queue_pair, queue_pair.doubted_to);
  for (const Path* path : {queue_pair.path, queue_pair.path->twin}) {
    if (path != nullptr && all_doubted(*path)) responder.doubt_consumption(queue_pair, std::nullopt);
  }
}

Status ChannelAdapter::connect(QpNumber queue_pair, const QueuePairPeer& peer) {
  return modify(queue_pair, QueuePairEvent::connect, peer);
}

Status ChannelAdapter::modify(QpNumber queue_pair, QueuePairEvent event, const QueuePairPeer& peer) {
  QueuePair* found = state_->find(queue_pair);
  if (found == nullptr) return Status::bad_queue_pair;
  if (found->path != nullptr) static_cast<void>(state_->follow(*found->path));
  const QueuePairMove& move = queue_pair_move(found->state, event);
  if (!move.legal) return Status::bad_state;
  AdapterContext& context = state_->context;
  state_->activate(*found);
  switch (event) {
    case QueuePairEvent::connect:
    case QueuePairEvent::ready_to_receive: {
      if (found->options.datagram) break;  // no peer
      if (peer.number.value == 0 || peer.number.value > kMaxQueuePairNumber) return Status::bad_queue_pair;
      Path* path = context.path(peer.path);
      if (path == nullptr) return Status::bad_argument;
      if (!state_->follow(*path) && !path->link.awaited()) return Status::link_down;
      SendQueue& send = found->send;
      join_path(*found, *path, peer);
      found->expected_psn = peer.first_psn_expected;  // what is refused now may have such a number
      state_->end_former_connection(*found);
      send.acknowledged_psn = send.sent_psn = send.next_psn = peer.first_psn_to_send;
      send.max_unanswered = std::min(found->options.reads_out, peer.reads_in);
      send.retries_left = found->times.retry_count;
      send.receiver_not_ready_left = found->times.receiver_not_ready_retries;
      break;
    }
    case QueuePairEvent::drain_sends:
      found->send.drain_to = found->send.done + found->send.started();
      found->draining = true;
      break;
    case QueuePairEvent::fail:
      flush_queue_pair(context, *found);
      break;
    case QueuePairEvent::fail_sends:
      // What is in flight may be done at the peer, or not: nothing can be numbered after it.
      if (found->send.started() != 0) return Status::in_use;
      fail_sends(context, *found, CompletionStatus::flushed);
      break;
    case QueuePairEvent::reset:
      state_->note_connection(*found);
      reset_queue_pair(context, *found);
      break;
    case QueuePairEvent::initialize:
    case QueuePairEvent::ready_to_send:
      found->draining = false;
      break;
  }
  found->state = move.to;
  publish_connection(context, *found);
  if (event == QueuePairEvent::connect || event == QueuePairEvent::ready_to_receive) state_->doubt_early(*found);
  if (event == QueuePairEvent::drain_sends) state_->check_drained(*found);  // no poll may look at it again
  return Status::ok;
}

Status ChannelAdapter::configure(QpNumber queue_pair, const QueuePairSettings& settings) {
  QueuePair* found = state_->find(queue_pair);
  if (found == nullptr) return Status::bad_queue_pair;
  SendQueue& send = found->send;
  const bool sends = found->state > QueuePairState::ready_to_receive;
  if (settings.first_psn_to_send && sends) return Status::bad_state;
  if (settings.reads_out && *settings.reads_out > found->options.reads_out) return Status::bad_argument;
  if (settings.queue_key) found->options.queue_key = *settings.queue_key;
  if (settings.remote_rights || settings.answers_reads) {
    found->options.remote_rights = settings.remote_rights.value_or(found->options.remote_rights);
    found->answers_reads = settings.answers_reads.value_or(found->answers_reads);
    publish_connection(state_->context, *found);
  }
  if (settings.reads_out) send.max_unanswered = *settings.reads_out;
  if (settings.first_psn_to_send) send.acknowledged_psn = send.sent_psn = send.next_psn = *settings.first_psn_to_send;
  QueuePairTimes& times = found->times;
  times.ack_timeout = settings.ack_timeout.value_or(times.ack_timeout);
  times.retry_count = settings.retry_count.value_or(times.retry_count);
  times.receiver_not_ready_retries = settings.receiver_not_ready_retries.value_or(times.receiver_not_ready_retries);
  times.receiver_not_ready_delay = settings.receiver_not_ready_delay.value_or(times.receiver_not_ready_delay);
  send.retries_left = times.retry_count;
  send.receiver_not_ready_left = times.receiver_not_ready_retries;
  return Status::ok;
}

std::optional<QueuePairState> ChannelAdapter::state(QpNumber queue_pair) const {
  const QueuePair* found = state_->find(queue_pair);
  return found == nullptr ? std::nullopt : std::optional(found->state);
}

std::optional<QueuePairCounts> ChannelAdapter::counts(QpNumber queue_pair) const {
  const QueuePair* found = state_->find(queue_pair);
  if (found == nullptr) return std::nullopt;
  QueuePairCounts counts;
  counts.state = found->state;
  counts.requests_posted = found->send.posted;
  counts.requests_completed = found->send.done;
  counts.receives_posted = found->receive.posted;
  counts.receives_taken = found->receive.taken;
  counts.reads_answered = found->responses.answered;
  counts.retransmissions = found->send.repeated;
  return counts;
}

Status ChannelAdapter::destroy_queue_pair(QpNumber queue_pair) {
  QueuePair* found = state_->find(queue_pair);
  if (found == nullptr) return Status::bad_queue_pair;
  AdapterContext& context = state_->context;
  state_->note_connection(*found);
  flush_queue_pair(context, *found);
  if (auto* sends = context.completion_queue(found->options.send_completions)) --sends->users;
  if (auto* receives = context.completion_queue(found->options.receive_completions)) --receives->users;
  if (auto* shared = context.shared_receive_queue(found->options.shared_receives)) --shared->users;
  context.datagrams.forget(queue_pair);
  std::erase(state_->queue_pairs, found);
  state_->turns.forget(*found);
  leave_path(*found);
  for (const auto& path : context.paths) {
    if (path != nullptr && path->receiver == found) path->receiver = nullptr;
  }
  state_->context.queue_pair_slots[queue_pair.value & (state_->context.queue_pair_slots.size() - 1)].reset();
  return Status::ok;
}

bool ChannelAdapter::in_error(QpNumber queue_pair) const {
  const QueuePair* found = state_->find(queue_pair);
  return found == nullptr || found->state == QueuePairState::error;
}

bool ChannelAdapter::is_draining(QpNumber queue_pair) const {
  const QueuePair* found = state_->find(queue_pair);
  return found != nullptr && found->draining;
}

std::size_t ChannelAdapter::send_room(QpNumber queue_pair) const {
  const QueuePair* found = state_->find(queue_pair);
  if (found == nullptr || !takes_sends(*found)) return 0;
  const SendQueue& send = found->send;
  const CompletionQueue* queue = state_->context.completion_queue(found->options.send_completions);
  const std::uint64_t taken_out = queue->taken_out();
  // Places become free in order.
  const auto places = std::views::iota(send.posted, send.done + send.depth);
  const auto end =
      std::ranges::partition_point(places, [&](std::uint64_t position) { return send.has_place(position, taken_out); });
  return std::min(static_cast<std::size_t>(end - places.begin()), queue->room());
}

bool ChannelAdapter::has_send_room(QpNumber queue_pair, std::size_t requests) const {
  const QueuePair* found = state_->find(queue_pair);
  if (found == nullptr || !takes_sends(*found)) return false;
  const SendQueue& send = found->send;
  const CompletionQueue* queue = state_->context.completion_queue(found->options.send_completions);
  // Places become free in order, so the last one says it.
  return requests == 0 || (requests <= queue->room() && send.has_place(send.posted + requests - 1, queue->taken_out()));
}

}  // namespace splitnic::fabric
