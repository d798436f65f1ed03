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

constexpr std::size_t kCellsInPerLane = 64;
constexpr std::size_t kCellsOut = 64;
constexpr std::size_t kCellsPerTurn = 8;  // of one queue pair, before the next has its turn
constexpr std::size_t kCellsAtPost = 8;   // what a post sends itself, when nothing waits before it
constexpr std::size_t kPostsAtOnce = 8;   // of a list, before they are sent

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
  context.options.cell_payload_bytes = fitting_payload(options.cell_payload_bytes);
  queue_pairs.reserve(numbers);
  turns.reserve(numbers);
  enable_guarded_copy();  // registered memory may go missing at any time
}

bool ChannelAdapter::State::follow(Path& path) {
  if (path.is_current()) return true;
  if (path.open) end_epoch(path);
  if (!path.link.up()) return false;
  begin_epoch(path);
  return true;
}

void ChannelAdapter::State::begin_turn(Time now, bool polls_links) {
  if (!turn_begun) context.turns.begin(now, context.paths, polls_links);
  turn_begun = true;
}

/// An engine may still store for a queue pair that is gone, so its path may be any.
void ChannelAdapter::State::follow_turn() {
  if (context.transfers.any()) return follow_all();
  for (std::size_t i = 0; i < context.turns.busy().size(); ++i) static_cast<void>(follow(*context.turns.busy()[i]));
  for (Path* path : context.turns.looks()) static_cast<void>(follow(*path));
}

void ChannelAdapter::State::follow_all() {
  for (auto& path : context.paths) {
    if (path != nullptr) static_cast<void>(follow(*path));
  }
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
  return true;
}

void ChannelAdapter::State::take_not_taken(Path& path, const Cell& cell) {
  const QpNumber named = cell.destination_queue_pair;
  const auto take = [&](QueuePair& queue_pair) {
    if (queue_pair.path != &path || (named.value != 0 && queue_pair.peer.number != named)) return;
    requester.take_not_taken(queue_pair, named.value == 0 ? std::nullopt : std::optional(cell.packet_sequence));
  };
  for (QueuePair* queue_pair : turns.active()) take(*queue_pair);
  turns.visit_waiting(take);
}

std::size_t ChannelAdapter::State::take_settled(Path& path, VirtualLane lane) {
  if (!path.reports_settled) return 0;
  const std::uint64_t settled = path.link.settled(lane);
  std::uint64_t& before = path.settled[static_cast<std::size_t>(lane)];
  if (settled == before) return 0;
  before = settled;
  std::size_t ended = 0;
  const auto take = [&](QueuePair* queue_pair) {
    const bool sends_here = queue_pair != nullptr && queue_pair->path == &path && queue_pair->options.lane == lane;
    if (!sends_here) return;
    ended += requester.take_settled(*queue_pair);
    turns.end_wait(*queue_pair);
  };
  AwaitedPositions& awaited = path.awaited[static_cast<std::size_t>(lane)];
  if (awaited.kept() && awaited.take(settled, [&](QpNumber number) { take(find(number)); })) return ended;
  for (QueuePair* queue_pair : turns.active()) take(queue_pair);
  turns.visit_waiting([&](QueuePair& queue_pair) { take(&queue_pair); });
  return ended;
}

void ChannelAdapter::State::take_ended_transfers() {
  context.transfers.poll([this](const TransferFor& what, bool moved) {
    QueuePair* queue_pair = find(what.queue_pair);
    if (queue_pair == nullptr) return;
    if (what.owner == TransferOwner::send) {
      requester.transfer_ended(*queue_pair, what.position, moved);
    } else {
      responder.transfer_ended(*queue_pair, what.position, moved);
    }
  });
}

void ChannelAdapter::State::fail_overrun() {
  context.overrun = false;
  const auto failed = [this](CqNumber number) {
    const CompletionQueue* queue = context.completion_queue(number);
    return queue != nullptr && queue->failed();
  };
  for (QueuePair* queue_pair : queue_pairs) {
    const bool uses = failed(queue_pair->options.send_completions) || failed(queue_pair->receive_completions);
    const bool alive = queue_pair->state != QueuePairState::reset && queue_pair->state != QueuePairState::error;
    if (!uses || !alive) continue;
    activate(*queue_pair);
    fail_queue_pair(context, *queue_pair, CompletionStatus::flushed);
  }
}

void ChannelAdapter::State::check_drained(QueuePair& queue_pair) {
  const SendQueue& send = queue_pair.send;
  if (!queue_pair.draining || send.done < send.drain_to) return;
  queue_pair.draining = false;
  AsyncEvent event;
  event.kind = AsyncEventKind::send_queue_drained;
  event.queue_pair = queue_pair.number;
  context.report(event);
}

