#include "core_site.h"

#include <algorithm>

#include "queue_site.h"

namespace splitnic::sim {

using std::chrono::microseconds;

namespace {

// From the event that ends a sleep to the first poll: a scheduler's wake-up.
constexpr Duration kWakeUpMin = microseconds(2);
constexpr Duration kWakeUpMax = microseconds(30);
constexpr Duration kPollCostMin = microseconds(1);

}  // namespace

std::shared_ptr<fabric::Bridge> SimSource::poll(Time) {
  for (auto& slot : slots_) {
    if (slot.held || slot.pair->is_cut()) continue;
    slot.held = true;
    return {&slot.pair->end(slot.end), [&slot](fabric::Bridge*) { slot.held = false; }};
  }
  for (QueueLink* const link : links_) {
    if (auto bridge = link->accept()) return bridge;
  }
  return nullptr;
}

bool SimSource::readable() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) { return !slot.held && !slot.pair->is_cut(); }) ||
         std::ranges::any_of(links_, [](const QueueLink* link) { return link->offered(); });
}

bool SimSource::wake_pending() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) { return slot.held && slot.pair->wake_pending(slot.end); }) ||
         std::ranges::any_of(links_, [](QueueLink* link) { return link->held(1) && link->pair().wake_pending(1); });
}

bool SimSource::wake_pending(const fabric::Bridge& bridge) const {
  return std::ranges::any_of(slots_,
                             [&](const Slot& slot) {
                               return slot.held && &slot.pair->end(slot.end) == &bridge &&
                                      slot.pair->wake_pending(slot.end);
                             }) ||
         std::ranges::any_of(
             links_, [&](QueueLink* link) { return &link->pair().end(1) == &bridge && link->pair().wake_pending(1); });
}

void SimSource::forget(bool scribble) {
  for (auto& slot : slots_) slot.pair->forget(slot.end, scribble);
  for (auto* link : links_) link->pair().forget(1, scribble);
}

Time CoreSite::next_time() const {
  if (!alive()) return kNever;
  if (!asleep_) return std::max(next_run_, paused_until_);
  // What has rung before it fell asleep, or while it was stopped, wakes it at once: nothing else may come to pass.
  const Time due = readable() ? edge_.now : std::min(deadline_, patience_);
  return std::max(due, paused_until_);
}

void CoreSite::start() {
  if (alive()) return;
  make();
  asleep_ = just_woken_ = false;
  idle_polls_ = 0;
  next_run_ = edge_.now + between(random_, kWakeUpMin, kWakeUpMax);
  patience_ = kNever;
  edge_.trace.line(edge_.now, name_, "starts");
}

void CoreSite::kill(bool scribble) {
  if (!alive()) return;
  edge_.trace.line(edge_.now, name_, scribble ? "dies, its memory is scribbled over" : "dies");
  destroy();
  source_.forget(scribble);
  patience_ = kNever;
}

void CoreSite::pause(Time until) {
  edge_.trace.line(edge_.now, name_, "stopped until " + to_text(until));
  paused_until_ = std::max(paused_until_, until);
}

void CoreSite::shut_down(Time patience) {
  if (!alive() || shutting_down()) return;
  edge_.trace.line(edge_.now, name_, "shall end in order");
  core_begin_shutdown();
  patience_ = patience;
  if (asleep_) {  // a signal wakes it
    asleep_ = false;
    just_woken_ = true;
    next_run_ = edge_.now;
  }
}

bool CoreSite::readable() const {
  if (scenario_.plant != Plant::deaf && (source_.wake_pending() || bridge_wakes())) return true;
  descriptors_.clear();
  core_descriptors(descriptors_);
  return std::ranges::any_of(descriptors_, [this](int descriptor) {
    return descriptor == kSourceDescriptor ? source_.readable() : port_readable(descriptor);
  });
}

void CoreSite::run() {
  const Time now = edge_.now;
  if (!alive() || now < paused_until_) return;
  if (asleep_) {
    if (now < std::min(deadline_, patience_) && !readable()) return;
    asleep_ = false;
    just_woken_ = true;
    idle_polls_ = 0;
    ++wakes_;
    edge_.trace.event(now, name_ + " wakes", now < deadline_ ? 1 : 0);
    next_run_ = now + between(random_, kWakeUpMin, kWakeUpMax);
    return;
  }
  if (now >= next_run_) poll_once();
}

