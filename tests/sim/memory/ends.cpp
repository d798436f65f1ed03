// Adapters, their queue pairs, and their ends.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "../first_psn.h"
#include "world.h"

namespace splitnic::sim {

using namespace fabric;

void MemoryWorld::make_adapter(std::size_t number) {
  Site& site = sites_[number];
  AdapterOptions options;
  options.cell_payload_bytes = scenario_.cell_payload[number / 2];
  options.max_message_bytes = 4096;
  options.max_queue_pairs = kQueues;
  options.max_regions = kTags;
  options.ack_timeout = std::chrono::milliseconds(1);
  options.retry_count = 10'000;
  options.receiver_not_ready_delay = std::chrono::microseconds(50);
  options.receiver_not_ready_retries = 3;
  site.adapter.reset();
  site.engine = scenario_.engine[number] ? std::make_unique<SlowEngine>(faults_) : nullptr;
  options.dma = site.engine.get();
  site.adapter = std::make_unique<ChannelAdapter>(paths_[number / 2]->cells(number % 2), options, adapters_);
  site.completions = site.adapter->create_completion_queue(512);
  site.domains.clear();
  for (const DomainRules rules : {DomainRules::verbs, DomainRules::strict}) {
    const ProtectionDomain domain = site.adapter->allocate_domain();
    site.adapter->table().set_rules(domain, rules);
    site.reference.table.rules[domain] = rules;
    site.domains.push_back(domain);
  }
}

/// What an adapter has counted, before it goes.
void MemoryWorld::tally(const Site& site) {
  const AdapterCounters& counters = site.adapter->counters();
  summary_.direct += counters.direct_writes + counters.direct_reads + counters.pulled_reads;
  summary_.pulled += counters.pulled_reads;
  summary_.retransmissions += counters.retransmissions;
  summary_.out_of_sequence += counters.dropped_out_of_sequence;
  summary_.duplicates += counters.dropped_duplicate;
  summary_.placed_early += counters.placed_early;
}

void MemoryWorld::make_queues(std::size_t path) {
  for (std::size_t queue = 0; queue < kQueues; ++queue) {
    for (const std::size_t number : {2 * path, 2 * path + 1}) {
      Site& site = sites_[number];
      QueuePairAttributes options;
      options.domain = site.domains[queue == kQueues - 1 ? 1 : 0];
      options.send_completions = options.receive_completions = site.completions;
      options.send_depth = options.receive_depth = 32;
      options.reads_in = 1 + below(4);
      options.reads_out = 1 + below(4);
      options.max_inline_bytes = 96;
      options.memory_requests = !one_in(6);
      if (queue == 0) options.standing_receive = Receive::kStanding;
      options.on_memory_request_failure = one_in(2) ? MemoryRequestFailure::fail_sends : MemoryRequestFailure::fail;
      Queue& made = site.queues[queue];
      made = Queue{};
      made.number = site.adapter->create_queue_pair(options).value();
      made.domain = options.domain;
      made.memory_requests = options.memory_requests;
      made.fails_whole = options.on_memory_request_failure == MemoryRequestFailure::fail;
      made.standing = options.standing_receive.has_value();
      made.reads_in = options.reads_in;
      made.inline_bytes = options.max_inline_bytes;
    }
    connect(path, queue);
  }
}

void MemoryWorld::connect(std::size_t path, std::size_t queue) {
  Site& left = sites_[2 * path];
  Site& right = sites_[2 * path + 1];
  const std::uint32_t psn[2] = {draw_first_psn(draws_), draw_first_psn(draws_)};
  const QueuePairPeer to_right{right.queues[queue].number, psn[0], psn[1], right.queues[queue].reads_in};
  const QueuePairPeer to_left{left.queues[queue].number, psn[1], psn[0], left.queues[queue].reads_in};
  const bool connected = left.adapter->connect(left.queues[queue].number, to_right) == Status::ok &&
                         right.adapter->connect(right.queues[queue].number, to_left) == Status::ok;
  if (!connected) violate("two queue pairs do not connect");
  left.queues[queue].answered.clear();
  right.queues[queue].answered.clear();
}

/// An epoch ends: a link starts anew, the bridge was away, or a program died. What is in flight may be done or not.
void MemoryWorld::crash() {
  const std::size_t path = below(kPaths);
  const std::size_t end = below(2);
  const std::size_t victim = 2 * path + end;
  crashed_path_ = path;
  ++summary_.crashes;
  for (const std::size_t site : {2 * path, 2 * path + 1}) sites_[site].path_down = false;
  const std::uint64_t how = below(3);
  count("crash", how == 0 ? "restart" : how == 1 ? "cut" : "death", victim);
  if (how == 0) {
    paths_[path]->restart(end);
  } else if (how == 1) {
    was_cut_ = true;
    paths_[path]->cut();
    step();
    paths_[path]->restore();
  } else {
    for (const Draft& request : in_flight_) {
      if (request->from == victim && !request->done) {
        request->done = true;
        request->status = CompletionStatus::outcome_unknown;
      }
      if ((request->from ^ 1U) == victim && request->receive) request->receive->done = true;
    }
    tally(sites_[victim]);
    sites_[victim].adapter.reset();
    const bool scribble = one_in(2);
    if (scribble) scribbled_image_ = sites_[victim].bridge_image;
    paths_[path]->die(end, scribble);
    make_adapter(victim);
    sites_[victim].path_down = sites_[victim].reborn = true;
  }
  come_up(path);
  settle();
  crashed_path_.reset();
  scribbled_image_.reset();
  was_cut_ = false;
  if (verdicts_.clean()) stock(path);
}

void MemoryWorld::come_up(std::size_t path) {
  const auto seen = [&](std::size_t site) { return sites_[site].path_down; };
  for (int i = 0; i < 20'000 && verdicts_.clean(); ++i) {
    if (paths_[path]->up() && seen(2 * path) && seen(2 * path + 1)) break;
    step();
  }
  if (!paths_[path]->up()) violate("the link does not come up after a crash");
}

/// After the end of an epoch, where the program lives: the regions of the bridge's memory are void, the windows on them
/// bound no more, and every other tag is what it was. Not judged: what a request in flight may have changed.
void MemoryWorld::judge_tags(std::size_t number) {
  Site& site = sites_[number];
  const auto in_bridge = [&](std::uint32_t index) {
    const auto memory = site.reference.memory.find(index);
    return memory != site.reference.memory.end() && !memory->second.empty() &&
           memory->second.front().image == site.bridge_image;
  };
  const auto in_doubt = [&](std::uint32_t index) {
    return std::ranges::any_of(in_flight_, [&](const Draft& request) { return uses_tag(*request, number, index); });
  };
  for (const auto& [index, entry] : site.reference.table.entries) {
    const bool window = is_window(entry.kind);
    if (in_doubt(index) || (window && entry.valid && in_doubt(entry.region))) continue;
    const ProtectionEntry* there = site.adapter->table().at(index);
    if (!window && in_bridge(index)) {
      if (there != nullptr) violate("a region of the bridge's memory outlives its epoch");
      continue;
    }
    const bool valid = entry.valid && !(window && in_bridge(entry.region));
    if (there == nullptr || there->valid != valid || there->instance != entry.instance) {
      violate("a tag of the process's memory did not outlive the peer");
    }
  }
}

/// So that both ends start from nothing again.
void MemoryWorld::give_up_tags(std::size_t number) {
  Site& site = sites_[number];
  ProtectionTable& table = site.adapter->table();
  const auto give_up = [&](bool windows) {
    for (const auto& [index, entry] : site.reference.table.entries) {
      const ProtectionEntry* there = table.at(index);
      if (there == nullptr || is_window(there->kind) != windows) continue;
      const Stag tag = Stag::from(index, there->instance);
      const bool gone = windows ? table.deallocate(tag).has_value() : site.adapter->deregister(tag) == Status::ok;
      if (!gone) violate("a tag can't be given up");
    }
  };
  give_up(true);
  give_up(false);
  for (const ProtectionDomain domain : site.domains) {
    if (table.tags_in(domain) != 0) violate("a domain has tags that nobody knows");
  }
}

/// A pull that did not succeed may have found what is no memory of that epoch: what a dead program left, or ones.
bool MemoryWorld::may_be_spoilt(const Request& request) const {
  if (request.spoils_sink) return true;
  const bool pulled =
      request.reads() && sites_[request.from].engine != nullptr && request.status == CompletionStatus::outcome_unknown;
  return pulled && (was_cut_ || scribbled_image_ == sites_[request.from ^ 1U].bridge_image);
}

/// At rest after the end of an epoch: of each byte that was in flight, what it held, or what one of the requests that
/// may have been carried out put there; nothing else has changed. Then everything is made anew.
void MemoryWorld::judge_crash(std::size_t path) {
  Possible possible;
  for (const Draft& request : in_flight_) {
    if (request->from / 2 == path) possible.add(*request, may_be_spoilt(*request));
  }
  judge(possible, "the requests in flight at a crash");
  for (std::size_t queue = 0; queue < kQueues; ++queue) end_taken(path, queue);
  for (const std::size_t number : {2 * path, 2 * path + 1}) {
    Site& site = sites_[number];
    for (const Queue& queue : site.queues) static_cast<void>(site.adapter->destroy_queue_pair(queue.number));
    if (!std::exchange(site.reborn, false)) {
      judge_tags(number);
      give_up_tags(number);
    }
    site.reference.clear();
    site.fatal.clear();
    images_[site.bridge_image].adopt(paths_[path]->buffers(number % 2));
  }
  make_queues(path);
}

}  // namespace splitnic::sim
