#include "fabric/adapter/channel_adapter.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "common/check.h"
#include "fabric/adapter/adapter_state.h"
#include "fabric/memory/guarded_copy.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kCellsAtPost = 8;  // what a post sends itself, when nothing waits before it
constexpr std::size_t kPostsAtOnce = 8;  // of a list, before they are sent

std::uint32_t fitting_payload(std::uint32_t bytes) {
  return std::clamp(bytes, kMinCellPayload, kMaxCellPayload) / 16 * 16;
}

std::size_t queue_pair_slots_for(const AdapterOptions& options) {
  return std::bit_ceil(kWellKnownNumbers + options.max_queue_pairs);
}

}  // namespace

std::shared_ptr<const Node::Numbers> take_numbers(Node& node, const AdapterOptions& options) {
  return node.take(static_cast<std::uint32_t>(TagSpace::slots_for(options.max_regions)),
                   static_cast<std::uint32_t>(queue_pair_slots_for(options)));
}

ChannelAdapter::State::State(const AdapterOptions& options, RandomSource& randomness)
    : random(randomness),
      context(options, randomness),
      requester(context),
      responder(context),
      placer(context),
      express(context, requester, responder) {
  const std::size_t numbers = queue_pair_slots_for(options);
  SPLITNIC_CHECK_OP(numbers, <=, std::size_t{1} << 20U);
  context.queue_pair_slots.resize(numbers);
  left_connections.resize(numbers);
  context.options.cell_payload_bytes = fitting_payload(options.cell_payload_bytes);
  queue_pairs.reserve(numbers);
  turns.reserve(numbers);
  enable_guarded_copy();  // registered memory may go missing at any time
}

bool ChannelAdapter::State::take_cell(Path& path, const ReceivedCell& received) {
  if (received.fault) {
    ++(*received.fault == CellFault::port_address ? context.counters.dropped_wrong_address
                                                  : context.counters.dropped_bad_cell);
    return false;
  }
  const Cell& cell = received.cell;
  switch (traits(cell.opcode).kind) {
    case MessageKind::drain:
      path.drains.take(cell);
      return true;
    case MessageKind::datagram:
      take_datagram(path, received);
      return true;
    case MessageKind::not_taken:
      take_not_taken(path, cell);
      return true;
    default:
      break;
  }
  QueuePair* queue_pair = find(cell.destination_queue_pair);
  const auto from_peer = [&] {
    const QpNumber source = cell.source_queue_pair;
    return source.value == 0 || source == queue_pair->peer.number;
  };
  if (queue_pair == nullptr || !path.serves(queue_pair->path) || !from_peer()) {
    ++context.counters.dropped_unknown_queue_pair;
    return false;
  }
  activate(*queue_pair);
  return dispatch(*queue_pair, received);
}

bool ChannelAdapter::State::dispatch(QueuePair& queue_pair, const ReceivedCell& received) {
  switch (traits(received.cell.opcode).kind) {
    case MessageKind::acknowledgement:
      requester.take_acknowledgement(queue_pair, received.cell);
      return true;
    case MessageKind::terminate:
      requester.take_terminate(queue_pair, received);
      return true;
    case MessageKind::read_response:
      requester.take_read_response(queue_pair, received);
      return true;
    case MessageKind::atomic_response:
      requester.take_atomic_response(queue_pair, received);
      return true;
    default:
      return responder.take(queue_pair, received);
  }
}

/// The peer's queue pair may be a slot's that names no queue pair of this end: so the cell says which number it named.
void ChannelAdapter::State::refuse_consumed(Path& path, VirtualLane lane, const Cell& cell) {
  PendingNotTaken& pending = path.not_taken[static_cast<std::size_t>(lane)];
  const bool nameable = cell.destination_queue_pair.value <= kMaxQueuePairNumber;
  const QpNumber named = nameable ? cell.destination_queue_pair : QpNumber{};
  if (!pending.wanted) {
    pending = {true, named, cell.packet_sequence};
  } else if (pending.queue_pair != named || pending.psn != cell.packet_sequence) {
    pending.queue_pair = QpNumber{};  // the lane has been full: one cell speaks for all
  }
  static_cast<void>(push_not_taken(path, lane));
}

