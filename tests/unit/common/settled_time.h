#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>

#include "common/check.h"
#include "common/time.h"

namespace splitnic::test {

/// Simulated time of a bench whose parts are polled in one thread: it goes by only when nobody has anything to do, and
/// to the next moment at which somebody has.
class SettledTime {
 public:
  virtual ~SettledTime() = default;

  [[nodiscard]] Time now() const { return now_; }
  /// One poll of everybody, without time going by. Returns how much was done.
  virtual std::size_t step() = 0;
  /// Until nobody has anything to do at this time.
  void settle() {
    for (unsigned idle = 0, rounds = 0; idle < 4; ++rounds) {
      SPLITNIC_CHECK_OP(rounds, <, 10000U);
      idle = step() == 0 && quiet() ? idle + 1 : 0;
    }
  }
  /// Time goes by while nobody polls.
  void pass(Duration time) { now_ += time; }
  /// Settles at every moment within that time at which somebody has something to do.
  void run(Duration time) {
    const Time end = now_ + time;
    settle();
    while (now_ < end) {
      move_on(end);
      settle();
    }
  }
  /// False: the condition did not come true within that time.
  [[nodiscard]] bool run_until(const std::function<bool()>& condition, Duration limit = std::chrono::seconds(5)) {
    const Time end = now_ + limit;
    for (settle(); !condition(); settle()) {
      if (now_ >= end) return false;
      move_on(end);
    }
    return true;
  }

 protected:
  SettledTime() = default;
  SettledTime(const SettledTime&) = default;
  SettledTime& operator=(const SettledTime&) = default;

  /// When somebody has something to do next.
  [[nodiscard]] virtual Time next_event() const = 0;
  /// Whether nothing waits that a poll has left out.
  [[nodiscard]] virtual bool quiet() const { return true; }

 private:
  void move_on(Time end) { now_ = std::max(std::min(end, next_event()), now_ + std::chrono::microseconds(100)); }

  Time now_{std::chrono::hours(1)};
};

}  // namespace splitnic::test
