#include "iounit/host_turns.h"

#include <algorithm>
#include <array>

namespace splitnic::iounit {

namespace {

/// Takes the host from its list; the last one gets its position.
void leave(std::vector<AttachedHost*>& list, AttachedHost& host) {
  list[host.turn().at] = list.back();
  list[host.turn().at]->turn().at = host.turn().at;
  list.pop_back();
}

void join(std::vector<AttachedHost*>& list, AttachedHost& host) {
  host.turn().at = list.size();
  list.push_back(&host);
}

}  // namespace

void HostTurns::add(AttachedHost& host, Time now) {
  const std::size_t hosts = busy_.size() + quiet_.size() + 1;
  busy_.reserve(hosts);
  quiet_.reserve(hosts);
  host.turn() = {.busy = true, .worked_at = now, .busy_since = now};
  join(busy_, host);
  listen(host, true);
}

void HostTurns::remove(AttachedHost& host) {
  listen(host, false);
  take_out(host);
}

void HostTurns::take_out(AttachedHost& host) {
  leave(host.turn().busy ? busy_ : quiet_, host);
  if (!host.turn().busy && host.turn().quiet_up) --quiet_up_;
}

void HostTurns::attend(AttachedHost& host, Time now) {
  worked(host, now);
  visit(host, now);
}

void HostTurns::visit(AttachedHost& host, Time now) {
  if (host.turn().busy) return;
  take_out(host);
  host.turn().busy = true;
  host.turn().busy_since = now;
  join(busy_, host);
  host.note_time(now);
  host.resume(now);
}

void HostTurns::attend_all(Time now) {
  while (!quiet_.empty()) visit(*quiet_.back(), now);
}

void HostTurns::begin(Time now, std::span<const std::unique_ptr<AttachedHost>> hosts) {
  if (quiet_.empty()) {
    earliest_ = kNever;
    return;
  }
  if (now >= ask_next_) {
    ask_next_ = now + kAskEvery;
    attend_rung(now, hosts);
  }
  if (now >= earliest_) attend_due(now);
}

void HostTurns::attend_rung(Time now, std::span<const std::unique_ptr<AttachedHost>> hosts) {
  std::array<std::size_t, 64> places{};
  const std::size_t count = watch_->rung(places);
  for (const std::size_t place : std::span(places).first(count)) visit(*hosts[place], now);
  if (count == places.size()) ask_next_ = Time{};  // perhaps there are more
}

void HostTurns::attend_due(Time now) {
  earliest_ = kNever;
  for (std::size_t at = 0; at < quiet_.size();) {
    AttachedHost& host = *quiet_[at];
    if (now >= host.turn().due) {
      visit(host, now);  // another one has its position now
    } else {
      earliest_ = std::min(earliest_, host.turn().due);
      ++at;
    }
  }
}

void HostTurns::worked(AttachedHost& host, Time now) { host.turn().worked_at = now; }

void HostTurns::listen(AttachedHost& host, bool wanted) {
  HostTurn& turn = host.turn();
  if (watch_ == nullptr || turn.watched == wanted) return;
  if (wanted) {
    // All of its bridges or none.
    std::size_t watched = 0;
    turn.watched = true;
    host.each_bridge([&](const fabric::Bridge& bridge) {
      turn.watched = turn.watched && watch_->watch(bridge, host.number().value);
      if (turn.watched) ++watched;
    });
    if (turn.watched) return;
    host.each_bridge([&](const fabric::Bridge& bridge) {
      if (watched != 0) watch_->forget(bridge), --watched;
    });
  } else {
    host.each_bridge([this](const fabric::Bridge& bridge) { watch_->forget(bridge); });
    turn.watched = false;
  }
}

bool HostTurns::falls_quiet(AttachedHost& host, Time now) {
  HostTurn& turn = host.turn();
  if (!turn.watched || now - turn.worked_at < kLinger) return false;
  if (now - turn.busy_since < kPatience && host.awaits_peer()) return false;
  turn.due = host.next_deadline();
  if (turn.due - now < kSoon || !host.leave_armed()) return false;
  turn.busy = false;
  turn.quiet_up = host.up();
  if (turn.quiet_up) ++quiet_up_;
  earliest_ = std::min(earliest_, turn.due);
  join(quiet_, host);
  return true;
}

void HostTurns::collect_descriptors(std::vector<int>& out) const {
  if (watch_ != nullptr && watch_->descriptor() >= 0) out.push_back(watch_->descriptor());
}

}  // namespace splitnic::iounit
