#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/time.h"
#include "iounit/attached_host.h"
#include "iounit/doorbell_watch.h"

namespace splitnic::iounit {

/// Which hosts a poll of the unit visits, so that neither polls nor sleeps do work for hosts where nothing happens.
///
///   a host is   because                                                       a poll visits it
///   busy        it had work, or something was sent to it, up to kLinger ago;  always
///               it owes an answer, and was quiet up to kPatience ago; a
///               deadline of its session is near; its session ends; or
///               nobody watches its doorbell
///   quiet       none of these                                                 no
///
/// The link of a quiet host stays armed, so that the host rings for whatever it sends; before the link is up, it
/// rings for each step. A quiet host becomes busy when its doorbell rings, when its session's deadline comes
/// (the heartbeat, each second; sooner, if an answer is outstanding), and by attend(): the unit is about to send to it.
/// So a host that was stopped, or takes long to start, costs the others nothing. While the unit is awake, it asks the
/// watch each kAskEvery. Thread: the unit's. No allocation but in add(). The same idea for paths: fabric::PathTurns.
class HostTurns {
 public:
  static constexpr Duration kLinger = std::chrono::microseconds(500);
  /// An answer usually comes within this time. Without it, a host that is asked would become quiet, with a deadline for
  /// the next doorbell, and wake the unit then, although the answer has come long before.
  static constexpr Duration kPatience = std::chrono::milliseconds(2);
  static constexpr Duration kAskEvery = std::chrono::microseconds(50);
  /// With a deadline so near, a host does not become quiet.
  static constexpr Duration kSoon = std::chrono::milliseconds(2);

  /// watch: lent, outlives this. Null: every host is always busy.
  explicit HostTurns(DoorbellWatch* watch) : watch_(watch) {}

  /// host: lent until remove(). It begins busy.
  void add(AttachedHost& host, Time now);
  void remove(AttachedHost& host);
  /// Something is about to happen: the polls visit the host until nothing has for kLinger.
  void attend(AttachedHost& host, Time now);
  void attend_all(Time now);
  /// A poll begins: what has rung, and what is due, becomes busy. hosts: by place, null where free.
  void begin(Time now, std::span<const std::unique_ptr<AttachedHost>> hosts);
  /// Grows, also while somebody walks it: by index.
  [[nodiscard]] const std::vector<AttachedHost*>& busy() const { return busy_; }
  [[nodiscard]] std::size_t quiet() const { return quiet_.size(); }
  /// Those of them that are up. A host goes up and down while it is busy.
  [[nodiscard]] std::size_t quiet_up() const { return quiet_up_; }
  /// A host that has work stays busy.
  void worked(AttachedHost& host, Time now);
  /// A host that rests: its doorbell can wait until it is listened to again.
  void listen(AttachedHost& host, bool wanted);
  /// A poll ends: hosts without work become quiet. rests: whether a host may not be polled now.
  template <class Rests>
  void end(Time now, Rests&& rests) {
    std::size_t kept = 0;
    for (AttachedHost* const host : busy_) {
      if (!rests(*host) && falls_quiet(*host, now)) continue;
      host->turn().at = kept;
      busy_[kept++] = host;
    }
    busy_.resize(kept);
  }
  /// Back from sleep: the next begin() asks the watch.
  void awake() { ask_next_ = Time{}; }

  /// When the first quiet host is due.
  [[nodiscard]] Time next_deadline() const { return earliest_; }
  void collect_descriptors(std::vector<int>& out) const;

 private:
  /// The next poll visits the host.
  void visit(AttachedHost& host, Time now);
  /// From either list.
  void take_out(AttachedHost& host);
  [[nodiscard]] bool falls_quiet(AttachedHost& host, Time now);
  void attend_rung(Time now, std::span<const std::unique_ptr<AttachedHost>> hosts);
  void attend_due(Time now);

  DoorbellWatch* watch_;
  std::vector<AttachedHost*> busy_;
  std::vector<AttachedHost*> quiet_;
  std::size_t quiet_up_ = 0;
  Time earliest_ = kNever;  // no quiet host is due before
  Time ask_next_{};
};

}  // namespace splitnic::iounit
