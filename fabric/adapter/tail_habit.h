#pragma once

#include <cstdint>

#include "fabric/adapter/counted_poll.h"

namespace splitnic::fabric {

/// When a poll looks at a lane's tail line, into which the peer stores what it has taken. Each look takes the line from
/// the peer, whose next store into it has to fetch it back; and what the peer stores after that, its answer, waits for
/// it. But an answer says the same in its slot (SlotFields::settled). So after each slot some quick polls leave the
/// line alone, if slots have soon followed what it said. A lane whose peer takes and does not answer is looked at by
/// every poll. Thread: the adapter's owner.
class TailHabit {
 public:
  /// Polls, at most, for which what the line says waits because of this.
  static constexpr std::uint64_t kPolls = 16;
  /// Slots that came so soon, one after the other, before the line is left alone.
  static constexpr unsigned kSoonEnough = 4;

  /// Slots have come in.
  void slots_came(const CountedPoll& poll) {
    const bool late = line_said_ && poll.number - said_at_ > kPolls;
    came_soon_ = late ? 0 : came_soon_ + (came_soon_ < kSoonEnough ? 1 : 0);
    line_said_ = false;
    came_at_ = poll.number;
  }
  /// The line says more than the slots have said.
  void line_said_more(const CountedPoll& poll) {
    if (line_said_) came_soon_ = 0;
    line_said_ = true;
    said_at_ = poll.number;
  }
  /// This poll leaves the line alone.
  [[nodiscard]] bool leaves_alone(const CountedPoll& poll) const {
    return poll.quick && came_soon_ == kSoonEnough && poll.number - came_at_ < kPolls;
  }

 private:
  std::uint64_t came_at_ = 0;
  std::uint64_t said_at_ = 0;
  unsigned came_soon_ = 0;
  bool line_said_ = false;  // and no slot has come since
};

}  // namespace splitnic::fabric
