#include "fabric/adapter/path_turns.h"

#include <algorithm>

#include "fabric/adapter/path.h"

namespace splitnic::fabric {

void PathTurns::add(Path& path) {
  ++paths_;
  busy_.reserve(paths_);
  asked_.reserve(paths_);
  looks_.reserve(kMostLooks);
  ask_again(path);
  attend(path);
}

void PathTurns::remove(Path& path) {
  --paths_;
  note_armed(path);  // nobody asks it any more
  std::erase(busy_, &path);
  std::erase(looks_, &path);
}

/// While this end sleeps, its busy links stay armed, too, and rearm() looks after them.
void PathTurns::join(Path& path) {
  path.turn.busy = true;
  busy_.push_back(&path);
  const bool armed = path.turn.asked_at == PathTurn::kNowhere;
  if (!armed || asleep_) return;
  path.link.disarm();
  ask_again(path);
}

/// The path is about to be idle. False: something has come in meanwhile.
bool PathTurns::leave_armed(Path& path) {
  if (path.turn.asked_at == PathTurn::kNowhere) return true;
  if (!path.link.prepare_sleep()) return false;
  if (path.link.stays_armed()) {
    note_armed(path);
  } else {
    path.link.disarm();
  }
  return true;
}

void PathTurns::begin(Time now, std::span<const std::unique_ptr<Path>> all, bool arm) {
  if (all_busy()) return looks_.clear();
  if (paths_ > kAlwaysBusy) {
    std::size_t kept = 0;
    for (Path* path : busy_) {
      PathTurn& turn = path->turn;
      if (turn.attended || path->owes()) turn.busy_until = now + kLinger;
      turn.attended = false;
      turn.busy = now < turn.busy_until;
      if (!turn.busy && arm && !leave_armed(*path)) {
        turn.busy = true;
        turn.busy_until = now + kLinger;
      }
      if (turn.busy) busy_[kept++] = path;
    }
    busy_.resize(kept);
  }
  choose(now, all, arm ? kLookAtArmedEvery : kLookEvery);
}

void PathTurns::choose(Time now, std::span<const std::unique_ptr<Path>> all, Duration look_every) {
  looks_.clear();
  if (busy_.size() == paths_) return;
  std::size_t steps = kMostLooks;
  if (busy_.empty() || now - looked_at_ >= kMostLooks * look_every) {
    looked_at_ = now;
  } else {
    for (steps = 0; now - looked_at_ >= look_every; ++steps) looked_at_ += look_every;
  }
  for (steps = std::min(steps, all.size()); steps != 0; --steps) {
    last_ = last_ + 1 < all.size() ? last_ + 1 : 0;
    Path* path = all[last_].get();
    if (path != nullptr && !path->turn.busy) looks_.push_back(path);
  }
}

void PathTurns::polled(Path& path) {
  const bool armed = path.turn.asked_at == PathTurn::kNowhere;
  if (armed && !path.link.stays_armed()) ask_again(path);
}

void PathTurns::ask_again(Path& path) {
  path.turn.asked_at = asked_.size();
  asked_.push_back(&path);
}

void PathTurns::note_armed(Path& path) {
  const std::size_t at = path.turn.asked_at;
  if (at == PathTurn::kNowhere) return;
  asked_[at] = asked_.back();
  asked_[at]->turn.asked_at = at;
  asked_.pop_back();
  path.turn.asked_at = PathTurn::kNowhere;
}

bool PathTurns::prepare_sleep() {
  if (asleep_) disarm();
  for (std::size_t i = asked_.size(); i-- > 0;) {  // backwards: one that is armed leaves its place to the last
    Path& path = *asked_[i];
    if (!path.link.prepare_sleep()) {
      attend(path);
      disarm();
      return false;
    }
    if (path.link.stays_armed()) note_armed(path);
  }
  asleep_ = true;
  return true;
}

bool PathTurns::rearm() {
  const auto rearmed = [this](Path& path) {
    const bool good = path.link.rearm();
    if (!good) attend(path);
    return good;
  };
  for (std::size_t i = asked_.size(); i-- > 0;) {
    Path& path = *asked_[i];
    if (!rearmed(path)) return false;
    if (path.link.stays_armed()) note_armed(path);
  }
  for (Path* path : busy_) {
    if (path->turn.asked_at != PathTurn::kNowhere) continue;  // has been asked
    if (!rearmed(*path)) return false;
    polled(*path);
  }
  return true;
}

void PathTurns::disarm() {
  asleep_ = false;
  for (Path* path : asked_) {
    path->link.disarm();
    if (!path->link.up()) attend(*path);  // a handshake goes on at its deadlines
  }
  for (Path* path : busy_) {
    if (path->turn.asked_at != PathTurn::kNowhere) continue;
    path->link.disarm();
    ask_again(*path);
  }
}

Time PathTurns::next_link_deadline(Time now, bool outstanding) const {
  Time deadline = kNever;
  for (const Path* path : asked_) deadline = std::min(deadline, path->link.next_deadline(now, outstanding));
  for (const Path* path : busy_) {
    if (path->turn.asked_at != PathTurn::kNowhere) continue;
    deadline = std::min(deadline, path->link.next_deadline(now, outstanding));
  }
  return deadline;
}

}  // namespace splitnic::fabric
