#include "fabric/adapter/queue_pair_turns.h"

namespace splitnic::fabric {

void QueuePairTurns::place(QueuePair& queue_pair) {
  if (queue_pair.in_deadlines.is_linked()) take_out(queue_pair);
  queue_pair.turn.look_at = queue_pair.turn.until;
  deadlines_.insert(queue_pair);
  earliest_ = std::min(earliest_, queue_pair.turn.look_at);
}

void QueuePairTurns::take_out(QueuePair& queue_pair) {
  deadlines_.erase(deadlines_.iterator_to(queue_pair));
  earliest_ = deadlines_.empty() ? kNever : deadlines_.begin()->turn.look_at;
}

void QueuePairTurns::look_after_due(Time now) {
  while (earliest_ <= now && !deadlines_.empty()) {
    QueuePair& first = *deadlines_.begin();
    const bool waits = first.turn.state == QueuePairTurn::State::waiting;
    if (waits && now < first.turn.until) {
      place(first);
    } else {
      take_out(first);
      if (waits) activate(first);
    }
  }
}

Time QueuePairTurns::first_deadline() {
  while (!deadlines_.empty()) {
    QueuePair& first = *deadlines_.begin();
    const bool waits = first.turn.state == QueuePairTurn::State::waiting;
    if (waits && first.turn.until == first.turn.look_at) break;
    if (waits) {
      place(first);
    } else {
      take_out(first);
    }
  }
  return earliest_;
}

void QueuePairTurns::forget(QueuePair& queue_pair) {
  leave_waiting(queue_pair);
  if (queue_pair.turn.state == QueuePairTurn::State::active) std::erase(active_, &queue_pair);
  queue_pair.turn.state = QueuePairTurn::State::idle;
  if (queue_pair.in_deadlines.is_linked()) take_out(queue_pair);
}

}  // namespace splitnic::fabric
