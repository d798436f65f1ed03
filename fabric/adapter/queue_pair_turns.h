#pragma once

#include <algorithm>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/time.h"
#include "fabric/adapter/path.h"
#include "fabric/adapter/queue_pair.h"

namespace splitnic::fabric {

/// Which queue pairs a poll looks at.
///
///   a queue pair is   because                                                          a poll looks at it
///   active            it was given something, or something came in for it              always, until nothing is left
///   waiting           all that is left is an answer of the peer's, or a time to come   at its deadline
///   idle              nothing is left                                                  never
///
/// So nothing in a poll grows with those that wait. They are ordered by look_at, which is the deadline or earlier: a
/// queue pair that waits again soon keeps the place that it had, so that a message costs no ordering. What is found
/// too early there gets its right place. A path with waiting queue pairs stays busy.
/// Thread: the adapter's owner. No allocation but in reserve().
class QueuePairTurns {
 public:
  /// A turn is of what a queue pair answers, or of what it asks.
  struct Turn {
    QueuePair& queue_pair;
    bool answers;
  };

  QueuePairTurns() = default;
  QueuePairTurns(const QueuePairTurns&) = delete;
  QueuePairTurns& operator=(const QueuePairTurns&) = delete;
  ~QueuePairTurns() { deadlines_.clear(); }

  /// Room for so many queue pairs.
  void reserve(std::size_t queue_pairs) { active_.reserve(queue_pairs); }
  [[nodiscard]] const std::vector<QueuePair*>& active() const { return active_; }
  [[nodiscard]] bool any_waiting() const { return waiting_ != 0; }
  /// Not after the first deadline of a waiting one; perhaps before.
  [[nodiscard]] Time earliest() const { return earliest_; }
  /// The first deadline of a waiting one.
  [[nodiscard]] Time first_deadline();

  void activate(QueuePair& queue_pair) {
    if (queue_pair.turn.state == QueuePairTurn::State::active) return;
    leave_waiting(queue_pair);
    queue_pair.turn.state = QueuePairTurn::State::active;
    active_.push_back(&queue_pair);
  }
  /// Activates it if it waits: what it waited for may have come.
  void end_wait(QueuePair& queue_pair) {
    if (queue_pair.turn.state == QueuePairTurn::State::waiting) activate(queue_pair);
  }
  /// Activates the waiting ones whose deadline has come.
  void activate_due(Time now) {
    if (earliest_ <= now) look_after_due(now);
  }
  /// The next turn: they go round the active queue pairs, of which there is at least one. Each has two.
  [[nodiscard]] Turn next() {
    turn_ = (turn_ + 1) % (2 * active_.size());
    return {*active_[turn_ / 2], turn_ % 2 == 0};
  }
  /// Whether those that are active stay so, wait or become idle. left(QueuePair&) says until when it waits, or
  /// QueuePairTurn::kStays or kIdle.
  template <class Left>
  void release(Left&& left) {
    std::size_t kept = 0;
    const std::size_t whose_turn = turn_ / 2;
    for (std::size_t position = 0; position < active_.size(); ++position) {
      QueuePair& queue_pair = *active_[position];
      const Time until = left(queue_pair);
      // Who leaves has no more turns: the next one's two come.
      if (position == whose_turn) turn_ = until == QueuePairTurn::kStays ? 2 * kept + turn_ % 2 : 2 * kept - 1;
      if (until == QueuePairTurn::kStays) {
        active_[kept++] = &queue_pair;
      } else if (until == QueuePairTurn::kIdle) {
        queue_pair.turn.state = QueuePairTurn::State::idle;
      } else {
        wait(queue_pair, until);
      }
    }
    active_.resize(kept);
  }
  /// Calls visit(QueuePair&) for each waiting one; it may activate it.
  template <class Visit>
  void visit_waiting(Visit&& visit) {
    for (QueuePair& queue_pair : deadlines_) {
      if (queue_pair.turn.state == QueuePairTurn::State::waiting) visit(queue_pair);
    }
  }
  /// The queue pair is about to be destroyed.
  void forget(QueuePair& queue_pair);

 private:
  struct LookedAtEarlier {
    bool operator()(const QueuePair& one, const QueuePair& other) const {
      return one.turn.look_at < other.turn.look_at;
    }
  };
  using Deadlines = boost::intrusive::multiset<
      QueuePair,
      boost::intrusive::member_hook<QueuePair, boost::intrusive::set_member_hook<>, &QueuePair::in_deadlines>,
      boost::intrusive::compare<LookedAtEarlier>, boost::intrusive::constant_time_size<false>>;

  void wait(QueuePair& queue_pair, Time until) {
    QueuePairTurn& turn = queue_pair.turn;
    turn.state = QueuePairTurn::State::waiting;
    turn.until = until;
    ++waiting_;
    ++queue_pair.path->waiting;
    const bool in_place = queue_pair.in_deadlines.is_linked() && turn.look_at <= until;
    if (!in_place) place(queue_pair);
  }
  void leave_waiting(QueuePair& queue_pair) {
    if (queue_pair.turn.state != QueuePairTurn::State::waiting) return;
    --waiting_;
    --queue_pair.path->waiting;
  }
  void place(QueuePair& queue_pair);
  void take_out(QueuePair& queue_pair);
  void look_after_due(Time now);

  std::vector<QueuePair*> active_;
  std::size_t turn_ = 0;  // the last: 2 x position in active_, + 1: of its requests rather than its answers
  Deadlines deadlines_;   // the waiting ones, and some that have waited
  std::size_t waiting_ = 0;
  Time earliest_ = kNever;
};

}  // namespace splitnic::fabric
