#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/random.h"
#include "sealed_link.h"

namespace splitnic::fabric::test {

/// Carries cells between two ends, loses some, sends some twice, and holds some back, so that later ones overtake them.
class LossyRelay {
 public:
  /// random: of the losses; lent.
  LossyRelay(RandomSource& random, unsigned lost_permille, unsigned doubled_permille, unsigned late_permille = 0)
      : random_(random), lost_(lost_permille), doubled_(doubled_permille), late_(late_permille) {}

  /// Returns how many cells were there. Rings nobody.
  std::size_t carry(SealedLink& from, SealedLink& to) {
    std::size_t carried = deliver_late(to);
    for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
      SealedLink::Queue& waiting = from.out(lane);
      for (; !waiting.empty(); ++carried) {
        const SealedLink::Record bytes = std::move(waiting.front());
        waiting.pop_front();
        if (random_.below(1000) < lost_) continue;
        const bool twice = random_.below(1000) < doubled_;
        for (int i = 0; i < (twice ? 2 : 1); ++i) {
          if (late_ != 0 && random_.below(1000) < late_) {
            held_.push_back({&to, lane, bytes, 1 + random_.below(8)});
          } else {
            to.in(lane).push_back(bytes);
          }
        }
      }
    }
    return carried;
  }
  /// Nothing is held back.
  [[nodiscard]] bool empty() const { return held_.empty(); }
  /// An epoch is over: nothing of it may come later.
  void clear() { held_.clear(); }

 private:
  struct Held {
    SealedLink* to;
    VirtualLane lane;
    SealedLink::Record bytes;
    std::uint64_t turns;
  };

  std::size_t deliver_late(SealedLink& to) {
    const auto due = [&to](Held& held) { return held.to == &to && --held.turns == 0; };
    std::size_t delivered = 0;
    for (auto held = held_.begin(); held != held_.end();) {
      if (!due(*held)) {
        ++held;
        continue;
      }
      to.in(held->lane).push_back(std::move(held->bytes));
      held = held_.erase(held);
      ++delivered;
    }
    return delivered;
  }

  RandomSource& random_;
  unsigned lost_;
  unsigned doubled_;
  unsigned late_;
  std::vector<Held> held_;
};

}  // namespace splitnic::fabric::test