void ChannelAdapter::State::note_empty(Path& path, VirtualLane lane) const {
  const SlotLane& rings = *path.slots[static_cast<std::size_t>(lane)];
  path.looks[static_cast<std::size_t>(lane)].emptied(context.now, rings.receiver.consumed(), rings.sender.head());
}

std::size_t ChannelAdapter::State::receive_cells(Path& path, VirtualLane lane) {
  std::size_t taken = 0;
  for (; taken < kCellsInPerLane; ++taken) {
    const Express::Burst burst = express.take(path, lane, kCellsInPerLane - taken);
    taken += burst.taken;
    if (burst.end == Express::End::empty && taken != 0) note_empty(path, lane);
    if (burst.end == Express::End::empty || burst.end == Express::End::enough) break;
    if (burst.end == Express::End::refused) {
      activate(*find(express.refused().destination_queue_pair));  // it owes the peer the reason
      refuse_consumed(path, lane, express.refused());
      continue;
    }
    if (burst.end == Express::End::answered) {
      activate(*burst.reader);  // what waited for the answer may go on
      continue;
    }
    const ReceivedCell* cell = path.link.front(lane);
    if (cell == nullptr) break;
    ++context.counters.cells_received;
    context.counters.bytes_received += cell->payload.size();
    if (!take_cell(path, *cell) && cell->cell.awaited) refuse_consumed(path, lane, cell->cell);
    path.link.pop(lane);
  }
  if (taken == 0 && !path.not_taken[static_cast<std::size_t>(lane)].wanted) {  // all is settled already
    path.more[static_cast<std::size_t>(lane)] = false;
    return 0;
  }
  if (taken != 0) context.turns.attend(path);
  // What was placed or refused is settled; but no cell may pass for taken whose refusal the peer can't read yet.
  if (push_not_taken(path, lane)) path.link.settle(lane);
  path.more[static_cast<std::size_t>(lane)] = taken == kCellsInPerLane;
  return taken;
}

/// After what was sent, which has said in passing what is settled. An empty lane gives all its room back, so that a
/// sender who waits for much of it can go on; and a sender learns by one poll that its messages were taken.
std::size_t ChannelAdapter::State::return_room() {
  std::size_t told = 0;
  for (Path* path : context.turns.busy()) {
    if (!path->open) continue;
    for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
      const SlotLane* rings = path->slots[static_cast<std::size_t>(lane)];
      if (rings != nullptr && !rings->receiver.unreported()) continue;
      told += path->link.return_room(lane, !path->more[static_cast<std::size_t>(lane)]) ? 1 : 0;
    }
  }
  return told;
}

/// Of many queue pairs that wait for a full lane, only the first tries.
bool ChannelAdapter::State::lacks_room(const QueuePair& queue_pair, bool answers) const {
  const Path* path = queue_pair.path;
  const auto refused = path == nullptr ? std::nullopt : path->refused_payload(queue_pair.options.lane);
  if (!refused) return false;
  const auto bytes = answers ? responder.next_payload(queue_pair) : requester.next_payload(queue_pair);
  return bytes && *bytes >= *refused;
}

/// Turns alternate between what a queue pair answers and what it asks, and the next poll goes on where this one's
/// budget or the lane's room ended: neither long answers nor many requests hold up anything else.
std::size_t ChannelAdapter::State::send_cells() {
  std::size_t sent = 0;
  for (Path* path : context.turns.busy()) {
    path->forget_refusals();
    if (path->open) sent += path->drains.push();
  }
  if (!any_to_send()) return sent;
  for (QueuePair* queue_pair : turns.active()) sent += responder.push_acknowledgement(*queue_pair) ? 1 : 0;
  std::size_t budget = kCellsOut;
  std::size_t idle_turns = 0;
  while (budget > 0 && idle_turns < 2 * turns.active().size()) {
    const auto [queue_pair, answers] = turns.next();
    const std::size_t most = std::min(budget, kCellsPerTurn);
    std::size_t moved = 0;
    if (!lacks_room(queue_pair, answers)) {
      moved = answers ? answer(queue_pair, most) : requester.pump(queue_pair, most);
    }
    idle_turns = moved == 0 ? idle_turns + 1 : 0;
    budget -= std::min(budget, moved);
  }
  return sent + kCellsOut - budget;
}

void ChannelAdapter::State::release() {
  turns.release([this](QueuePair& queue_pair) {
    if (!queue_pair.outstanding()) return QueuePairTurn::kIdle;
    if (queue_pair.path != nullptr) context.turns.attend(*queue_pair.path);
    return requester.waits_until(queue_pair);
  });
}

bool ChannelAdapter::State::any_to_send() const {
  return std::ranges::any_of(turns.active(), [](const QueuePair* queue_pair) { return queue_pair->has_to_send(); });
}

