#include <algorithm>
#include <utility>

#include "fabric/adapter/adapter_state.h"
#include "fabric/adapter/channel_adapter.h"

/// What a ChannelAdapter does in a poll.
namespace splitnic::fabric {
namespace {

constexpr std::size_t kCellsInPerLane = 64;
constexpr std::size_t kCellsOut = 64;
constexpr std::size_t kCellsPerTurn = 8;  // of one queue pair, before the next has its turn

}  // namespace

bool ChannelAdapter::State::follow_on(Path& path) {
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
inline void ChannelAdapter::State::follow_turn() {
  if (context.transfers.any()) return follow_all();
  for (std::size_t i = 0; i < context.turns.busy().size(); ++i) static_cast<void>(follow(*context.turns.busy()[i]));
  for (Path* path : context.turns.looks()) static_cast<void>(follow(*path));
}

void ChannelAdapter::State::follow_all() {
  for (auto& path : context.paths) {
    if (path != nullptr) static_cast<void>(follow(*path));
  }
}

// As receive_cells(), part of each look at a lane: a call of its own would cost as much as what it finds.
[[gnu::always_inline]] inline std::size_t ChannelAdapter::State::take_settled(Path& path, VirtualLane lane) {
  if (!path.reports_settled) return 0;
  const std::uint64_t settled = path.settled_to(lane, context.poll);
  return settled == path.settled[static_cast<std::size_t>(lane)] ? 0 : complete_settled(path, lane, settled);
}

std::size_t ChannelAdapter::State::complete_settled(Path& path, VirtualLane lane, std::uint64_t settled) {
  path.settled[static_cast<std::size_t>(lane)] = settled;
  if (turns.active().empty()) rests_until = context.now + kRest;
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

void ChannelAdapter::State::take_known_settled() {
  for (Path* path : context.turns.busy()) {
    for (std::size_t i = 0; i != kLanes && path->slots[i] != nullptr; ++i) {
      const std::uint64_t settled = path->slots[i]->sender.settled();
      if (settled == path->settled[i] || !path->reports_settled || !path->is_current()) [[likely]]
        continue;
      context.done_at_post += complete_settled(*path, static_cast<VirtualLane>(i), settled);
    }
  }
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

inline void ChannelAdapter::State::note_empty(Path& path, VirtualLane lane) const {
  const SlotLane& rings = *path.slots[static_cast<std::size_t>(lane)];
  path.looks[static_cast<std::size_t>(lane)].emptied(context.now, rings.receiver.consumed(), rings.sender.head());
}

[[gnu::always_inline]] inline std::size_t ChannelAdapter::State::receive_cells(Path& path, VirtualLane lane) {
  std::size_t taken = 0;
  for (; taken < kCellsInPerLane; ++taken) {
    const Express::Burst burst = express.take(path, lane, kCellsInPerLane - taken);
    taken += burst.taken;
    if (burst.end == Express::End::empty && taken != 0) note_empty(path, lane);
    if (burst.end == Express::End::empty || burst.end == Express::End::enough) break;
    came_short_way = false;
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
  if (!path.not_taken[static_cast<std::size_t>(lane)].wanted || push_not_taken(path, lane)) path.settle(lane);
  path.more[static_cast<std::size_t>(lane)] = taken == kCellsInPerLane;
  return taken;
}

/// A lane holds no more cells than its ring has lines; what comes in meanwhile may stay.
void ChannelAdapter::State::take_waiting(Path& path) {
  context.begin_poll(false);
  for (std::size_t i = 0; path.open && i != kLanes; ++i) {
    const auto lane = static_cast<VirtualLane>(i);
    for (std::size_t taken = 0; taken < kMaxSlotLines;) {
      static_cast<void>(take_settled(path, lane));
      taken += receive_cells(path, lane);
      static_cast<void>(take_settled(path, lane));
      if (!path.more[i]) break;
    }
  }
}

/// After what was sent, which has said in passing what is settled. An empty lane gives all its room back, so that a
/// sender who waits for much of it can go on; and a sender learns by one poll that its messages were taken.
std::size_t ChannelAdapter::State::return_room() {
  std::size_t told = 0;
  for (Path* path : context.turns.busy()) {
    if (path->open) told += path->return_room();
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

inline bool ChannelAdapter::State::may_look_first(Time now) const {
  const PathTurns& paths = context.turns;
  return paths.all_busy() && paths.looks().empty() && !turn_begun && context.done_at_post == 0 && now < rests_by() &&
         now - links_polled < kNewsFirst;
}

inline bool ChannelAdapter::State::links_rest(Time now) const {
  return std::ranges::all_of(context.turns.busy(), [now](const Path* path) { return path->link.rests(now); });
}

bool ChannelAdapter::rests(Time now) const {
  const auto announced = [](const Path* path) { return path->turn.announced; };
  return state_->may_look_first(now) && !state_->wants_poll() &&
         std::ranges::all_of(state_->context.turns.busy(), announced) && state_->find_news(now) == State::kNowhere &&
         state_->links_rest(now);
}

AdapterTurn ChannelAdapter::take_turn(Time now) {
  AdapterTurn turn;  // not three results: GCC would put parts of them aside, and load them in another size
  State& state = *state_;
  const bool looks_first = state.may_look_first(now);
  state.context.begin_poll(looks_first);
  if (looks_first) {
    state.context.now = now;
    state.timers_left = state.timers_to_start;
    state.habit.note_posts(state.context.counters);
    state.notify(true);
    const State::LanePlace news = state.owes_rest ? 0 : state.await_news(now);
    if (news != State::kNowhere) {
      if (state.take_one(news)) {
        turn.moved = 1;
        return turn;
      }
      state.follow_turn();
      turn.moved = state.deal_with(news);
      return turn;
    }
    turn.rested = state.links_rest(now);
    if (turn.rested) return turn;
  }
  const std::size_t changed = poll_links(now);
  if (looks_first && changed == 0) {
    state.turn_begun = false;
    return turn;
  }
  turn.links_changed = changed != 0;
  turn.moved = changed + poll(now);
  return turn;
}

std::size_t ChannelAdapter::poll(Time now) {
  state_->habit.note_posts(state_->context.counters);
  state_->enter_turn(now);
  state_->timers_left = state_->timers_to_start;
  if (state_->owes_doorbells) state_->notify(true);
  const std::size_t done_at_post = std::exchange(state_->context.done_at_post, 0);
  if (!state_->owes_rest && now < state_->rests_by() && state_->find_news(now) == State::kNowhere) {
    state_->notify(true);
    return done_at_post;
  }
  return state_->deal_with(0) + done_at_post;
}

/// A whole turn, unless it brings something to a caller who answers, or what has come in leaves nothing to send and no
/// time is due. The former leaves the rest to the next turn, which is a whole one. In the latter, timers wait, for
/// kRest at most; and a caller who answers is not kept by the look at the peer's doorbell, which has to wait for this
/// end's stores.
std::size_t ChannelAdapter::State::deal_with(LanePlace news) {
  const bool answers_first = habit.answers() && !owes_rest;
  came_short_way = true;
  std::size_t received = receive_turn(news, answers_first);
  const bool may_end = answers_first && came_short_way && !context.overrun;
  if (answers_first && !may_end) received += receive_turn(0, false);  // what that has left to the next turn
  const bool brought = habit.note_received(context.counters, context.poll);
  owes_rest = may_end && brought;
  if (owes_rest) {
    owes_doorbells = true;
    habit.note_sent(context.counters);
    return received;
  }
  const bool may_leave_rest = received != 0 && (!brought || habit.answers()) && context.now < rests_by();
  const Left left = may_leave_rest ? what_is_left() : Left::work;
  std::size_t sent = 0;
  if (left == Left::work) {
    sent = send_turn();
    // Once for everything written since the last time, posts included.
    notify(false);
    if (received + sent == 0) rest();
  } else {
    timers_to_start = timers_left = left == Left::answers;
    if (brought) {
      sent = return_room();
      owes_doorbells = true;
    } else {
      notify(true);
    }
  }
  habit.note_sent(context.counters);
  return received + sent;
}

/// A poll has found nothing to do: if it is the peer's turn, the next ones need not do more than look.
void ChannelAdapter::State::rest() {
  if (!any_to_send()) rests_until = std::min(context.now + kRest, next_deadline());
}

inline ChannelAdapter::State::Left ChannelAdapter::State::what_is_left() const {
  if (context.overrun) return Left::work;
  Left left = Left::nothing;
  for (const QueuePair* queue_pair : turns.active()) {
    if (queue_pair->has_to_send() || queue_pair->draining) return Left::work;
    if (queue_pair->outstanding()) left = Left::answers;
  }
  const auto owes = [](const Path* path) { return path->owes_cells(); };
  return std::ranges::any_of(context.turns.busy(), owes) ? Left::work : left;
}

std::size_t ChannelAdapter::receive(Time now) {
  state_->enter_turn(now);
  return state_->receive_turn(0, false);
}

void ChannelAdapter::State::enter_turn(Time now) {
  context.now = now;
  context.begin_poll(false);
  begin_turn(now, false);
  turn_begun = false;
  // Ended epochs first: an engine that is polled before it has abandoned their copies would store into the new ones.
  follow_turn();
}

inline ChannelAdapter::State::LanePlace ChannelAdapter::State::find_news(Time now) const {
  if (context.overrun || context.transfers.any() || !context.turns.looks().empty()) return 0;
  LanePlace first = 0;
  for (const Path* path : context.turns.busy()) {
    const std::size_t lane = path->first_news(now, context.poll);
    if (lane != kLanes) return first + lane;
    first += kLanes;
  }
  return kNowhere;
}

/// Between two polls, this end does more than look for an answer.
inline ChannelAdapter::State::LanePlace ChannelAdapter::State::await_news(Time now) const {
  LanePlace news = find_news(now);
  if (!habit.expects(context.poll)) return news;
  const std::size_t paths = std::max<std::size_t>(1, context.turns.busy().size());
  for (std::size_t looks = paths; news == kNowhere && looks < AnswerHabit::kLooks; looks += paths)
    news = find_news(now);
  return news;
}

inline std::size_t ChannelAdapter::State::receive_turn(LanePlace from, bool answers_first) {
  if (context.transfers.any()) take_ended_transfers();
  std::size_t received = 0;
  const PathTurns& paths = context.turns;
  for (Path* path : paths.looks()) {
    if (!path->turn.busy) received += look(*path, 0, answers_first);
  }
  std::size_t lane = from % kLanes;
  for (std::size_t i = from / kLanes; i < paths.busy().size(); ++i) {  // those that have just become busy, too
    received += look(*paths.busy()[i], std::exchange(lane, 0), answers_first);
  }
  return received;
}

inline std::size_t ChannelAdapter::State::look(Path& path, std::size_t first_lane, bool answers_first) {
  if (!path.open) return 0;
  std::size_t received = 0;
  for (std::size_t i = first_lane; i != kLanes; ++i) {
    const auto lane = static_cast<VirtualLane>(i);
    // Requests that ended before these cells left the peer complete before what the cells bring.
    received += take_settled(path, lane);
    if (path.brings_nothing(lane, context.now)) continue;
    const std::size_t cells = receive_cells(path, lane);
    if (cells == 0) continue;
    path.tails[i].slots_came(context.poll);
    received += cells + (answers_first ? path.return_room(lane) : take_settled(path, lane));
    if (answers_first) prepare_answer(path, lane, cells);
  }
  return received;
}

inline void ChannelAdapter::State::prepare_answer(Path& path, VirtualLane lane, std::size_t messages) {
  brought_by = path.number;
  if (path.fetches.came(messages, context.now)) path.fetch_next(lane);
}

/// What deal_with() does for a caller who answers, where one message is all. The other paths are followed by the next
/// turn. The lane's LookHabit need not hear of a conversation.
inline bool ChannelAdapter::State::take_one(LanePlace news) {
  if (!habit.answers_one() || owes_rest || context.overrun || context.transfers.any()) return false;
  Path& path = *context.turns.busy()[news / kLanes];
  const std::size_t i = news % kLanes;
  const auto lane = static_cast<VirtualLane>(i);
  if (path.slots[i] == nullptr || !path.is_current() || path.settles_more(lane, context.poll)) return false;
  if (path.more[i] || path.not_taken[i].wanted || path.looks[i].looks_away(context.now)) return false;
  const Express::End end = express.take_one(path, lane);
  if (end == Express::End::left) path.last_kind[i] = MessageKind::none;  // those like it are not so simple either
  if (end == Express::End::left || end == Express::End::empty) return false;
  if (end == Express::End::answered) activate(*path.receiver);
  SlotLane& slots = *path.slots[i];
  slots.receiver.settle();
  slots.receiver.push_tail(slots.sender.head());
  context.turns.attend(path);
  path.tails[i].slots_came(context.poll);
  prepare_answer(path, lane, 1);
  static_cast<void>(habit.note_received(context.counters, context.poll));
  habit.note_sent(context.counters);
  owes_rest = owes_doorbells = true;
  return true;
}

std::size_t ChannelAdapter::send() {
  for (std::size_t i = 0; i < state_->context.turns.busy().size(); ++i) {
    static_cast<void>(state_->follow(*state_->context.turns.busy()[i]));
  }
  return state_->send_turn();
}

std::size_t ChannelAdapter::State::send_turn() {
  context.to_place = Placements::kAtOnceBytes;
  turns.activate_due(context.now);
  for (QueuePair* queue_pair : turns.active()) requester.check_time(*queue_pair);
  const std::size_t sent = send_cells() + return_room();
  for (QueuePair* queue_pair : turns.active()) {
    responder.reassure(*queue_pair);
    check_drained(*queue_pair);
  }
  if (context.overrun) fail_overrun();
  if (!turns.active().empty()) release();
  timers_to_start = timers_left = false;
  rests_until = Time::min();
  return sent;
}

/// Else the sleep would end in kRest. What was posted since the last turn has to wait for the next one, whose time is
/// not as old as that turn's.
bool ChannelAdapter::State::start_timers() {
  if (!timers_left) return true;
  for (QueuePair* queue_pair : turns.active()) requester.check_time(*queue_pair);
  if (any_to_send()) return false;
  release();
  timers_to_start = timers_left = false;
  rests_until = Time::min();
  return true;
}

std::size_t ChannelAdapter::poll_links(Time now) {
  state_->take_known_settled();
  state_->links_polled = now;
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

void ChannelAdapter::State::notify(bool new_alone) {
  for (Path* path : context.turns.busy()) {
    if (new_alone && path->turn.announced) continue;
    path->link.notify();
    path->turn.announced = true;
  }
  owes_doorbells = false;
}

}  // namespace splitnic::fabric
