// Time, connections, crashes, and what is true at rest.
#include "world.h"

#include <fmt/format.h>

#include <algorithm>

#include "../first_psn.h"
#include "parts.h"

namespace splitnic::sim {

using namespace fabric;

namespace {

constexpr int kStepsToRest = 200'000;
constexpr int kIdleStepsAtRest = 8;  // of up to 1 ms: longer than an acknowledgement may take
constexpr Duration kLongestJump = std::chrono::milliseconds(1);
constexpr Rights kLocal = Right::local_read | Right::local_write;
constexpr Rights kOpen = kLocal | Right::remote_read | Right::remote_write | Right::remote_atomic;

}  // namespace

PeersWorld::PeersWorld(const PeersScenario& scenario, bool trace)
    : PathsWorld(scenario.seed, scenario.paths, trace),
      scenario_(scenario),
      inbox_(kPlaces * kPlaceBytes, kUntouched),
      memory_(kRegions * kRegionBytes) {
  owner_ = std::make_unique<ChannelAdapter>(adapter_options(), adapters_);
  completions_ = owner_->create_completion_queue(4096);
  domain_ = owner_->allocate_domain();
  shared_ = owner_->create_shared_receive_queue(domain_, kSharedReceives).value();
  inbox_tag_ = owner_->register_memory(domain_, inbox_, kLocal).value();
  posted_.resize(kPlaces);
  outgoing_.resize(kPeers * kPlaceBytes);
  outgoing_tag_ = owner_->register_memory(domain_, outgoing_, kLocal).value();
  regions_.resize(kRegions);
  for (std::size_t i = 0; i < kRegions; ++i) {
    regions_[i].memory = std::span(memory_).subspan(i * kRegionBytes, kRegionBytes);
    regions_[i].expected.resize(kRegionBytes);
    open(i);
  }
  for (std::size_t i = 0; i < kPeers; ++i) {
    peers_.push_back(std::make_unique<Peer>());
    peers_[i]->number = i;
    peers_[i]->memory.resize((Peer::kSlots + 1) * kPlaceBytes);
    peers_[i]->path = owner_->attach(paths_[i]->cells(0)).value();
    make_peer(i);
    for (const Service service : {Service::reliable, Service::unreliable, Service::datagram}) connect(i, service);
  }
}

PeersWorld::~PeersWorld() = default;

AdapterOptions PeersWorld::adapter_options() {
  AdapterOptions options;
  options.cell_payload_bytes = scenario_.cell_payload;
  options.max_message_bytes = 4096;
  options.ack_timeout = std::chrono::milliseconds(1);
  options.retry_count = 10'000;
  options.receiver_not_ready_delay = std::chrono::microseconds(50);
  options.receiver_not_ready_retries = QueuePairSettings::kWithoutEnd;
  options.numbers = take_numbers(node_, options);
  return options;
}

PeersSummary PeersWorld::run(std::uint64_t operations) {
  while (summary_.operations < operations && verdicts_.clean()) operation();
  if (verdicts_.clean()) settle();
  const AdapterCounters& counters = owner_->counters();
  summary_.counts["cells out of sequence"] = counters.dropped_out_of_sequence;
  summary_.counts["duplicates"] = counters.dropped_duplicate;
  summary_.counts["accesses refused"] = counters.access_refused;
  summary_.counts[kPlacedEarly] = counters.placed_early;
  summary_.counts[kTouchedTwice] = counters.touched_twice;
  summary_.violation = verdicts_.first();
  summary_.trace_hash = trace_.hash();
  return summary_;
}

void PeersWorld::count(const std::string& what, std::uint64_t number) {
  ++summary_.counts[what];
  trace_.event(now_, what, number);
}

void PeersWorld::operation() {
  ++summary_.operations;
  if (one_in(scenario_.crash_gap)) return crash();
  if (one_in(400)) return settle();
  const std::size_t region = below(kRegions);
  if (one_in(12)) {
    if (regions_[region].open) close(region);
    if (one_in(2)) open(region);
  } else {
    ask();
  }
  if (one_in(3)) step();
}

/// A moment: what is due arrives, those who are awake poll.
void PeersWorld::step() {
  std::size_t moved = advance_paths();
  if (faults_.below(6) != 0) moved += owner_->poll(now_);
  for (auto& peer : peers_) {
    if (peer->adapter != nullptr && faults_.below(6) != 0) moved += peer->adapter->poll(now_);
  }
  take_all();
  refill();
  idle_steps_ = moved == 0 ? idle_steps_ + 1 : 0;
  Duration pass = std::chrono::microseconds(2);
  if (idle_steps_ != 0) {
    Time next = next_event(std::min(now_ + kLongestJump, owner_->next_deadline()));
    for (const auto& peer : peers_) next = std::min(next, peer->adapter->next_deadline());
    pass = std::max(pass, next - now_);
  }
  now_ += pass;
}

bool PeersWorld::at_rest() const {
  // The owner may wait for ever for the rest of an unacknowledged message that got lost.
  if (idle_steps_ < kIdleStepsAtRest) return false;
  return paths_at_rest() && std::ranges::none_of(peers_, [](const auto& peer) {
           return peer->adapter->outstanding() || std::ranges::any_of(peer->links, [](const Link& link) {
                    return !link.in_flight.empty() || link.answering;
                  });
         });
}

std::string PeersWorld::restless() const {
  std::string who;
  for (const auto& peer : peers_) {
    const bool moving = !paths_[peer->number]->up() || !paths_[peer->number]->quiet();
    if (moving) who += fmt::format(" the path to peer {}", peer->number);
    if (peer->adapter->outstanding()) who += fmt::format(" peer {}", peer->number);
    for (const Link& link : peer->links) {
      if (!link.in_flight.empty() || link.answering) {
        who += fmt::format(" {} requests of service {} of peer {}{}", link.in_flight.size(),
                           static_cast<int>(link.service), peer->number, link.failed ? ", failed" : "");
      }
    }
  }
  return who;
}

void PeersWorld::settle() {
  idle_steps_ = 0;
  for (int i = 0; verdicts_.clean() && !at_rest(); ++i) {
    if (i == kStepsToRest) return violate("the world does not come to rest: " + restless());
    step();
  }
  if (!verdicts_.clean()) return;
  take_all();
  judge();
  revive();
}

/// At rest: everything on lossless paths has arrived, and every byte of the owner's memory is as it must be.
void PeersWorld::judge() {
  for (Region& region : regions_) {
    if (region.must_land && region.open && !region.holds(region.offset, region.maybe)) {
      violate("an unacknowledged write got lost where nothing is lost");
    }
    look(region);
    if (region.first_of_two != 0) judge_two(region);
    // The only write of a one-touch tag may have been carried out, and its success not been heard of.
    const ProtectionEntry* entry = owner_->table().find(region.tag);
    const bool touched = region.open && region.first_of_two == 0 && region.touch == TouchControl::one_touch &&
                         region.busy && (entry == nullptr || !entry->valid);
    if (touched && !region.holds(region.offset, region.maybe)) violate("a one-touch tag ended before its write did");
    // Placed early, and the stream failed before it caught up: the tag ends with the owner's queue pair, whenever that
    // is.
    const bool ends_later = region.open && region.first_of_two == 0 && region.touch == TouchControl::one_touch &&
                            entry != nullptr && entry->valid && entry->touched;
    if (ends_later) {
      if (!region.holds(region.offset, region.maybe)) violate("a one-touch tag is touched before its write");
      close(static_cast<std::size_t>(&region - regions_.data()));
    }
    const bool landed = region.maybe.size() >= sizeof(std::uint64_t) && region.holds(region.offset, region.maybe);
    if (landed && region.open && region.first_of_two == 0 && region.touch == TouchControl::one_touch && !touched) {
      violate("a one-touch tag outlives its write");
    }
    if (touched) region.open = false;
    region.expected.assign(region.memory.begin(), region.memory.end());
    region.maybe.clear();
    region.first_of_two = 0;
    region.busy = region.must_land = false;
  }
  for (auto& peer : peers_) {
    for (Link& link : peer->links) {
      const bool whole = link.service == Service::reliable && !link.failed;
      if (whole && link.next != link.sent) violate("a message that succeeded did not arrive");
      if (whole && link.answered != link.answers) violate("an answer that succeeded did not arrive");
      if (link.service != Service::reliable) link.lengths.clear();  // nothing may come after the rest
    }
  }
  if (owner_->table().find(inbox_tag_) == nullptr) violate("a tag of the process's memory has ended");
  for (const Region& region : regions_) {
    const ProtectionEntry* entry = owner_->table().find(region.tag);
    const bool opens = entry != nullptr && entry->valid;
    if (opens != region.open) violate(region.open ? "an open tag has ended" : "an ended tag still opens something");
  }
}

/// Two writes to a one-touch region: at most one of them is there, and only that ends the tag.
void PeersWorld::judge_two(Region& region) {
  if (!region.open) return;
  const auto first = region.first_maybe();
  const auto second = std::span<const std::byte>(region.maybe).subspan(first.size());
  const bool has_first = !first.empty() && region.holds(region.offset, first);
  const bool has_second = !second.empty() && region.holds(region.offset + first.size(), second);
  const ProtectionEntry* entry = owner_->table().find(region.tag);
  const bool ended = entry == nullptr || !entry->valid;
  if (has_first && has_second) violate("two writes to a one-touch tag were carried out");
  if (ended != (has_first || has_second)) {
    violate(ended ? "a one-touch tag ended without a write" : "a one-touch tag outlives a write");
  }
  if (ended) region.open = false;
}

/// Each byte is as it was, or as the one request in flight writes it.
void PeersWorld::look(const Region& region) {
  for (std::size_t i = 0; i < region.expected.size(); ++i) {
    if (region.memory[i] == region.expected[i]) continue;
    const bool may = region.open && i >= region.offset && i - region.offset < region.maybe.size();
    if (may && region.memory[i] == region.maybe[i - region.offset]) continue;
    return violate(fmt::format("byte {} of region {} has changed{}", i, &region - regions_.data(),
                               region.open ? "" : ", whose tag has ended"));
  }
}

void PeersWorld::open(std::size_t number) {
  Region& region = regions_[number];
  if (region.open) return;
  look(region);
  const ProtectionEntry* before = owner_->table().find(region.tag);
  if (before != nullptr) static_cast<void>(owner_->deregister(region.tag));  // a one-touch tag that was touched
  EntryOptions options;
  options.rights = kOpen;
  options.touch = one_in(3) ? TouchControl::one_touch : TouchControl::unlimited;
  region.tag = owner_->table().register_region(domain_, RegionMemory::of_process(region.memory), options).value();
  region.address = owner_->region_address(region.tag);
  region.touch = options.touch;
  region.open = true;
  ++region.opened;
  count("open", number);
}

/// Deregisters the region, also while requests for it are in flight.
void PeersWorld::close(std::size_t number) {
  Region& region = regions_[number];
  if (owner_->deregister(region.tag) != Status::ok) return violate("a tag can't be deregistered");
  look(region);
  region.expected.assign(region.memory.begin(), region.memory.end());
  if (!region.maybe.empty()) region.whole_at_end = region.holds(region.offset, region.first_maybe());
  region.maybe.clear();
  region.open = region.must_land = false;
  count("close", number);
}

// ---- ends

void PeersWorld::make_peer(std::size_t number) {
  Peer& peer = *peers_[number];
  peer.adapter = std::make_unique<ChannelAdapter>(paths_[number]->cells(1), adapter_options(), adapters_);
  peer.completions = peer.adapter->create_completion_queue(512);
  peer.domain = peer.adapter->allocate_domain();
  peer.tag = peer.adapter->register_memory(peer.domain, peer.memory, kLocal).value();
}

void PeersWorld::forget(Link& link) {
  Link fresh;
  fresh.service = link.service;
  fresh.at_owner = link.at_owner;
  fresh.life = ++lives_;
  link = std::move(fresh);
}

void PeersWorld::connect(std::size_t number, Service service) {
  Peer& peer = *peers_[number];
  Link& link = peer.links[static_cast<std::size_t>(service)];
  link.service = service;
  forget(link);
  QueuePairAttributes of_peer;
  of_peer.domain = peer.domain;
  of_peer.send_completions = of_peer.receive_completions = peer.completions;
  of_peer.acknowledged = service == Service::reliable;
  of_peer.datagram = service == Service::datagram;
  of_peer.queue_key = kKey;
  QueuePairAttributes of_owner = of_peer;
  of_owner.domain = domain_;
  of_owner.send_completions = of_owner.receive_completions = completions_;
  if (!of_owner.datagram) of_owner.shared_receives = shared_;
  link.at_peer = peer.adapter->create_queue_pair(of_peer).value();
  if (!of_owner.datagram || link.at_owner.value == 0) link.at_owner = owner_->create_queue_pair(of_owner).value();
  QueuePairPeer to_owner{link.at_owner, draw_first_psn(draws_), draw_first_psn(draws_)};
  QueuePairPeer to_peer{link.at_peer, to_owner.first_psn_expected, to_owner.first_psn_to_send};
  to_peer.path = peer.path;
  if (of_owner.datagram) {
    link.handle = peer.adapter->create_address_handle({}).value();
    to_owner = to_peer = QueuePairPeer{};
  }
  const bool bound = peer.adapter->connect(link.at_peer, to_owner) == Status::ok &&
                     (owner_->state(link.at_owner) == QueuePairState::ready_to_send ||
                      owner_->connect(link.at_owner, to_peer) == Status::ok);
  if (!bound) return violate("two queue pairs do not connect");
  if (service != Service::reliable) return;
  ReceiveRequest answer;
  answer.segment = peer.segment(Peer::kSlots, kPlaceBytes);
  if (peer.adapter->post_receive(link.at_peer, answer) != Status::ok) violate("a receive is refused");
}

/// Makes the queue pairs anew that a refusal or a crash has ended.
void PeersWorld::revive() {
  for (std::size_t number = 0; number < kPeers; ++number) {
    for (Link& link : peers_[number]->links) {
      if (!link.failed) continue;
      static_cast<void>(peers_[number]->adapter->destroy_queue_pair(link.at_peer));
      static_cast<void>(peers_[number]->adapter->destroy_address_handle(link.handle));
      if (link.service != Service::datagram) {
        if (owner_->destroy_queue_pair(link.at_owner) != Status::ok) violate("the owner has lost a queue pair");
      }
      take_all();
      connect(number, link.service);
    }
  }
}

/// Ends the epoch of one path. Everything else goes on.
void PeersWorld::crash() {
  const std::size_t number = below(kPeers);
  Peer& peer = *peers_[number];
  crashed_ = number;
  peer.path_down = peer.owner_path_down = false;
  for (Link& link : peer.links) link.failed = true;
  for (Region& region : regions_) region.must_land = false;
  const std::uint64_t how = below(4);
  count(how == 0   ? "crash: the owner's link starts anew"
        : how == 1 ? "crash: the peer's link starts anew"
        : how == 2 ? "crash: the way is cut"
                   : "crash: the peer dies",
        number);
  if (how < 2) {
    paths_[number]->restart(how);
  } else if (how == 2) {
    paths_[number]->cut();
    step();
    paths_[number]->restore();
  } else {
    for (Link& link : peer.links) link.in_flight.clear();
    peer.adapter.reset();
    paths_[number]->die(1, false);
    make_peer(number);
    for (Link& link : peer.links) {
      link.at_peer = {};
      link.handle = {};
    }
    peer.path_down = true;
  }
  for (int i = 0; verdicts_.clean() && !(paths_[number]->up() && peer.path_down && peer.owner_path_down); ++i) {
    if (i == kStepsToRest) return violate("a path does not come up after a crash");
    step();
  }
  settle();
  crashed_.reset();
}

}  // namespace splitnic::sim
