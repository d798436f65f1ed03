#include "fabric/adapter/drains.h"

#include <algorithm>
#include <utility>

#include "fabric/adapter/context.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kAnswersAtMost = 256;

}  // namespace

void Drains::start() {
  asked_.clear();
  to_answer_.clear();
  about_queue_pairs_.reset();
  dismissed_.clear();
  dismissed_since_.clear();
}

void Drains::begin(Stag tag, MemoryRange range) {
  if (range.bytes != 0) asked_.push_back(Asked{.tag = tag, .number = ++last_number_, .range = range});
}

/// An answer says nothing about a queue pair that was dismissed after its question had left.
void Drains::begin(QpNumber queue_pair) {
  if (!about_queue_pairs_) about_queue_pairs_ = Asked{.number = ++last_number_};
  (about_queue_pairs_->asked ? dismissed_since_ : dismissed_).insert(queue_pair.value);
}

bool Drains::covers(MemoryRange range) const {
  return std::any_of(asked_.begin(), asked_.end(), [&](const Asked& asked) { return asked.range.overlaps(range); });
}

bool Drains::covers(QpNumber queue_pair) const {
  return dismissed_.contains(queue_pair.value) || dismissed_since_.contains(queue_pair.value);
}

void Drains::take(const Cell& cell) {
  if (cell.opcode == Opcode::drain_request) {
    const bool known = std::any_of(to_answer_.begin(), to_answer_.end(),
                                   [&](const ToAnswer& due) { return due.number == cell.generation; });
    if (known) return;
    if (to_answer_.size() == kAnswersAtMost) {
      ++context_.counters.dropped_drains;
      return;
    }
    return to_answer_.push_back({cell.tag, cell.generation, context_.transfers.started()});
  }
  if (about_queue_pairs_ && cell.tag == Stag{} && cell.generation == about_queue_pairs_->number) {
    return take_answer_about_queue_pairs();
  }
  const auto answered = std::find_if(asked_.begin(), asked_.end(), [&](const Asked& asked) {
    return asked.tag == cell.tag && asked.number == cell.generation;
  });
  if (answered == asked_.end()) return;
  AsyncEvent event;
  event.kind = AsyncEventKind::memory_drained;
  event.path = path_.number;
  event.tag = answered->tag;
  asked_.erase(answered);
  ++context_.counters.drains_completed;
  context_.report(event);
}

void Drains::take_answer_about_queue_pairs() {
  const Numbers drained = std::exchange(dismissed_, std::exchange(dismissed_since_, {}));
  about_queue_pairs_.reset();
  if (!dismissed_.empty()) about_queue_pairs_ = Asked{.number = ++last_number_};
  for (const std::uint32_t number : drained) {
    ++context_.counters.drains_completed;
    if (dismissed_.contains(number)) continue;  // it has left a second connection meanwhile
    AsyncEvent event;
    event.kind = AsyncEventKind::queue_pair_drained;
    event.path = path_.number;
    event.queue_pair = QpNumber{number};
    context_.report(event);
  }
}

std::size_t Drains::push_due() {
  std::size_t sent = 0;
  std::erase_if(to_answer_, [&](const ToAnswer& due) {
    const bool busy = path_.direct != nullptr &&
                      context_.transfers.busy_with(path_.direct->bridge.peer_window(), due.tag, due.transfers);
    const bool answer = !busy && send(Opcode::drain_acknowledge, due.tag, due.number);
    sent += answer ? 1 : 0;
    return answer;
  });
  for (Asked& asked : asked_) sent += ask(asked) ? 1 : 0;
  if (about_queue_pairs_) sent += ask(*about_queue_pairs_) ? 1 : 0;
  return sent;
}

/// If it is time. True: the question has left.
bool Drains::ask(Asked& asked) {
  if (context_.now < asked.ask_again) return false;
  asked.refused = !send(Opcode::drain_request, asked.tag, asked.number);
  if (asked.refused) return false;
  asked.asked = true;
  asked.ask_again = context_.now + context_.options.ack_timeout;
  return true;
}

/// On the control lane, which no queue pair can fill with data.
bool Drains::send(Opcode opcode, Stag tag, std::uint32_t number) {
  Cell cell;
  cell.opcode = opcode;
  cell.tag = tag;
  cell.generation = number;
  return send_cell(context_, path_, VirtualLane::control, cell);
}

Time Drains::next_deadline() const {
  // A question that has found no room waits for the link, which wakes this end when the peer gives some.
  const bool lane_is_full = path_.link.wants_room(VirtualLane::control);
  Time deadline = kNever;
  const auto consider = [&](const Asked& asked) {
    if (asked.refused && lane_is_full) return;
    deadline = std::min(deadline, std::max(asked.ask_again, context_.now));
  };
  std::ranges::for_each(asked_, consider);
  if (about_queue_pairs_) consider(*about_queue_pairs_);
  return deadline;
}

}  // namespace splitnic::fabric
