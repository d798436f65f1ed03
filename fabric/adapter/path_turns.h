#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/adapter/path.h"

namespace splitnic::fabric {

/// Which paths a poll looks at, and which links are armed. So neither polls nor sleeps do work for paths where nothing
/// happens.
///
///   a path is   because                                                a poll looks at it
///   busy        something was posted, came in, or is awaited, now or   always
///               up to kLinger ago; or the adapter has few paths
///   idle        nothing was                                            when its turn comes
///
/// A link whose path becomes idle is armed, if the adapter polls the links: then the peer rings, and the thread that
/// watches the descriptors calls attend(). The turn, which goes round all paths, is for what no doorbell tells, and for
/// adapters whose owner polls the links. While other paths are busy, the polls look at one idle path each kLookEvery
/// (armed links: kLookAtArmedEvery), at most kMostLooks in one poll; while none is, at kMostLooks in each poll. So what
/// comes without a doorbell waits for at most that time for each path, and as many polls as kMostLooks fits into the
/// paths.
///
/// The link of an idle path stays armed from then on, also from one sleep to the next (CellLink::stays_armed). A sleep
/// arms the others.
/// Thread: the adapter's owner. No allocation but in add(). Source: design, "Few shared lines".
class PathTurns {
 public:
  /// With so few paths all are busy: looking costs less than choosing.
  static constexpr std::size_t kAlwaysBusy = ChannelAdapter::kAlwaysPolledPaths;
  static constexpr std::size_t kMostLooks = 16;
  static constexpr Duration kLookEvery = std::chrono::microseconds(4);
  /// A look costs about 1 us, because nothing of an idle path is in the cache.
  static constexpr Duration kLookAtArmedEvery = std::chrono::microseconds(100);
  static constexpr Duration kLinger = std::chrono::microseconds(500);

  /// The path begins busy. Its link is not armed.
  void add(Path& path);
  void remove(Path& path);
  /// Something has happened, or is about to: the next polls look at the path.
  void attend(Path& path) {
    path.turn.attended = true;
    path.turn.announced = false;
    if (!path.turn.busy) [[unlikely]]
      join(path);
  }
  /// A poll begins. all: every path, by number - 1; null: none. arm: links of paths that become idle.
  void begin(Time now, std::span<const std::unique_ptr<Path>> all, bool arm);
  /// Grows, also while somebody walks it: by index.
  [[nodiscard]] const std::vector<Path*>& busy() const { return busy_; }
  /// Every poll looks at every path.
  [[nodiscard]] bool all_busy() const { return paths_ <= kAlwaysBusy && busy_.size() == paths_; }
  /// The idle ones whose turn it is in this poll. Some may have become busy since it began.
  [[nodiscard]] const std::vector<Path*>& looks() const { return looks_; }
  /// The link of an idle path was polled: perhaps it is not armed any more.
  void polled(Path& path);

  /// Arms every link that is not, by CellLink::prepare_sleep(). False: something came in, and no busy link is armed.
  [[nodiscard]] bool prepare_sleep();
  /// CellLink::rearm() for every link that may need it. False: something came in; disarm() comes before it is dealt
  /// with.
  [[nodiscard]] bool rearm();
  /// Back from sleep. The links of idle paths stay armed.
  void disarm();
  [[nodiscard]] Time next_link_deadline(Time now, bool outstanding) const;

 private:
  void join(Path& path);
  [[nodiscard]] bool leave_armed(Path& path);
  void ask_again(Path& path);
  void note_armed(Path& path);
  void choose(Time now, std::span<const std::unique_ptr<Path>> all, Duration look_every);

  std::vector<Path*> busy_;
  std::vector<Path*> looks_;
  std::vector<Path*> asked_;  // at each sleep: their links are not armed, or have deadlines of their own
  std::size_t paths_ = 0;
  std::size_t last_ = 0;  // position in `all` of the path that had its turn last
  Time looked_at_{};
  bool asleep_ = false;  // prepare_sleep() has succeeded, and nobody has disarmed since
};

}  // namespace splitnic::fabric
