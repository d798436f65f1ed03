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
///   busy        its session is not up, owes or awaits something, or had work  always
///               up to kLinger ago; or nobody watches its doorbell
///   quiet       none of these                                                 no
///
/// The link of a quiet host stays armed, so that the host rings for whatever it sends. A quiet host becomes busy when
/// its doorbell rings, when its session's deadline comes (the heartbeat, each second), and by attend(): the unit is
/// about to send to it. While the unit is awake, it asks the watch each kAskEvery.
/// Thread: the unit's. No allocation but in add(). The same idea for paths: fabric::PathTurns.
class HostTurns {
 public:
  static constexpr Duration kLinger = std::chrono::microseconds(500);
  static constexpr Duration kAskEvery = std::chrono::microseconds(50);
  /// With a deadline so near, a host does not become quiet.
  static constexpr Duration kSoon = std::chrono::milliseconds(2);

  /// watch: lent, outlives this. Null: every host is always busy.
  explicit HostTurns(DoorbellWatch* watch) : watch_(watch) {}

  /// host: lent until remove(). It begins busy.
  void add(AttachedHost& host, Time now);
  void remove(AttachedHost& host);
  /// Something has happened or is about to: the next polls visit the host.
  void attend(AttachedHost& host, Time now);
  void attend_all(Time now);
  /// A poll begins: what has rung, and what is due, becomes busy. hosts: by place, null where free.
  void begin(Time now, std::span<const std::unique_ptr<AttachedHost>> hosts);
  /// Grows, also while somebody walks it: by index.
  [[nodiscard]] const std::vector<AttachedHost*>& busy() const { return busy_; }
  [[nodiscard]] std::size_t quiet() const { return quiet_.size(); }
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
  [[nodiscard]] bool falls_quiet(AttachedHost& host, Time now);
  void attend_rung(Time now, std::span<const std::unique_ptr<AttachedHost>> hosts);
  void attend_due(Time now);

  DoorbellWatch* watch_;
  std::vector<AttachedHost*> busy_;
  std::vector<AttachedHost*> quiet_;
  Time earliest_ = kNever;  // no quiet host is due before
  Time ask_next_{};
};

}  // namespace splitnic::iounit
