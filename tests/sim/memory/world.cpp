#include "world.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace splitnic::sim {

using namespace fabric;

namespace {

constexpr int kStepsToRest = 200'000;
constexpr std::size_t kRemembered = 24;
constexpr Duration kLongestJump = std::chrono::milliseconds(1);

}  // namespace

MemoryWorld::MemoryWorld(const MemoryScenario& scenario, bool trace)
    : PathsWorld(scenario.seed, scenario.paths, trace), scenario_(scenario) {
  for (const char* name : {"the owner's memory", "initiator 1's memory", "initiator 2's memory"}) {
    arenas_.emplace_back(draws_);
    images_.emplace_back(name, PeerMemory::over(arenas_.back().at(0), Arena::kBytes));
  }
  for (std::size_t number = 0; number < kSites; ++number) {
    make_adapter(number);
    Site& site = sites_[number];
    site.arena_image = number % 2 == 0 ? 0 : 1 + number / 2;
    site.bridge_image = site.reference.bridge_image = images_.size();
    images_.emplace_back(fmt::format("the bridge memory of site {}", number), paths_[number / 2]->buffers(number % 2));
  }
  for (std::size_t path = 0; path < kPaths; ++path) {
    make_queues(path);
    stock(path);
  }
}

MemoryWorld::~MemoryWorld() = default;

MemorySummary MemoryWorld::run(std::uint64_t operations) {
  while (summary_.operations < operations && verdicts_.clean()) operation();
  if (verdicts_.clean()) settle();
  for (const Site& site : sites_) tally(site);
  summary_.violation = verdicts_.first();
  summary_.trace_hash = trace_.hash();
  summary_.last_operations.assign(last_operations_.begin(), last_operations_.end());
  return summary_;
}

void MemoryWorld::operation() {
  ++summary_.operations;
  if (one_in(scenario_.crash_gap)) return crash();
  below(100) < 25 ? change_table() : request();
  if (one_in(3)) step();
}

/// A moment: what is due arrives, those who are awake poll.
void MemoryWorld::step() {
  std::size_t moved = advance_paths();
  for (std::size_t number = 0; number < kSites; ++number) {
    if (faults_.below(8) == 0) {  // stopped for a moment
      ++moved;
      continue;
    }
    moved += sites_[number].adapter->poll(now_);
    take_all(number);
  }
  idle_ = moved == 0;
  Duration pass = std::chrono::microseconds(2);
  if (moved == 0) {
    Time next = next_event(now_ + kLongestJump);
    for (const Site& site : sites_) next = std::min(next, site.adapter->next_deadline());
    pass = std::max(pass, next - now_);
  }
  now_ += pass;
}

bool MemoryWorld::at_rest() {
  if (!idle_) return false;
  const auto is_done = [this](const Draft& request) {
    const bool told = request->done || (!request->work.signalled && !request->fails() && !request->follower);
    if (!told || !request->receive || request->receive->done) return told;
    return request->receive->stands() && request->from / 2 == crashed_path_;  // it ends without a completion
  };
  return std::ranges::all_of(in_flight_, is_done) && paths_at_rest() &&
         std::ranges::none_of(sites_, [](const Site& site) {
           return site.adapter->outstanding() || (site.engine != nullptr && !site.engine->idle());
         });
}

/// Until nothing moves any more; then everything must be as the model has it.
void MemoryWorld::settle() {
  idle_ = false;
  for (int i = 0; verdicts_.clean(); ++i) {
    if (at_rest()) break;
    if (i == kStepsToRest) return violate("the world does not come to rest");
    step();
  }
  if (verdicts_.clean()) judge();
}

void MemoryWorld::judge() {
  for (std::size_t site = 0; site < kSites; ++site) take_all(site);
  judge_either();
  if (crashed_path_) judge_crash(*crashed_path_);
  compare_memory();
  revive_queues();
  in_flight_.clear();
  for (std::size_t number = 0; number < kSites; ++number) {
    if (sites_[number].engine != nullptr) sites_[number].engine->may_pull = true;
    hold_pulls(number);
  }
}

