#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core_site.h"
#include "frame_book.h"
#include "scenario.h"
#include "trace.h"

namespace splitnic::sim {

struct Limits {
  std::uint64_t steps = 20'000'000;  ///< moments of simulated time; beyond: something spins
  double fault_seconds = 0;          ///< instead of the drawn time until the heal; 0: as drawn
};

/// What a run came to.
struct Summary : SeedResult {
  std::uint64_t events = 0;
  std::uint64_t steps = 0;
  std::size_t frames = 0;
  std::uint64_t deliveries = 0;
  std::uint64_t sessions = 0;  ///< that came up
  std::uint64_t doorbells_lost = 0;
  Duration simulated{};
  Duration converged_in{};  ///< from the heal until every session was up and every setting known
  double idle_wakes_per_second = 0;
};

/// One seed's world: an I/O unit, its hosts, a bridge to each, a LAN with stations, time, traffic and faults. The cores
/// are the production's, unchanged.
///
/// A run: faults and traffic until the heal time; then nothing but lost doorbells, late and torn writes is wrong any
/// more, and the liveness verdicts are drawn: every session comes up, every frame arrives at exactly those who shall
/// have it, in time, pools fill again, cores sleep, an orderly end ends. Safety verdicts hold throughout.
class World {
 public:
  World(const Scenario& scenario, const Limits& limits, bool trace);
  ~World();

  Summary run();

 private:
  using Action = std::function<void()>;

  // world.cpp: time
  void at(Time when, Action action) { agenda_.emplace(when, std::move(action)); }
  bool step(Time until);
  /// Until `done` or `until` or a violation; true if done.
  template <class Done>
  bool run_until(Time until, Done&& done);
  void run_until(Time until);
  /// As run_until, but patience grows with every doorbell that is lost meanwhile.
  template <class Done>
  bool run_patiently(Duration patience, Done&& done);
  void count_doorbells();
  // traffic.cpp
  void plan_traffic();
  void burst();
  void burst_from(std::size_t sender);
  [[nodiscard]] SentFrame draw_frame(std::size_t sender);
  [[nodiscard]] MacAddress draw_destination(std::size_t sender);
  void draw_source(SentFrame& frame);
  void send(SentFrame frame);
  [[nodiscard]] Receivers receivers_of(const SentFrame& frame) const;
  [[nodiscard]] std::uint32_t common_mtu() const;
  // faults.cpp
  void plan_fault();
  void inject_fault();
  void change_settings(HostSite& host);
  void change_lan();
  void cut_bridge(HostSite& host);
  void crash(CoreSite& core, Duration down_for);
  void heal();
  // verdicts.cpp: after the heal
  void judge();
  void judge_doorbells();
  void judge_convergence();
  [[nodiscard]] std::string not_converged() const;
  void judge_waves();
  void plan_wave();
  void judge_arrivals(Duration patience);
  void judge_credits();
  void judge_full_pools();
  void judge_idleness();
  void judge_shutdown();

  const Scenario& scenario_;
  Limits limits_;
  SeededRandom random_;
  Time now_ = kStart;
  LostDoorbells doorbells_lost_;
  Trace trace_;
  Verdicts verdicts_;
  FrameBook book_;
  Edge edge_;
  std::vector<std::unique_ptr<HostSite>> hosts_;  // after the unit in destruction: it holds ends of their bridges
  std::unique_ptr<UnitSite> unit_;
  std::vector<CoreSite*> processes_;  // the unit and the hosts, which start and die
  std::vector<CoreSite*> cores_;      // these, and the hosts' further queues
  std::multimap<Time, Action> agenda_;
  Time heal_at_{};
  bool healed_ = false;
  Summary summary_;
};

template <class Done>
bool World::run_until(Time until, Done&& done) {
  while (verdicts_.clean() && !done()) {
    if (!step(until)) return done();
  }
  return verdicts_.clean();
}

template <class Done>
bool World::run_patiently(Duration patience, Done&& done) {
  const Time begin = now_;
  Time until = begin + patience;
  while (verdicts_.clean() && !done()) {
    if (step(until)) continue;
    const auto lost = static_cast<Duration::rep>(doorbells_lost_.since(begin));
    if (until == begin + patience + lost * kLostDoorbell) return done();
    until = begin + patience + lost * kLostDoorbell;
  }
  return verdicts_.clean();
}

}  // namespace splitnic::sim