bool ChannelAdapter::State::push_not_taken(Path& path, VirtualLane lane) {
  PendingNotTaken& pending = path.not_taken[static_cast<std::size_t>(lane)];
  if (!pending.wanted) return true;
  Cell cell;
  cell.opcode = Opcode::not_taken;
  cell.destination_queue_pair = pending.queue_pair;
  cell.packet_sequence = pending.psn;
  if (!send_cell(context, path, lane, cell)) return false;
  pending.wanted = false;
  ++context.counters.not_taken_sent;
  doubt_consumption(path, pending);
  return true;
}

/// The refusal has left. The queue pairs that it may be about acknowledge what they take. A peer that is refused again
/// and again makes this end look at all of them once in a while only.
void ChannelAdapter::State::doubt_consumption(Path& path, const PendingNotTaken& refused) {
  const auto doubt = [&](QueuePair& queue_pair, std::optional<std::uint32_t> psn) {
    if (!path.serves(queue_pair.path) || !queue_pair.path->open) return;
    responder.doubt_consumption(queue_pair, psn);
    if (queue_pair.acknowledgement.wanted) activate(queue_pair);
  };
  if (refused.queue_pair.value != 0) {
    if (QueuePair* named = find(refused.queue_pair)) doubt(*named, refused.psn);
    return;
  }
  if (all_doubted(path)) return;
  path.all_doubted_until = context.counters.cells_received + Responder::kPacketsUnderWay;
  for (QueuePair* queue_pair : queue_pairs) doubt(*queue_pair, std::nullopt);
}

void ChannelAdapter::State::take_not_taken(Path& path, const Cell& cell) {
  const QpNumber named = cell.destination_queue_pair;
  if (named.value == 0) return path.refuse_sent();
  const auto [first, last] = path.by_peer.equal_range(named.value);
  for (auto each = first; each != last; ++each) requester.take_not_taken(*each->second, cell.packet_sequence);
}

ChannelAdapter::ChannelAdapter(const AdapterOptions& options, RandomSource& random)
    : state_(std::make_unique<State>(options, random)) {}

ChannelAdapter::ChannelAdapter(CellLink& link, const AdapterOptions& options, RandomSource& random)
    : ChannelAdapter(options, random) {
  SPLITNIC_CHECK(attach(link).has_value());
}

ChannelAdapter::~ChannelAdapter() = default;

Status ChannelAdapter::post_send(QpNumber queue_pair, const WorkRequest& request) {
  std::size_t posted = 0;
  return post_send(queue_pair, std::span(&request, 1), posted);
}

Status ChannelAdapter::post_send(QpNumber queue_pair, std::span<const WorkRequest> requests, std::size_t& posted) {
  posted = 0;
  QueuePair* found = state_->find(queue_pair);
  return found == nullptr ? Status::bad_queue_pair : post_send(*found, requests, posted);
}

QueuePair* ChannelAdapter::find(QpNumber queue_pair) const { return state_->find(queue_pair); }

inline void ChannelAdapter::State::fetch_lines_of_answer(const QueuePair& queue_pair) {
  const Path* path = queue_pair.path != nullptr ? queue_pair.path : context.path(brought_by);
  if (path != nullptr) path->fetch_next(queue_pair.options.lane);
}

Status ChannelAdapter::post_send(QueuePair& queue_pair, std::span<const WorkRequest> requests, std::size_t& posted) {
  State& state = *state_;
  posted = 0;
  if (state.habit.expects(state.context.poll)) state.fetch_lines_of_answer(queue_pair);
  const bool reachable =
      queue_pair.path == nullptr || state.follow(*queue_pair.path) || queue_pair.path->link.awaited();
  if (!reachable && !queue_pair.flushes_sends()) return Status::link_down;
  if (requests.empty()) return Status::ok;
  // By itself, so that nothing of what placements need is in the way of a post without them.
  if (state.context.options.placements == nullptr) return state.post_from(queue_pair, requests, 0, posted);
  const std::size_t placed = state.placer.post(queue_pair, requests);
  posted = placed;
  if (placed == requests.size()) return Status::ok;  // nothing is left to do, or to tell the peer
  return state.post_from(queue_pair, requests, placed, posted);
}