std::size_t ChannelAdapter::State::answer(QueuePair& queue_pair, std::size_t budget) {
  if (queue_pair.responses.idle()) return 0;
  const std::size_t moved = responder.push_responses(queue_pair, budget);
  // What had to wait for the answers: the acknowledgement of what came after them, or the end of the stream.
  return moved + (responder.push_acknowledgement(queue_pair) ? 1 : 0);
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
  if (found == nullptr) return Status::bad_queue_pair;
  const bool reachable = found->path == nullptr || state_->follow(*found->path) || found->path->link.awaited();
  if (!reachable && !found->flushes_sends()) return Status::link_down;
  posted += state_->placer.post(*found, requests);
  if (posted == requests.size()) return Status::ok;  // nothing is left to do, or to tell the peer
  if (found->path != nullptr) state_->context.turns.attend(*found->path);
  posted += state_->express.post(*found, requests.subspan(posted));
  if (posted == requests.size()) {
    state_->activate_to_await(*found);
    return Status::ok;
  }
  state_->activate(*found);
  // What a request before it registers, a request may name: so each is carried out before the next is checked.
  const std::size_t at_once = found->options.memory_requests ? 1 : kPostsAtOnce;
  while (true) {
    const bool idle = found->send.next == found->send.posted;
    const std::size_t before = posted;
    const std::size_t end = posted + std::min(at_once, requests.size() - posted);
    Status status = Status::ok;
    while (posted != end && (status = state_->requester.post(*found, requests[posted])) == Status::ok) ++posted;
    if (posted == before) return status;
    if (idle) static_cast<void>(state_->requester.pump(*found, kCellsAtPost));
    // What has left may have made room.
    if (status != Status::ok && status != Status::queue_full) return status;
    posted += state_->placer.post(*found, requests.subspan(posted));
    posted += state_->express.post(*found, requests.subspan(posted));
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
  if (found == nullptr) return Status::bad_queue_pair;
  if (found->path != nullptr) static_cast<void>(state_->follow(*found->path));
  return state_->responder.post(*found, requests, posted);
}

Status ChannelAdapter::post_shared_receive(SrqNumber queue, const ReceiveRequest& request) {
  SharedReceiveQueue* found = state_->context.shared_receive_queue(queue);
  return found == nullptr ? Status::bad_argument : state_->responder.post(*found, request);
}

std::size_t ChannelAdapter::poll_events(std::span<AsyncEvent> out) { return state_->context.events.poll(out); }

bool ChannelAdapter::has_events() const { return !state_->context.events.empty(); }

void ChannelAdapter::set_event_wake(std::function<void()> wake) { state_->context.events.set_wake(std::move(wake)); }

std::size_t ChannelAdapter::poll_completions(CqNumber queue, std::span<Completion> out, bool goes_on) {
  CompletionQueue* found = state_->context.completion_queue(queue);
  return found == nullptr ? 0 : found->poll(out, goes_on);
}

std::optional<std::size_t> ChannelAdapter::claim_direct(QpNumber queue_pair, RemoteAddress remote,
                                                        std::uint32_t bytes) {
  const QueuePair* found = state_->find(queue_pair);
  const bool reachable = found != nullptr && found->path != nullptr && state_->follow(*found->path);
  if (!reachable || !found->rules().connected) return std::nullopt;
  const WindowPlace at = found->path->claim_direct({queue_pair, found->peer.number}, remote, bytes);
  return at ? std::optional(*at) : std::nullopt;
}

bool ChannelAdapter::rests(Time now) {
  const PathTurns& turns = state_->context.turns;
  state_->habit.note_posts(state_->context.counters);
  const auto rests = [now](const Path* path) { return path->turn.announced && path->link.rests(now); };
  const bool may_rest = turns.all_busy() && !state_->turn_begun && !state_->owes_turn &&
                        state_->context.done_at_post == 0 && now < state_->rests_by() &&
                        std::ranges::all_of(turns.busy(), rests);
  if (!may_rest) return false;
  state_->has_news = !state_->is_quiet(now);
  if (!state_->has_news) state_->context.now = now;
  return !state_->has_news;
}

std::size_t ChannelAdapter::poll(Time now) {
  state_->habit.note_posts(state_->context.counters);
  state_->enter_turn(now);
  const bool has_news = std::exchange(state_->has_news, false);
  const bool owes_turn = std::exchange(state_->owes_turn, false);
  const std::size_t done_at_post = std::exchange(state_->context.done_at_post, 0);
  if (!has_news && !owes_turn && now < state_->rests_by() && state_->is_quiet(now)) {
    state_->notify(true);
    return done_at_post;
  }
  const std::size_t received = state_->receive_turn();
  const bool answer_comes = state_->habit.note_received(state_->context.counters);
  state_->owes_turn = answer_comes && !owes_turn && state_->may_answer_later();
  std::size_t sent = 0;
  if (state_->owes_turn) {
    sent = state_->return_room();
  } else {
    sent = state_->send_turn();
    // Once for everything written since the last time, posts included.
    state_->notify(false);
    if (received + sent == 0) state_->rest();
  }
  state_->habit.note_sent(state_->context.counters);
  return received + sent + done_at_post;
}

/// A poll has found nothing to do: if it is the peer's turn, the next ones need not do more than look.
void ChannelAdapter::State::rest() {
  if (!any_to_send()) rests_until = std::min(context.now + kRest, next_deadline());
}

/// What came in has been dealt with, but for timers and the peer's doorbell.
bool ChannelAdapter::State::may_answer_later() const {
  const auto owes = [](const Path* path) { return path->owes_cells(); };
  return !context.overrun && !any_to_send() && std::ranges::none_of(context.turns.busy(), owes);
}

std::size_t ChannelAdapter::receive(Time now) {
  state_->enter_turn(now);
  return state_->receive_turn();
}

void ChannelAdapter::State::enter_turn(Time now) {
  context.now = now;
  begin_turn(now, false);
  turn_begun = false;
  // Ended epochs first: an engine that is polled before it has abandoned their copies would store into the new ones.
  follow_turn();
}

/// Nothing has come in, nothing is to be told: most polls of an end that waits for a message.
bool ChannelAdapter::State::is_quiet(Time now) const {
  const bool at_work = context.overrun || context.transfers.any() || !context.turns.looks().empty();
  return !at_work && std::ranges::all_of(context.turns.busy(), [now](const Path* path) { return path->is_quiet(now); });
}

std::size_t ChannelAdapter::State::receive_turn() {
  if (context.transfers.any()) take_ended_transfers();
  std::size_t received = 0;
  const PathTurns& paths = context.turns;
  for (Path* path : paths.looks()) {
    if (!path->turn.busy) received += look(*path);
  }
  for (std::size_t i = 0; i < paths.busy().size(); ++i) {
    received += look(*paths.busy()[i]);  // those that have just become busy, too
  }
  return received;
}

std::size_t ChannelAdapter::State::look(Path& path) {
  if (!path.open) return 0;
  std::size_t received = 0;
  for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
    if (path.is_quiet(lane, context.now)) continue;
    // Requests that ended before these cells left the peer complete before what the cells bring.
    received += take_settled(path, lane);
    const std::size_t cells = receive_cells(path, lane);
    if (cells != 0) received += cells + take_settled(path, lane);
  }
  return received;
}

