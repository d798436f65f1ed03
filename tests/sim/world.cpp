#include "world.h"

#include <fmt/format.h>

#include <algorithm>

#include "queue_site.h"

namespace splitnic::sim {

using std::chrono::milliseconds;

namespace {

// What a judged frame may take where nothing is lost: two hops, each a write, a doorbell, a wake-up and a few polls.
constexpr Duration kLatency = milliseconds(10);

Duration longest_moderation(const Scenario& scenario) {
  Duration longest = scenario.unit.session.moderation.time;
  for (const auto& host : scenario.hosts) longest = std::max(longest, host.session.moderation.time);
  return longest;
}

}  // namespace

World::World(const Scenario& scenario, const Limits& limits, bool trace)
    : scenario_(scenario),
      limits_(limits),
      random_(scenario.seed ^ 0x73696d756c617465U),
      trace_(trace),
      book_(trace_, verdicts_),
      edge_{book_, verdicts_, trace_, now_, doorbells_lost_, kLatency + 2 * longest_moderation(scenario)} {
  unit_ = std::make_unique<UnitSite>(scenario_, edge_, random_);
  for (std::size_t index = 0; index < scenario_.hosts.size(); ++index) {
    hosts_.push_back(std::make_unique<HostSite>(index, scenario_, edge_, random_));
    unit_->source().add(hosts_.back()->pair(), 1);
    for (auto& queue : hosts_.back()->queues()) unit_->source().add(queue->link());
    if (!hosts_.back()->queues().empty()) book_.has_queues(index);
  }
  processes_.push_back(unit_.get());
  for (auto& host : hosts_) processes_.push_back(host.get());
  cores_ = processes_;
  for (auto& host : hosts_) {
    for (auto& queue : host->queues()) cores_.push_back(queue.get());
  }
  if (scenario_.plant != Plant::none) hosts_.front()->plant(scenario_.plant, hosts_.back()->nic());
  const double fault_seconds = limits_.fault_seconds;
  heal_at_ =
      now_ + (fault_seconds > 0 ? std::chrono::duration_cast<Duration>(std::chrono::duration<double>(fault_seconds))
                                : scenario_.fault_time);
}

World::~World() { unit_.reset(); }

/// One moment: everything that is due now, then time moves to the next one, at most to `until`. False when it is there.
bool World::step(Time until) {
  Time next = until;
  if (!agenda_.empty()) next = std::min(next, agenda_.begin()->first);
  for (const auto* core : cores_) next = std::min(next, core->next_time());
  for (std::size_t index = 0; index < hosts_.size(); ++index) {
    // What is under way matters only to those who wait for it.
    if (unit_->asleep() || hosts_[index]->asleep()) next = std::min(next, hosts_[index]->pair().next_event());
    for (auto& queue : hosts_[index]->queues()) {
      if (unit_->asleep() || queue->asleep()) next = std::min(next, queue->link().pair().next_event());
    }
  }
  now_ = std::max(now_, next);
  ++summary_.steps;
  if (summary_.steps > limits_.steps) verdicts_.violate(now_, "too many steps: something spins");
  for (auto& host : hosts_) {
    host->pair().advance(now_);
    for (auto& queue : host->queues()) queue->link().pair().advance(now_);
  }
  while (!agenda_.empty() && agenda_.begin()->first <= now_) {
    const Action action = std::move(agenda_.begin()->second);
    agenda_.erase(agenda_.begin());
    action();
  }
  for (auto* core : cores_) core->run();
  count_doorbells();
  return now_ < until;
}

void World::run_until(Time until) {
  run_until(until, [] { return false; });
}

void World::count_doorbells() {
  summary_.doorbells_lost = 0;
  for (const auto& host : hosts_) {
    summary_.doorbells_lost += host->pair().counters().doorbells_lost;
    for (const auto& queue : host->queues()) summary_.doorbells_lost += queue->link().pair().counters().doorbells_lost;
  }
  doorbells_lost_.count(now_, summary_.doorbells_lost);
}

Summary World::run() {
  // Either side may start first.
  for (auto* core : processes_)
    at(now_ + between(random_, milliseconds(0), milliseconds(5)), [core] { core->start(); });
  plan_traffic();
  plan_fault();
  run_until(heal_at_);
  at(heal_at_, [this] { heal(); });
  judge();
  summary_.violation = verdicts_.first();
  summary_.trace_hash = trace_.hash();
  summary_.events = trace_.events();
  summary_.frames = book_.size();
  summary_.deliveries = book_.deliveries();
  summary_.simulated = now_ - kStart;
  return summary_;
}

}  // namespace splitnic::sim