void MemoryWorld::Possible::add(const Request& request, bool spoilt) {
  for (const Change& change : request.changes) {
    for (std::size_t i = 0; i < change.after.size(); ++i) {
      const Place place{change.piece.image, change.piece.offset + i};
      auto& values = bytes[place];
      if (spoilt) anything.insert(place);
      if (values.empty()) values.insert(change.before[i]);
      if (request.status == CompletionStatus::flushed && !request.either) continue;
      if (request.status == CompletionStatus::success) values.clear();
      values.insert(change.after[i]);
    }
  }
}

void MemoryWorld::judge(const Possible& possible, const char* when) {
  for (const auto& [place, values] : possible.bytes) {
    Image& image = images_[place.first];
    const bool judged = place.first != scribbled_image_ && possible.anything.count(place) == 0;
    if (judged && values.count(image.actual(place.second)) == 0) {
      violate(fmt::format("byte {} of {} is none of what {} could leave", place.second, image.name(), when));
    }
    image.adopt(place.second);
  }
}

/// Requests that failed, and whose bytes may have been written (Request::either): each byte as it was, or as it was
/// sent.
void MemoryWorld::judge_either() {
  Possible possible;
  for (const Draft& request : in_flight_) {
    if (request->either && request->from / 2 != crashed_path_) possible.add(*request, request->spoils_sink);
  }
  judge(possible, "a refused request");
}

void MemoryWorld::compare_memory() {
  ++summary_.comparisons;
  for (Image& image : images_) {
    const std::size_t at = image.first_difference();
    if (at == image.size()) continue;
    violate(fmt::format("byte {} of {} is {:#04x}, the model says {:#04x}", at, image.name(),
                        static_cast<unsigned>(image.actual(at)), static_cast<unsigned>(image.expected()[at])));
  }
}

/// What a refusal ended goes on.
void MemoryWorld::revive_queues() {
  std::set<std::pair<std::size_t, std::size_t>> revived;
  for (const Draft& request : in_flight_) {
    const std::size_t path = request->from / 2;
    if (!request->fails() || request->follower || path == crashed_path_) continue;
    if (!revived.emplace(path, request->queue).second) continue;
    Queue& queue = from(*request).queues[request->queue];
    ChannelAdapter& adapter = *from(*request).adapter;
    const bool sends_alone = request->refused_here && !queue.fails_whole;
    if (adapter.state(queue.number) != (sends_alone ? QueuePairState::sq_error : QueuePairState::error)) {
      violate(fmt::format("operation {} was refused, and its queue pair goes on", request->number));
    }
    if (adapter.post_send(queue.number, WorkRequest{}) != Status::bad_state) violate("a failed queue pair takes more");
    if (sends_alone) {
      if (adapter.modify(queue.number, QueuePairEvent::ready_to_send) != Status::ok) violate("sends are not resumed");
      continue;
    }
    const Queue& others = to(*request).queues[request->queue];
    static_cast<void>(adapter.modify(queue.number, QueuePairEvent::reset));
    static_cast<void>(to(*request).adapter->modify(others.number, QueuePairEvent::reset));
    connect(path, request->queue);
  }
  for (std::size_t number = 0; number < kSites; ++number) {
    // A terminate message may have been lost, where cells are.
    if (paths_[number / 2]->lossy()) std::erase_if(sites_[number].fatal, [](auto& f) { return f.second.from_peer; });
    if (!sites_[number].fatal.empty()) violate("a queue pair that must fail did not say so");
  }
}

void MemoryWorld::violate(const std::string& what) {
  verdicts_.violate(now_, fmt::format("operation {}: {}", summary_.operations, what));
}

/// For the report of a violation.
void MemoryWorld::remember(const std::string& what) {
  last_operations_.push_back(fmt::format("{} {}", summary_.operations, what));
  if (last_operations_.size() > kRemembered) last_operations_.pop_front();
}

void MemoryWorld::count(const std::string& what, const std::string& verdict, std::uint64_t number) {
  ++summary_.verdicts[what + ": " + verdict];
  trace_.event(now_, what, number);
  trace_.event(now_, verdict);
}

}  // namespace splitnic::sim