std::size_t ChannelAdapter::send() {
  for (std::size_t i = 0; i < state_->context.turns.busy().size(); ++i) {
    static_cast<void>(state_->follow(*state_->context.turns.busy()[i]));
  }
  return state_->send_turn();
}

std::size_t ChannelAdapter::State::send_turn() {
  turns.activate_due(context.now);
  for (QueuePair* queue_pair : turns.active()) requester.check_time(*queue_pair);
  const std::size_t sent = send_cells() + return_room();
  for (QueuePair* queue_pair : turns.active()) {
    responder.reassure(*queue_pair);
    check_drained(*queue_pair);
  }
  if (context.overrun) fail_overrun();
  if (!turns.active().empty()) release();
  timers_to_start = false;
  rests_until = Time::min();
  return sent;
}

std::size_t ChannelAdapter::poll_links(Time now) {
  if (state_->has_news) return 0;  // all links rest, as rests() has just found
  state_->begin_turn(now, true);
  PathTurns& turns = state_->context.turns;
  std::size_t moved = 0;
  for (std::size_t i = 0; i < turns.busy().size(); ++i) moved += turns.busy()[i]->link.poll(now);
  for (Path* path : turns.looks()) {
    const std::size_t changed = path->link.poll(now);
    turns.polled(*path);
    if (changed != 0) turns.attend(*path);
    moved += changed;
  }
  return moved;
}

void ChannelAdapter::notify() { state_->notify(false); }

void ChannelAdapter::State::notify(bool new_alone) {
  for (Path* path : context.turns.busy()) {
    if (new_alone && path->turn.announced) continue;
    path->link.notify();
    path->turn.announced = true;
  }
}

bool ChannelAdapter::has_unannounced() const {
  const auto announced = [](const Path* path) { return path->turn.announced; };
  return state_->owes_turn || !state_->turns.active().empty() ||
         !std::ranges::all_of(state_->context.turns.busy(), announced);
}

bool ChannelAdapter::prepare_sleep() { return !state_->wants_poll() && state_->context.turns.prepare_sleep(); }

bool ChannelAdapter::rearm() { return !state_->wants_poll() && state_->context.turns.rearm(); }

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
