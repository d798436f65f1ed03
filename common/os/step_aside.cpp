#include "common/os/step_aside.h"

#include <algorithm>

namespace splitnic::os {

bool StepAside::begin_pause(Time now, Duration worked, bool peer_waits) {
  if (worked > kConversation) {
    evidence_ = std::max(evidence_ - 1, 0);
    return false;
  }
  if (!peer_waits) return false;
  evidence_ = std::min(evidence_ + 1, kEvidence);
  if (evidence_ < kEvidence || now - left_ < stay_) return false;
  stay_ = now - left_ < 2 * stay_ ? std::min(2 * stay_, kLongestStay) : kShortestStay;
  left_ = now;
  evidence_ = 0;
  return true;
}

}  // namespace splitnic::os