[[gnu::always_inline]] inline Status ChannelAdapter::State::post_from(QueuePair& queue_pair,
                                                                      std::span<const WorkRequest> requests,
                                                                      std::size_t first, std::size_t& posted) {
  posted = first + post_at_once(queue_pair, requests.subspan(first));
  if (queue_pair.path != nullptr) context.turns.attend(*queue_pair.path);
  if (posted != requests.size()) [[unlikely]]
    return post_general(queue_pair, requests, posted);
  activate_to_await(queue_pair);
  return Status::ok;
}

inline std::size_t ChannelAdapter::State::post_at_once(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  // A write that is deferred would leave in a cell now, and those behind it would wait until that has landed.
  const bool none = requests.empty() || placer.defers(queue_pair, requests.front());
  return none ? 0 : express.post(queue_pair, requests);
}

Status ChannelAdapter::State::post_general(QueuePair& queue_pair, std::span<const WorkRequest> requests,
                                           std::size_t& posted) {
  activate(queue_pair);
  // What a request before it registers, a request may name: so each is carried out before the next is checked.
  const std::size_t at_once = queue_pair.options.memory_requests ? 1 : kPostsAtOnce;
  while (true) {
    const bool idle = queue_pair.send.next == queue_pair.send.posted;
    const std::size_t before = posted;
    const std::size_t end = posted + std::min(at_once, requests.size() - posted);
    Status status = Status::ok;
    while (posted != end && (status = requester.post(queue_pair, requests[posted])) == Status::ok) ++posted;
    if (posted == before) return status;
    if (idle) static_cast<void>(requester.pump(queue_pair, kCellsAtPost));
    // What has left may have made room.
    if (status != Status::ok && status != Status::queue_full) return status;
    posted += placer.post(queue_pair, requests.subspan(posted));
    posted += post_at_once(queue_pair, requests.subspan(posted));
    if (posted == requests.size()) return Status::ok;
  }
}

Status ChannelAdapter::check_send(QpNumber queue_pair, const WorkRequest& request) const {
  const QueuePair* found = state_->find(queue_pair);
  std::uint32_t bytes = 0;
  return found == nullptr ? Status::bad_queue_pair : state_->requester.check(*found, request, bytes);
}

Status ChannelAdapter::post_receive(QpNumber queue_pair, const ReceiveRequest& request) {
  std::size_t posted = 0;
  return post_receive(queue_pair, std::span(&request, 1), posted);
}

Status ChannelAdapter::post_receive(QpNumber queue_pair, std::span<const ReceiveRequest> requests,
                                    std::size_t& posted) {
  posted = 0;
  QueuePair* found = state_->find(queue_pair);
  return found == nullptr ? Status::bad_queue_pair : post_receive(*found, requests, posted);
}

Status ChannelAdapter::post_receive(QueuePair& queue_pair, std::span<const ReceiveRequest> requests,
                                    std::size_t& posted) {
  posted = 0;
  if (queue_pair.path != nullptr) static_cast<void>(state_->follow(*queue_pair.path));
  return state_->responder.post(queue_pair, requests, posted);
}

Status ChannelAdapter::post_shared_receive(SrqNumber queue, const ReceiveRequest& request) {
  SharedReceiveQueue* found = state_->context.shared_receive_queue(queue);
  return found == nullptr ? Status::bad_argument : state_->responder.post(*found, request);
}

std::size_t ChannelAdapter::poll_events(std::span<AsyncEvent> out) { return state_->context.events.poll(out); }

bool ChannelAdapter::has_events() const { return !state_->context.events.empty(); }

void ChannelAdapter::set_event_wake(std::function<void()> wake) { state_->context.events.set_wake(std::move(wake)); }

std::size_t ChannelAdapter::poll_completions(CqNumber queue, std::span<Completion> out, bool goes_on) {
  CompletionQueue* found = find(queue);
  state_->context.to_place = Placements::kAtOnceBytes;
  return found == nullptr ? 0 : found->poll(out, goes_on);
}

