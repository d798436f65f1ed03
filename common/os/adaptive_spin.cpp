#include "common/os/adaptive_spin.h"

#include <algorithm>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <numeric>

namespace splitnic::os {

SpinCounters& SpinCounters::operator+=(const SpinCounters& other) {
  using Members = boost::describe::describe_members<SpinCounters, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Members>([&](auto member) { this->*member.pointer += other.*member.pointer; });
  return *this;
}

Duration AdaptiveSpin::begin_pause(Time now, const MovedFrames& moved) {
  const Duration most = max_ * kMostSpinsAhead;
  // In this time one percent fills the allowance; a longer one could overflow.
  const Duration passed = std::min(now - allowance_of_, most * 100);
  allowance_of_ = now;
  allowance_ = std::min(allowance_ + passed * budget_ / 100, most);
  return !long_frames_.prevail(moved) && allowance_ > Duration(0) ? best_ : Duration(0);
}

void AdaptiveSpin::spun_in_vain(Duration time) { allowance_ -= time; }

void AdaptiveSpin::end_pause(Duration pause) {
  std::size_t index = 0;
  while (index < kLengths && pause > length(index)) ++index;
  for (std::int64_t& weight : pauses_) weight -= weight / kMemory;
  pauses_[index] += kWeight;
  best_ = best_length();
}

Duration AdaptiveSpin::best_length() const {
  std::int64_t in_vain = std::accumulate(pauses_.begin(), pauses_.end(), std::int64_t{0});
  std::int64_t saved = 0;
  Duration most{};
  Duration best{};
  for (std::size_t index = 0; index < kLengths; ++index) {
    saved += pauses_[index];
    in_vain -= pauses_[index];
    const Duration gain = saved * kWorthOfWakeUp * max_ - in_vain * length(index);
    if (gain > most) most = gain, best = length(index);
  }
  return best;
}

}  // namespace splitnic::os
