// What must be true after the heal.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "queue_site.h"

#include "world.h"

namespace splitnic::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr Duration kConvergence = seconds(3);
constexpr unsigned kWaves = 4;
// Between waves: every element used is returned, doorbells lost or not.
constexpr Duration kRest = milliseconds(600);
constexpr Duration kPatience = seconds(2);
constexpr Duration kIdle = seconds(3);
// Idle: heartbeats of both ends, settings and statistics looked at, and looking again after lost doorbells.
constexpr double kIdleWakesPerSecond = 80;
constexpr double kPollsPerWake = 16;
constexpr Duration kShutdown = seconds(1);

}  // namespace

void World::judge() {
  const std::array<void (World::*)(), 6> verdicts{&World::judge_convergence, &World::judge_waves,
                                                  &World::judge_credits,     &World::judge_full_pools,
                                                  &World::judge_idleness,    &World::judge_shutdown};
  for (const auto verdict : verdicts) {
    if (verdicts_.clean()) judge_doorbells();
    if (verdicts_.clean()) (this->*verdict)();
  }
}

/// Whatever doorbells a bridge loses, each was rung: nobody slept on records until the look every 100 ms.
void World::judge_doorbells() {
  for (const auto& host : hosts_) {
    const auto* session = host->driver() ? host->driver()->session() : nullptr;
    const iounit::AttachedHost* port = unit_->port_of(host->name());
    const std::uint64_t left_out = (session != nullptr ? session->doorbells_left_out() : 0) +
                                   (port != nullptr ? port->session().doorbells_left_out() : 0);
    if (left_out != 0) {
      verdicts_.violate(now_,
                        fmt::format("{} doorbells were left out between {} and the unit", left_out, host->name()));
    }
  }
}

/// What is still amiss on the way to every session up and every setting known; empty: nothing.
std::string World::not_converged() const {
  for (const auto& host : hosts_) {
    if (!host->up()) {
      return fmt::format("{} is not up: {}", host->name(), host->driver() ? host->driver()->state() : "dead");
    }
    const iounit::AttachedHost* port = unit_->port_of(host->name());
    if (port == nullptr) return fmt::format("{} is not up at the unit", host->name());
    const auto& settings = host->nic().current();
    if (port->interface_up() != settings.up) return fmt::format("{}'s interface is not known to be up", host->name());
    if (port->mac() != settings.mac) return fmt::format("{}'s address is not known", host->name());
    for (std::size_t group = 0; group < kGroups; ++group) {
      const MacAddress mac = group_mac(group);
      const bool wanted = settings.promiscuous || std::ranges::binary_search(settings.multicast, mac);
      if (port->filter().accepts(mac, 0) != wanted) return fmt::format("{}'s groups are not known", host->name());
    }
    if (port->promiscuous() != settings.promiscuous) {
      return fmt::format("{}'s promiscuous mode is not known", host->name());
    }
    if (!host->nic().carrier()) return fmt::format("{} has no carrier", host->name());
    if (host->driver()->queues_up() != host->wanted_queues() || port->queues_up() != host->wanted_queues()) {
      return fmt::format("{} has {} queues up, and the unit {}, of {}", host->name(), host->driver()->queues_up(),
                         port->queues_up(), host->wanted_queues());
    }
    if (host->nic().queued() > 0) return fmt::format("{} still has frames to send", host->name());
  }
  return {};
}

void World::judge_convergence() {
  const Time begin = now_;
  run_until(begin + milliseconds(1));
  if (!run_patiently(kConvergence, [this] { return not_converged().empty(); })) {
    return verdicts_.violate(now_,
                             fmt::format("{} since the heal: {}", to_text(kStart + (now_ - begin)), not_converged()));
  }
  summary_.converged_in = std::max(summary_.converged_in, now_ - begin);
  run_until(now_ + kRest);  // what was under way at the heal arrives, elements are returned
}

void World::judge_waves() {
  for (unsigned wave = 0; wave < kWaves && verdicts_.clean(); ++wave) {
    plan_wave();
    judge_arrivals(kPatience);
    run_until(now_ + kRest);
  }
}

/// A few frames from everybody to anybody, no more to each host than half its pool holds: none may be lost.
void World::plan_wave() {
  std::array<std::uint32_t, kMaxHosts> room{};
  for (std::size_t index = 0; index < hosts_.size(); ++index) {
    room[index] = std::clamp(scenario_.hosts[index].session.pool_elements / 2, 1U, 8U);
  }
  const std::size_t senders = hosts_.size() + kLanStations;
  Time when = now_;
  for (unsigned attempt = 0; attempt < 40; ++attempt) {
    const std::size_t drawn = random_.below(senders);
    SentFrame frame = draw_frame(drawn < hosts_.size() ? drawn : lan_sender(drawn - hosts_.size()));
    draw_source(frame);
    frame.judged = true;
    const Receivers receivers = receivers_of(frame);
    bool fits = true;
    for (std::size_t index = 0; index < hosts_.size(); ++index) {
      if ((receivers & receiver_bit(index)) != 0 && room[index] == 0) fits = false;
    }
    if (!fits) continue;
    for (std::size_t index = 0; index < hosts_.size(); ++index) {
      if ((receivers & receiver_bit(index)) != 0) --room[index];
    }
    when += between(random_, microseconds(1), microseconds(500));
    at(when, [this, frame] { send(frame); });
  }
}

