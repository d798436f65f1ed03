#include "fabric/bridge/user_limits.h"

#include <algorithm>

#include "common/check.h"

namespace splitnic::fabric {

Time UserLimits::next_setup(uid_t user, Time now) const {
  const auto found = users_.find(user);
  if (found == users_.end()) return now;
  const User& of = found->second;
  const bool quiet = of.ends.empty() || now - of.ends.back() >= options_.quiet;
  return quiet ? now : of.next;
}

UserLimits::Verdict UserLimits::reserve(uid_t user, std::size_t bytes, bool unlimited) {
  if (places_ >= options_.places) return Verdict::no_place;
  if (!unlimited && places_of(user) >= options_.places_per_user) return Verdict::user_places;
  const auto found = users_.find(user);
  const std::size_t has = found == users_.end() ? 0 : found->second.bytes;
  if (!unlimited && (bytes > options_.bytes_per_user || has > options_.bytes_per_user - bytes)) {
    return Verdict::user_bytes;
  }
  User& of = users_[user];
  ++of.places;
  of.bytes += bytes;
  ++places_;
  return Verdict::reserved;
}

void UserLimits::release(uid_t user, std::size_t bytes, Time now) {
  User& of = users_.at(user);
  SPLITNIC_CHECK_OP(of.places, >, 0U);
  SPLITNIC_CHECK_OP(of.bytes, >=, bytes);
  --of.places;
  of.bytes -= bytes;
  --places_;
  if (!of.ends.empty() && now - of.ends.back() >= options_.quiet) {
    of.ends.clear();
    of.pause = {};
  }
  of.ends.push_back(now);
  if (of.ends.size() > options_.free_ends) of.ends.pop_front();
  if (of.ends.size() == options_.free_ends && now - of.ends.front() < options_.quiet) {
    of.pause = std::clamp(2 * of.pause, options_.pause_min, options_.pause_max);
    of.next = now + of.pause;
  }
  forget_quiet_users(now);
}

std::size_t UserLimits::places_of(uid_t user) const {
  const auto found = users_.find(user);
  return found == users_.end() ? 0 : found->second.places;
}

void UserLimits::forget_quiet_users(Time now) {
  std::erase_if(users_, [&](const auto& entry) {
    const User& of = entry.second;
    return of.places == 0 && now - of.ends.back() >= options_.quiet;
  });
}

}  // namespace splitnic::fabric