void CoreSite::poll_once() {
  const Time now = edge_.now;
  if (std::exchange(just_woken_, false)) core_awake();
  const std::size_t work = poll_core(now);
  ++polls_;
  next_run_ = now + between(random_, kPollCostMin, scenario_.poll_cost_max);
  if (shutting_down() && (core_finished() || now >= patience_)) {
    if (!core_finished()) edge_.trace.line(now, name_, "did not end in time");
    return kill(false);
  }
  idle_polls_ = work == 0 ? idle_polls_ + 1 : 0;
  if (idle_polls_ < scenario_.idle_polls || scenario_.plant == Plant::sleepless) return;
  if (!core_prepare_sleep()) return;
  asleep_ = true;
  deadline_ = core_deadline();
  const auto sleep = deadline_ == kNever ? -1 : std::chrono::duration_cast<microseconds>(deadline_ - now).count();
  edge_.trace.event(now, name_ + " sleeps for us", static_cast<std::uint64_t>(sleep), work);
}

HostSite::HostSite(std::size_t index, const Scenario& scenario, const Edge& edge, RandomSource& random)
    : DriverSite(scenario.hosts[index].session.name, scenario, edge, random),
      host_(scenario.hosts[index]),
      nic_(edge, host_, index),
      pair_(host_.bridge, random) {
  source_.add(pair_, 0);
  for (std::size_t number = 0; number + 1 < host_.queues; ++number) {
    auto options = host_.bridge;
    options.group.further = true;
    queues_.push_back(std::make_unique<QueueSite>(number, host_, options, nic_, scenario, edge, random));
  }
}

HostSite::~HostSite() { driver_.reset(); }

void HostSite::destroy() {
  for (auto& queue : queues_) queue->kill(false);
  driver_.reset();
  group_.reset();
}

void HostSite::core_begin_shutdown() {
  for (auto& queue : queues_) queue->begin_shutdown();
  driver_->begin_shutdown();
}

bool HostSite::core_finished() const {
  return driver_->finished() && std::ranges::all_of(queues_, [](const auto& queue) { return queue->finished(); });
}

std::size_t HostSite::wanted_queues() const {
  const auto* session = driver_ ? driver_->session() : nullptr;
  const bool has_pools =
      session != nullptr && session->mode() == messaging::wire::Mode::rdma && session->has_data_channel();
  return has_pools ? host_.queues : 1;
}

void HostSite::make() {
  driver_random_ = std::make_unique<SeededRandom>(random_.next());
  host::VirtualNic& nic = planted_ ? *planted_ : static_cast<host::VirtualNic&>(nic_);
  driver_ =
      std::make_unique<host::HostDriver>(host_.session, nic, source_, *driver_random_, static_cast<Notices&>(*this));
  if (queues_.empty()) return;
  group_ = std::make_unique<host::QueueGroup>(queues_.size());
  driver_->lead(*group_);
  for (auto& queue : queues_) {
    queue->join(*group_);
    queue->start();
  }
}

std::size_t HostSite::poll_core(Time now) {
  const std::size_t work = driver_->poll(now);
  if (driver_->up() != was_up_) nic_.disturb();
  was_up_ = driver_->up();
  return work;
}

void UnitSite::make() {
  driver_random_ = std::make_unique<SeededRandom>(random_.next());
  auto options = scenario_.unit;
  if (scenario_.unit_watches_doorbells) {
    watch_ = std::make_unique<SimWatch>(source_, scenario_.plant);
    options.doorbells = watch_.get();
  }
  driver_ = std::make_unique<iounit::IoUnit>(options, lan_, source_, *driver_random_, static_cast<Notices&>(*this));
}

bool SimWatch::watch(const fabric::Bridge& bridge, std::size_t place) {
  places_.emplace_back(&bridge, place);
  return true;
}

void SimWatch::forget(const fabric::Bridge& bridge) {
  std::erase_if(places_, [&](const auto& watched) { return watched.first == &bridge; });
}

std::size_t SimWatch::rung(std::span<std::size_t> out) {
  std::size_t found = 0;
  for (const auto& [bridge, place] : places_) {
    if (plant_ != Plant::deaf && found < out.size() && source_.wake_pending(*bridge)) out[found++] = place;
  }
  return found;
}

const iounit::AttachedHost* UnitSite::port_of(const std::string& host) const {
  if (!driver_) return nullptr;
  for (const auto& port : driver_->hosts()) {
    if (port && port->up() && port->name() == host) return port.get();
  }
  return nullptr;
}

}  // namespace splitnic::sim
