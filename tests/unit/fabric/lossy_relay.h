#pragma once

#include <cstddef>
#include <vector>

#include "common/random.h"
#include "fabric/bridge/link.h"

namespace splitnic::fabric::test {

/// Sits between two ends, each on a bridge of its own, hands their cells on, loses some and sends some twice.
class LossyRelay {
 public:
  /// random: of the losses; lent.
  LossyRelay(RandomSource& random, unsigned lost_permille, unsigned doubled_permille)
      : random_(random), lost_(lost_permille), doubled_(doubled_permille) {}

  /// Returns how many cells were there. Rings nobody.
  std::size_t carry(FabricLink& from, FabricLink& to) {
    std::size_t carried = 0;
    for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
      FifoReceiver& receiver = from.receiver(lane);
      while (const auto front = receiver.front()) {
        std::vector<std::byte> bytes(front->size());
        front->copy_out(0, bytes);
        receiver.pop();
        ++carried;
        if (random_.below(1000) < lost_) continue;
        const bool twice = random_.below(1000) < doubled_;
        for (int i = 0; i < (twice ? 2 : 1); ++i) static_cast<void>(to.sender(lane).send({bytes}));  // full: lost too
      }
      receiver.push_tail(true);
    }
    return carried;
  }

 private:
  RandomSource& random_;
  unsigned lost_;
  unsigned doubled_;
};

}  // namespace splitnic::fabric::test
