// Completions, in the order of their queues, and events.
#include <fmt/format.h>

#include <algorithm>

#include "world.h"

namespace splitnic::sim {

using namespace fabric;

void MemoryWorld::take_all(std::size_t number) {
  Site& site = sites_[number];
  std::array<Completion, 16> completions;
  for (std::size_t i = 0, got = site.adapter->poll_completions(site.completions, completions); i < got; ++i) {
    const Completion& completion = completions[i];
    trace_.event(now_, "completion", completion.id,
                 static_cast<std::uint64_t>(completion.status) << 32U | completion.bytes);
    completion.receive ? take_receive(number, completion) : take_completion(number, completion);
  }
  std::array<AsyncEvent, 16> events;
  for (std::size_t i = 0, got = site.adapter->poll_events(events); i < got; ++i) take_event(number, events[i]);
}

void MemoryWorld::take_completion(std::size_t site, const Completion& completion) {
  const auto is_next = [&](const Draft& request) {
    return request->from == site && from(*request).queues[request->queue].number == completion.queue_pair &&
           !request->done;
  };
  auto next = std::find_if(in_flight_.begin(), in_flight_.end(), is_next);
  // Those that succeed unsignalled say nothing.
  while (next != in_flight_.end() && (*next)->number != completion.id && !(*next)->work.signalled &&
         !(*next)->fails() && !(*next)->follower) {
    (*next)->done = true;
    next = std::find_if(next, in_flight_.end(), is_next);
  }
  if (next == in_flight_.end() || (*next)->number != completion.id) {
    return violate(fmt::format("the completion of operation {} comes out of order", completion.id));
  }
  Request& request = **next;
  request.done = true;
  request.status = completion.status;
  const bool crashed = site / 2 == crashed_path_;
  const bool lost = crashed && (completion.status == CompletionStatus::outcome_unknown ||
                                completion.status == CompletionStatus::flushed);
  // A terminate message that was lost is told again by a syndrome, which knows fewer reasons.
  const bool coarse = paths_[site / 2]->lossy() && request.fails() && !request.refused_here &&
                      completion.status == CompletionStatus::remote_operation_error;
  if (completion.status != request.expected() && !lost && !coarse) {
    return violate(fmt::format("operation {} ended as {}, the model says {} ({})", request.number,
                               to_string(completion.status), to_string(request.expected()), request.verdict));
  }
  if (completion.status != CompletionStatus::success) return;
  if (request.answered() && completion.bytes != request.bytes) violate("a read or atomic tells another length");
  if (request.tag_expected != Stag{} && completion.tag != request.tag_expected) {
    violate("a memory request answers another tag than the model's");
  }
}

void MemoryWorld::take_receive(std::size_t site, const Completion& completion) {
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const Draft& request) {
    return (request->from ^ 1U) == site && request->receive && request->receive->expected.id == completion.id &&
           sites_[site].queues[request->queue].number == completion.queue_pair && !request->receive->done;
  });
  if (found == in_flight_.end()) {
    return violate(fmt::format("a receive of operation {} completes that is not posted", completion.id));
  }
  Receive& receive = *(*found)->receive;
  receive.done = true;
  const Completion& expected = receive.expected;
  if (site / 2 == crashed_path_ && completion.status == CompletionStatus::flushed) return;
  if (completion.status != expected.status) {
    return violate(fmt::format("the receive of operation {} ended as {}, the model says {}", (*found)->number,
                               to_string(completion.status), to_string(expected.status)));
  }
  if (completion.status != CompletionStatus::success) return;
  const bool same = completion.bytes == expected.bytes && completion.has_immediate == expected.has_immediate &&
                    completion.immediate == expected.immediate && completion.solicited == expected.solicited &&
                    completion.has_invalidated == expected.has_invalidated && completion.tag == expected.tag;
  if (!same) violate(fmt::format("the receive of operation {} says something else than was sent", (*found)->number));
}

void MemoryWorld::take_event(std::size_t number, const AsyncEvent& event) {
  Site& site = sites_[number];
  trace_.event(now_, to_string(event.kind), event.queue_pair.value, event.tag.value);
  const bool crashed = number / 2 == crashed_path_;
  switch (event.kind) {
    case AsyncEventKind::path_down:
      site.path_down = true;
      if (!crashed) violate("a path is down that nobody cut");
      return;
    case AsyncEventKind::queue_pair_fatal: {
      if (crashed) return;
      const auto expected = site.fatal.find(event.queue_pair.value);
      if (expected == site.fatal.end()) return violate("a queue pair fails that should not");
      const bool same = event.reason == expected->second.reason && event.from_peer == expected->second.from_peer;
      const bool untold = paths_[number / 2]->lossy() && !event.from_peer && expected->second.from_peer;
      if (!same && !untold) {
        violate(fmt::format("a queue pair failed for reason {}.{}.{} ({}), the model says {}.{}.{} ({})",
                            event.reason.layer, event.reason.type, event.reason.code,
                            event.from_peer ? "the peer's" : "its own", expected->second.reason.layer,
                            expected->second.reason.type, expected->second.reason.code,
                            expected->second.from_peer ? "the peer's" : "its own"));
      }
      site.fatal.erase(expected);
      return;
    }
    case AsyncEventKind::memory_drained: {
      auto& quarantine = site.reference.quarantine;
      const auto drained = std::find_if(quarantine.begin(), quarantine.end(),
                                        [&](const Reference::Revoked& revoked) { return revoked.tag == event.tag; });
      if (drained == quarantine.end()) return violate("memory is drained that was not in quarantine");
      quarantine.erase(drained);
      return;
    }
    case AsyncEventKind::queue_pair_drained:  // which a refusal had ended
      return;
    default:
      violate(fmt::format("an event nobody asked for: {}", to_string(event.kind)));
  }
}

}  // namespace splitnic::sim
