// Set-up, time, resets, and what is true at rest.
#include "world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "../first_psn.h"
#include "parts.h"

namespace splitnic::sim {

using namespace fabric;

namespace {

constexpr std::size_t kLinkBytes = std::size_t{2} << 20U;  // of each end
constexpr std::size_t kCompletions = 1024;
constexpr int kRoundsToRest = 20'000;
constexpr int kRoundsAtRest = 200;
constexpr Duration kRound = std::chrono::microseconds(30);
constexpr Rights kLocal = Right::local_read | Right::local_write;
constexpr Rights kOpen = kLocal | Right::remote_read | Right::remote_write;
constexpr Rights kCounted = kLocal | Right::remote_read | Right::remote_atomic;

}  // namespace

ExpressWorld::ExpressWorld(const ExpressScenario& scenario, bool trace)
    : scenario_(scenario),
      trace_(trace),
      draws_(scenario.seed * 3),
      links_{SeededRandom(scenario.seed * 3 + 1), SeededRandom(scenario.seed * 3 + 2)} {
  std::array<LinkOptions, 2> options;
  for (std::size_t end = 0; end < 2; ++end) {
    options[end].port_address = PortAddress{0xa1 + end};
    options[end].slot_bytes = scenario.slot_bytes;
    options[end].payload_bytes = scenario.payload_bytes;
  }
  loopback_ = std::move(*Loopback::create(options, {&links_[0], &links_[1]}, kLinkBytes));
  come_up();
  for (std::size_t end = 0; end < 2; ++end) make_end(end);
  for (std::size_t connection = 0; connection < scenario.connections.size(); ++connection) {
    for (std::size_t end = 0; end < 2; ++end) make_queue(end, connection);
    for (std::size_t end = 0; end < 2; ++end) {
      ends_[end]->queues[connection]->peer = ends_[1 - end]->queues[connection].get();
    }
    for (std::size_t end = 0; end < 2; ++end) connect(end, connection);
  }
}

ExpressWorld::~ExpressWorld() = default;

void ExpressWorld::come_up() {
  const auto up = [&] { return loopback_->end(0).up() && loopback_->end(1).up(); };
  for (int i = 0; i < 1000 && !up(); ++i) {
    now_ += std::chrono::milliseconds(1);
    for (std::size_t end = 0; end < 2; ++end) loopback_->end(end).poll(now_);
  }
  if (!up()) violate("the link does not come up");
}

void ExpressWorld::make_end(std::size_t number) {
  ends_[number] = std::make_unique<End>();
  End& end = *ends_[number];
  end.number = number;
  end.link = &loopback_->end(number);
  AdapterOptions options;
  options.cell_payload_bytes = scenario_.cell_payload;
  options.receiver_not_ready_delay = std::chrono::microseconds(20);
  options.receiver_not_ready_retries = QueuePairSettings::kWithoutEnd;
  end.adapter = std::make_unique<ChannelAdapter>(*end.link, options, links_[number]);
  end.domain = end.adapter->allocate_domain();
  const CompletionRoom room = scenario_.verbs_rules ? CompletionRoom::unreserved : CompletionRoom::reserved;
  end.sends = end.adapter->make_completion_queue(kCompletions, {}, room).value();
  end.receives = end.adapter->make_completion_queue(kCompletions, {}, room).value();
  end.shared = end.adapter->create_shared_receive_queue(end.domain, kReceiveDepth, scenario_.verbs_rules).value();
  end.shared_inbox = make_area(number, false, 0, kSharedPlaces * kPlaceBytes, kLocal);
}

/// offset: among the bridge's buffers.
ExpressWorld::Area ExpressWorld::make_area(std::size_t number, bool in_bridge, std::size_t offset, std::size_t bytes,
                                           Rights rights) {
  End& end = *ends_[number];
  Area area;
  if (in_bridge) {
    area.bridge = end.link->bridge().local_memory();
    area.offset = end.link->buffers().offset + offset;
    area.bridge.zero(area.offset, bytes);
    area.tag = end.adapter->register_bridge_memory(end.domain, {area.offset, bytes}, rights, true).value();
  } else {
    area.own.resize(bytes);
    area.tag = end.adapter->register_memory(end.domain, area.own, rights).value();
  }
  area.address = end.adapter->region_address(area.tag);
  return area;
}

void ExpressWorld::make_queue(std::size_t number, std::size_t connection) {
  End& end = *ends_[number];
  end.queues.push_back(std::make_unique<Queue>());
  Queue& queue = *end.queues.back();
  const ExpressConnection& shape = scenario_.connections[connection];
  queue.shape = &shape;
  queue.connection = connection;
  queue.first_psn = shape.psn[number];
  QueuePairAttributes with;
  with.domain = end.domain;
  with.send_completions = end.sends;
  with.receive_completions = end.receives;
  with.send_depth = shape.depth;
  with.receive_depth = kReceiveDepth;
  with.lane = shape.lane;
  with.reads_in = with.reads_out = shape.reads;
  with.max_inline_bytes = kMostInline;
  with.verbs_rules = with.flush_posts = scenario_.verbs_rules;
  if (shape.shared_receives) with.shared_receives = end.shared;
  queue.number = end.adapter->create_queue_pair(with).value();
  queue.places = make_area(number, false, 0, kPlaces * kPlaceBytes, kLocal);
  queue.inbox = make_area(number, false, 0, kReceivePlaces * kPlaceBytes, kLocal);
  queue.counter = make_area(number, false, 0, sizeof(std::uint64_t), kCounted);
  const bool in_bridge = shape.target_in_bridge[number];
  queue.target = make_area(number, in_bridge, connection * kTargetBytes, kTargetBytes, kOpen);
  queue.has_sinks = shape.sinks_in_bridge[number];
  const std::size_t sinks_at = kMostConnections * kTargetBytes + connection * kPlaces * kPlaceBytes;
  if (queue.has_sinks) queue.sinks = make_area(number, true, sinks_at, kPlaces * kPlaceBytes, kOpen);
}

void ExpressWorld::connect(std::size_t number, std::size_t connection) {
  const ExpressConnection& shape = scenario_.connections[connection];
  Queue& queue = *ends_[number]->queues[connection];
  QueuePairPeer peer;
  peer.number = queue.peer->number;
  peer.first_psn_to_send = queue.first_psn;
  peer.first_psn_expected = queue.peer->first_psn;
  peer.reads_in = shape.reads;
  expect(ends_[number]->adapter->connect(queue.number, peer), "connect");
}

void ExpressWorld::expect(Status status, const char* what) {
  if (status != Status::ok) violate(fmt::format("{}: {}", what, to_string(status)));
}

ExpressWorld::Queue* ExpressWorld::find(End& at, QpNumber number) {
  for (const auto& queue : at.queues) {
    if (queue->number == number) return queue.get();
  }
  return nullptr;
}

void ExpressWorld::poll(std::size_t number) {
  End& end = *ends_[number];
  if (scenario_.polls_links) {
    end.adapter->take_turn(now_);
    return;
  }
  end.link->poll(now_);
  end.adapter->poll(now_);
}

/// Falls asleep if nothing is to be done, and wakes at once; or tells the peer alone.
void ExpressWorld::doze(std::size_t number) {
  ChannelAdapter& adapter = *ends_[number]->adapter;
  if (one_in(3)) return adapter.notify();
  if (one_in(2)) return poll(number);
  if (adapter.prepare_sleep()) adapter.disarm();
}

void ExpressWorld::operation() {
  now_ += std::chrono::nanoseconds(one_in(3) ? below(60'000) : below(2'000));
  if (one_in(3000)) now_ += std::chrono::milliseconds(250);  // beyond every timeout
  if (one_in(400)) reset(below(scenario_.connections.size()));
  const std::size_t end = below(2);
  const std::uint64_t what = below(8);
  trace_.event(now_, "operation", what, end);
  if (what < 2) return post_sends(end);
  if (what < 4) return post_receives(end);
  if (what < 6) return poll(end);
  if (what < 7) return take_completions(end);
  doze(end);
}

/// Both ends of a connection, one after the other; between them anything may be polled. What was under way may have
/// been carried out, or not.
void ExpressWorld::reset(std::size_t connection) {
  if (scenario_.connections[connection].shared_receives) return;
  const std::size_t first = below(2);
  const std::array order{first, 1 - first};
  const auto poll_some = [&] {
    for (std::uint64_t left = below(4); left != 0; --left) poll(below(2));
  };
  for (const std::size_t end : order) {
    const QpNumber number = ends_[end]->queues[connection]->number;
    expect(ends_[end]->adapter->modify(number, QueuePairEvent::reset), "reset");
    poll_some();
  }
  for (std::size_t end = 0; end < 2; ++end) {
    Queue& queue = *ends_[end]->queues[connection];
    queue.under_way.clear();
    queue.sent.clear();
    queue.receives.clear();
    queue.first_id = queue.next_id;
    queue.first_receive = queue.next_receive;
    queue.first_psn = draw_first_psn(draws_);
  }
  for (const std::size_t end : order) {
    connect(end, connection);
    poll_some();
  }
  for (std::size_t end = 0; end < 2; ++end) {  // the model believes what is there
    Queue& queue = *ends_[end]->queues[connection];
    for (std::size_t word = 0; word < kWords; ++word) queue.newest[word] = queue.peer->target.word(word);
    std::uint64_t counted = 0;
    queue.peer->counter.load(0, std::as_writable_bytes(std::span(&counted, 1)));
    queue.additions = counted;
  }
  ++summary_.resets;
  trace_.event(now_, "reset", connection);
}

bool ExpressWorld::at_rest() const {
  for (const auto& end : ends_) {
    for (const auto& queue : end->queues) {
      const bool waits = std::ranges::any_of(queue->under_way, [](const Posted& request) { return request.signalled; });
      if (waits || !queue->sent.empty()) return false;
    }
  }
  return true;
}

void ExpressWorld::settle() {
  for (int round = 0; !at_rest(); ++round) {
    if (!verdicts_.clean()) return;
    if (round == kRoundsToRest) return violate("does not come to rest");
    now_ += kRound;
    for (std::size_t end = 0; end < 2; ++end) {
      for (int i = 0; i < 4; ++i) post_receives(end);
      poll(end);
      take_completions(end);
    }
  }
  for (int round = 0; round < kRoundsAtRest; ++round) {
    now_ += kRound;
    for (std::size_t end = 0; end < 2; ++end) {
      poll(end);
      take_completions(end);
    }
  }
}

void ExpressWorld::judge() {
  for (const auto& end : ends_) {
    for (const auto& queue : end->queues) {
      const auto where = fmt::format("end {}, connection {}", end->number, queue->connection);
      for (std::size_t word = 0; word < kWords; ++word) {
        const std::uint32_t holds = queue->peer->target.word(word);
        if (holds == queue->newest[word]) continue;
        violate(fmt::format("{}: word {} of the peer holds {}, and was last written by {}", where, word, holds,
                            queue->newest[word]));
      }
      std::uint64_t counted = 0;
      queue->peer->counter.load(0, std::as_writable_bytes(std::span(&counted, 1)));
      if (counted != queue->additions)
        violate(fmt::format("{}: {} additions made {}", where, queue->additions, counted));
    }
    if (end->adapter->counters().retries_exceeded != 0) violate("a request was given up");
  }
}

ExpressSummary ExpressWorld::run(std::uint64_t operations) {
  for (std::uint64_t i = 0; i < operations && verdicts_.clean(); ++i) operation();
  if (verdicts_.clean()) settle();
  if (verdicts_.clean()) judge();
  for (const auto& end : ends_) {
    summary_.counters += end->adapter->counters();
    trace_.event(now_, "cells", end->adapter->counters().cells_sent, end->adapter->counters().direct_writes);
  }
  summary_.trace_hash = trace_.hash();
  summary_.violation = verdicts_.first();
  return summary_;
}

}  // namespace splitnic::sim
