#include "fabric/adapter/drains.h"

#include <algorithm>

#include "fabric/adapter/context.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kAnswersAtMost = 256;

}  // namespace

void Drains::start() {
  asked_.clear();
  to_answer_.clear();
}

void Drains::begin(Stag tag, MemoryRange range) {
  if (range.bytes != 0) asked_.push_back(Asked{tag, ++last_number_, range, QpNumber{}, Time::min()});
}

void Drains::begin(QpNumber queue_pair) {
  asked_.push_back(Asked{Stag{}, ++last_number_, MemoryRange{}, queue_pair, Time::min()});
}

bool Drains::covers(MemoryRange range) const {
  return std::any_of(asked_.begin(), asked_.end(), [&](const Asked& asked) { return asked.range.overlaps(range); });
}

bool Drains::covers(QpNumber queue_pair) const {
  return std::any_of(asked_.begin(), asked_.end(), [&](const Asked& asked) { return asked.queue_pair == queue_pair; });
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
  const auto answered = std::find_if(asked_.begin(), asked_.end(), [&](const Asked& asked) {
    return asked.tag == cell.tag && asked.number == cell.generation;
  });
  if (answered == asked_.end()) return;
  const bool of_memory = answered->tag != Stag{};
  AsyncEvent event;
  event.kind = of_memory ? AsyncEventKind::memory_drained : AsyncEventKind::queue_pair_drained;
  event.path = path_.number;
  event.tag = answered->tag;
  event.queue_pair = answered->queue_pair;
  asked_.erase(answered);
  ++context_.counters.drains_completed;
  // A queue pair may have left a second connection meanwhile.
  if (of_memory || !covers(event.queue_pair)) context_.report(event);
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
  for (Asked& asked : asked_) {
    if (context_.now < asked.ask_again) continue;
    asked.refused = !send(Opcode::drain_request, asked.tag, asked.number);
    if (asked.refused) continue;
    asked.ask_again = context_.now + context_.options.ack_timeout;
    ++sent;
  }
  return sent;
}

/// On the control lane, which no queue pair can fill with data.
bool Drains::send(Opcode opcode, Stag tag, std::uint32_t number) {
  Cell cell;
  cell.opcode = opcode;
  cell.tag = tag;
  cell.generation = number;
  return send_cell(context_, path_, VirtualLane::control, cell);
}

/// A question that has found no room waits for the link, which wakes this end when the peer gives some.
Time Drains::next_deadline() const {
  const bool lane_is_full = path_.link.wants_room(VirtualLane::control);
  Time deadline = kNever;
  for (const Asked& asked : asked_) {
    if (asked.refused && lane_is_full) continue;
    deadline = std::min(deadline, std::max(asked.ask_again, context_.now));
  }
  return deadline;
}

}  // namespace splitnic::fabric