/// All judged frames arrive, nothing is left to send.
void World::judge_arrivals(Duration patience) {
  const bool done = run_patiently(patience, [this] { return agenda_.empty() && book_.missing() == 0; });
  if (!done) verdicts_.violate(now_, book_.first_missing());
}

/// After a rest every element is with its user again.
void World::judge_credits() {
  for (const auto& host : hosts_) {
    const iounit::AttachedHost* port = unit_->port_of(host->name());
    if (port == nullptr || !host->up()) return verdicts_.violate(now_, host->name() + " is not up any more");
    const auto out = host->driver()->session()->credits();
    const auto in = port->session().credits();
    trace_.event(now_, "credits of host", out.free, out.elements);
    trace_.event(now_, "credits of unit", in.free, in.elements);
    if (out.free == out.elements && in.free == in.elements) continue;
    verdicts_.violate(now_, fmt::format("elements did not return: {} holds {} of {}, the unit {} of {}", host->name(),
                                        out.free, out.elements, in.free, in.elements));
  }
}

/// As many frames at once as there are elements, to and from each host in turn: none is lost.
void World::judge_full_pools() {
  for (auto& host : hosts_) host->nic().change([](host::NicSettings& settings) { settings.promiscuous = false; });
  judge_convergence();  // a promiscuous host would want as many elements as all others together
  // While others compete, no sender takes all elements (iounit::ReceiverShare).
  run_until(now_ + iounit::ReceiverShareOptions{}.competes_for);
  for (std::size_t index = 0; index < hosts_.size() && verdicts_.clean(); ++index) {
    HostSite& host = *hosts_[index];
    const iounit::AttachedHost* port = unit_->port_of(host.name());
    if (port == nullptr) return verdicts_.violate(now_, host.name() + " is not up any more");
    constexpr std::uint32_t kWithoutPool = 16;
    constexpr std::uint32_t kMostAtOnce = 300;  // a host that was in a rush has several pools
    const bool direct = port->session().adapter_counters().segmented_writes == 0;
    const std::uint32_t elements = port->session().credits().elements;
    // The frames of one flow take one queue, whichever that is, and a further one may have fewer pools than the first.
    constexpr std::uint32_t kIntoOneQueue = 4;
    const bool several = host.wanted_queues() > 1;
    const std::uint32_t in = several         ? kIntoOneQueue
                             : elements == 0 ? kWithoutPool
                                             : std::min(elements, direct ? kMostAtOnce : kWithoutPool);
    SentFrame frame;
    frame.judged = true;
    frame.bytes = 60;
    for (std::uint32_t i = 0; i < in; ++i) {
      frame.sender = lan_sender(0);
      frame.source = lan_station_mac(0);
      frame.destination = host.nic().current().mac;
      at(now_, [this, frame] { send(frame); });
    }
    const std::uint32_t elements_out = host.driver()->session()->credits().elements;
    const std::uint32_t out = several ? kIntoOneQueue : elements_out > 0 ? elements_out : kWithoutPool;
    for (std::uint32_t i = 0; i < out; ++i) {
      frame.sender = index;
      frame.source = host.nic().current().mac;
      frame.destination = lan_station_mac(1);
      at(now_, [this, frame] { send(frame); });
    }
    judge_arrivals(kPatience);
    run_until(now_ + kRest);
  }
  if (verdicts_.clean()) judge_credits();
}

void World::judge_idleness() {
  std::vector<std::uint64_t> wakes;
  std::vector<std::uint64_t> polls;
  for (const auto* core : cores_) {
    wakes.push_back(core->wakes());
    polls.push_back(core->polls());
  }
  run_until(now_ + kIdle);
  const double idle_seconds = std::chrono::duration<double>(kIdle).count();
  for (std::size_t index = 0; index < cores_.size(); ++index) {
    const auto& core = *cores_[index];
    const double links = index == 0 ? static_cast<double>(cores_.size() - 1) : 1;
    const double woken = static_cast<double>(core.wakes() - wakes[index]) / idle_seconds / links;
    const double polled = static_cast<double>(core.polls() - polls[index]) / idle_seconds / links;
    summary_.idle_wakes_per_second = std::max(summary_.idle_wakes_per_second, woken);
    if (woken > kIdleWakesPerSecond || polled > kIdleWakesPerSecond * kPollsPerWake) {
      return verdicts_.violate(
          now_, fmt::format("{} does not sleep while idle: {:.0f} wake-ups and {:.0f} polls a second", core.name(),
                            woken, polled));
    }
  }
}

/// Somebody ends in order, and ends.
void World::judge_shutdown() {
  CoreSite& core = *processes_[random_.below(processes_.size())];
  core.shut_down(now_ + 100 * kShutdown);
  const bool ended = run_patiently(kShutdown, [&core] { return !core.alive(); });
  if (!ended) verdicts_.violate(now_, core.name() + " does not end in order");
}

}  // namespace splitnic::sim