CompletionQueue* ChannelAdapter::find(CqNumber queue) const { return state_->context.completion_queue(queue); }

std::size_t ChannelAdapter::poll_completions(CompletionQueue& queue, std::span<Completion> out, bool goes_on) {
  state_->context.to_place = Placements::kAtOnceBytes;
  return queue.poll(out, goes_on);
}

std::optional<std::size_t> ChannelAdapter::claim_direct(QpNumber queue_pair, RemoteAddress remote,
                                                        std::uint32_t bytes) {
  const QueuePair* found = state_->find(queue_pair);
  const bool reachable = found != nullptr && found->path != nullptr && state_->follow(*found->path);
  if (!reachable || !found->rules().connected) return std::nullopt;
  const WindowPlace at = found->path->claim_direct({queue_pair, found->peer.number}, remote, bytes);
  return at ? std::optional(*at) : std::nullopt;
}

void ChannelAdapter::notify() { state_->notify(false); }

bool ChannelAdapter::has_unannounced() const {
  const auto announced = [](const Path* path) { return path->turn.announced; };
  return state_->owes_doorbells || !state_->turns.active().empty() ||
         !std::ranges::all_of(state_->context.turns.busy(), announced);
}

bool ChannelAdapter::prepare_sleep() {
  return !state_->wants_poll() && state_->start_timers() && state_->context.turns.prepare_sleep();
}

bool ChannelAdapter::rearm() {
  return !state_->wants_poll() && state_->start_timers() && state_->context.turns.rearm();
}

void ChannelAdapter::disarm() { state_->context.turns.disarm(); }

void ChannelAdapter::attend(PathNumber number) {
  Path* path = state_->context.path(number);
  if (path != nullptr) state_->context.turns.attend(*path);
}

void ChannelAdapter::follow(PathNumber number) {
  Path* path = state_->context.path(number);
  if (path != nullptr) static_cast<void>(state_->follow(*path));
}

std::uint64_t ChannelAdapter::path_epochs() const { return state_->path_epochs; }

Time ChannelAdapter::next_link_deadline(Time now) const {
  return state_->context.turns.next_link_deadline(now, outstanding());
}

Time ChannelAdapter::next_deadline() const {
  if (state_->wants_poll()) return state_->context.now;
  const Time deadline = state_->next_deadline();
  const bool rests = state_->timers_to_start && state_->rests_until != Time::min();
  return rests ? std::min(deadline, state_->rests_until) : deadline;
}

Time ChannelAdapter::State::next_deadline() {
  Time deadline = turns.first_deadline();
  for (const QueuePair* queue_pair : turns.active()) {
    if (queue_pair->options.datagram) {
      deadline = std::min(deadline, requester.next_datagram_deadline(*queue_pair));
    }
    if (queue_pair->path == nullptr || !(queue_pair->path->link.up() || queue_pair->path->link.awaited())) continue;
    deadline = std::min(deadline, requester.next_deadline(*queue_pair));
  }
  for (const Path* path : context.turns.busy()) {
    if (path->link.up()) deadline = std::min(deadline, path->drains.next_deadline());
  }
  // An engine has no descriptor to sleep on.
  return context.transfers.any() ? context.now : deadline;
}

bool ChannelAdapter::outstanding() const {
  const auto owes = [](const Path* path) { return path->drains.waiting() || path->owes_refusals(); };
  if (std::ranges::any_of(state_->context.turns.busy(), owes)) return true;
  return state_->turns.any_waiting() || std::ranges::any_of(state_->turns.active(), [](const QueuePair* queue_pair) {
           return queue_pair->outstanding();
         });
}

Status ChannelAdapter::set_cell_payload(std::uint32_t bytes, PathNumber number) {
  Path* path = state_->context.path(number);
  if (path == nullptr) return Status::bad_argument;
  path->cell_payload_bytes = std::min(state_->context.options.cell_payload_bytes, fitting_payload(bytes));
  return Status::ok;
}

const AdapterCounters& ChannelAdapter::counters() const { return state_->context.counters; }

}  // namespace splitnic::fabric
