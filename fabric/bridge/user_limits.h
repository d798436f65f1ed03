#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "common/time.h"

namespace splitnic::fabric {

/// What the users of a listener may have and do.
struct UserLimitOptions {
  std::size_t places = 64;  ///< bridges at a time, of all users together
  /// Bridges of one user at a time, and their memory in bytes. Root and the process's own user may have all places.
  std::size_t places_per_user = 64;
  std::size_t bytes_per_user = ~std::size_t{0};
  /// A user whose bridges have ended this often within `quiet` waits before each further set-up, first pause_min, then
  /// twice as long each time, up to pause_max. The counting starts anew when none has ended for as long as `quiet`.
  std::size_t free_ends = 10;
  Duration quiet = std::chrono::minutes(1);
  Duration pause_min = std::chrono::milliseconds(10);
  Duration pause_max = std::chrono::seconds(5);
};

/// The places, memory and set-ups of a listener's users. A place is reserved before anything is made for it. A set-up
/// counts when its bridge ends: hosts that come and stay, such as all hosts of a restarted unit, are never delayed, and
/// a user who comes and goes is. A core without a clock. Thread: the owner.
class UserLimits {
 public:
  enum class Verdict { reserved, no_place, user_places, user_bytes };

  explicit UserLimits(UserLimitOptions options) : options_(options) {}

  /// The time from which the user may have the next set-up; in the past if there is no pause.
  [[nodiscard]] Time next_setup(uid_t user, Time now) const;
  /// unlimited: only the number of all places binds the user.
  [[nodiscard]] Verdict reserve(uid_t user, std::size_t bytes, bool unlimited);
  /// Gives back what reserve() reserved.
  void release(uid_t user, std::size_t bytes, Time now);

  [[nodiscard]] std::size_t places() const { return places_; }
  [[nodiscard]] std::size_t places_of(uid_t user) const;
  /// Users that have a place, or whose last end was not long ago. Any others are forgotten.
  [[nodiscard]] std::size_t users() const { return users_.size(); }

 private:
  struct User {
    std::size_t places = 0;
    std::size_t bytes = 0;
    std::deque<Time> ends;  // the last free_ends of them
    Duration pause{};
    Time next{};
  };
  void forget_quiet_users(Time now);

  UserLimitOptions options_;
  std::size_t places_ = 0;
  std::map<uid_t, User> users_;
};

}  // namespace splitnic::fabric
