// Requests of the peers, their completions, messages and events.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "parts.h"

namespace splitnic::sim {

using namespace fabric;

namespace {

constexpr std::size_t kSlotsOfLink = 10;  // more than requests of a link are in flight
constexpr std::uint64_t kAnswer = std::uint64_t{1} << 40U;

/// Cheap, and different for each message and place.
void fill(std::uint64_t seed, std::span<std::byte> to) {
  std::uint64_t state = seed * 0x9e37'79b9'7f4a'7c15U + 1;
  for (std::byte& byte : to) {
    state = state * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    byte = static_cast<std::byte>(state >> 56U);
  }
}

std::uint64_t word_of(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool writes(Operation operation) { return operation == Operation::rdma_write || operation == Operation::fetch_add; }

}  // namespace

void write_message(const MessageHead& head, std::span<std::byte> to) {
  std::memcpy(to.data(), &head, sizeof head);
  fill(head.life << 32U ^ head.number, to.subspan(sizeof head, head.bytes - sizeof head));
}

bool is_message(const MessageHead& head, std::span<const std::byte> bytes) {
  std::vector<std::byte> wanted(head.bytes);
  write_message(head, wanted);
  return std::ranges::equal(wanted, bytes);
}

// ---- requests

void PeersWorld::ask() {
  Peer& peer = *peers_[below(kPeers)];
  Link& link = peer.links[below(kServices)];
  if (link.failed || link.in_flight.size() >= scenario_.in_flight_max) return step();
  const bool messages_alone = link.service == Service::datagram;
  const std::size_t region = below(kRegions);
  if (messages_alone || regions_[region].busy || one_in(3)) return say(peer, link);
  const bool two = regions_[region].touch == TouchControl::one_touch && link.service == Service::reliable && one_in(2);
  if (two && link.in_flight.size() + 2 <= scenario_.in_flight_max) return use_twice(peer, link, region);
  Request request;
  request.region = region;
  use(peer, link, std::move(request));
}

void PeersWorld::say(Peer& peer, Link& link) {
  const bool datagram = link.service == Service::datagram;
  const std::size_t most = datagram ? scenario_.cell_payload - kRouteHeaderBytes : kMessageBytes;
  MessageHead head{link.life, link.sent, static_cast<std::uint32_t>(sizeof(MessageHead)), 0};
  head.bytes += static_cast<std::uint32_t>(below(most - sizeof(MessageHead)));
  WorkRequest work;
  if (datagram) {
    head.secret = one_in(10) ? 1 : 0;
    work.datagram = {link.handle, link.at_owner, head.secret != 0 ? kKey + 1 : kKey};
  }
  Request request;
  request.slot = static_cast<std::size_t>(link.service) * kSlotsOfLink + link.posted % kSlotsOfLink;
  write_message(head, peer.slot(request.slot));
  work.segments[0] = peer.segment(request.slot, head.bytes);
  link.lengths[link.sent++] = head.bytes;
  post(peer, link, std::move(request), work);
}

void PeersWorld::use(Peer& peer, Link& link, Request request) {
  Region& region = regions_[*request.region];
  request.opened = region.opened;
  request.was_open = region.open;
  request.slot = static_cast<std::size_t>(link.service) * kSlotsOfLink + link.posted % kSlotsOfLink;
  const bool reliable = link.service == Service::reliable;
  if (!reliable && region.touch == TouchControl::one_touch) return;
  const std::uint64_t kind = reliable ? below(3) : 0;
  request.operation = kind == 0 ? Operation::rdma_write : kind == 1 ? Operation::rdma_read : Operation::fetch_add;
  std::size_t bytes = 8;
  if (request.operation == Operation::fetch_add) {
    request.offset = 8 * below(kRegionBytes / 8);
  } else {
    const bool small = region.touch == TouchControl::one_touch && one_in(2);  // one cell, which may overtake another
    bytes = 1 + below(small ? kMessageBytes / 16 : kPlaceBytes);
    request.offset = below(kRegionBytes - bytes + 1);
  }
  WorkRequest work;
  work.operation = request.operation;
  work.remote = {region.address + request.offset, region.tag};
  work.segments[0] = peer.segment(request.slot, bytes);
  const auto there = std::span<const std::byte>(region.expected).subspan(request.offset, bytes);
  request.there.assign(there.begin(), there.end());
  if (request.operation == Operation::rdma_write) {
    fill(draws_.next(), peer.slot(request.slot).first(bytes));
    const auto written = peer.slot(request.slot).first(bytes);
    request.bytes.assign(written.begin(), written.end());
  } else if (request.operation == Operation::fetch_add) {
    work.swap_or_add = 1 + below(1'000'000);
    request.before = word_of(there);
    const std::uint64_t after = request.before + work.swap_or_add;
    const auto written = std::as_bytes(std::span(&after, 1));
    request.bytes.assign(written.begin(), written.end());
  }
  region.busy = true;
  region.offset = request.offset;
  region.maybe = region.open ? request.bytes : std::vector<std::byte>{};
  region.whole_at_end = false;
  region.must_land = !reliable && region.open && !paths_[peer.number]->lossy();
  post(peer, link, std::move(request), work);
}

/// Two writes to a one-touch region, one behind the other. The second one is refused, or it overtakes the first one,
/// which is refused then.
void PeersWorld::use_twice(Peer& peer, Link& link, std::size_t number) {
  constexpr std::size_t kLeast = 8;
  Region& region = regions_[number];
  region.first_of_two = kLeast + below(50);
  const std::size_t bytes = region.first_of_two + kLeast + below(50);
  region.busy = true;
  region.offset = below(kRegionBytes - bytes + 1);
  region.whole_at_end = region.must_land = false;
  std::vector<std::byte> written(bytes);
  fill(draws_.next(), written);
  region.maybe.clear();
  for (const bool first : {true, false}) {
    Request request;
    request.region = number;
    request.opened = region.opened;
    request.was_open = region.open;
    request.of_two = true;
    request.operation = Operation::rdma_write;
    const std::size_t begin = first ? 0 : region.first_of_two;
    const auto part = std::span(written).subspan(begin, first ? region.first_of_two : bytes - begin);
    request.offset = region.offset + begin;
    request.bytes.assign(part.begin(), part.end());
    request.slot = static_cast<std::size_t>(link.service) * kSlotsOfLink + link.posted % kSlotsOfLink;
    std::ranges::copy(part, peer.slot(request.slot).begin());
    WorkRequest work;
    work.operation = request.operation;
    work.remote = {region.address + request.offset, region.tag};
    work.segments[0] = peer.segment(request.slot, part.size());
    const std::vector<std::byte> before = region.maybe;
    if (region.open) region.maybe.insert(region.maybe.end(), part.begin(), part.end());
    if (post(peer, link, std::move(request), work)) continue;
    region.maybe = before;
    return;
  }
}

bool PeersWorld::post(Peer& peer, Link& link, Request request, WorkRequest work) {
  request.id = work.id = link.posted++;
  work.segment_count = 1;
  count(to_string(work.operation), request.id);
  if (peer.adapter->post_send(link.at_peer, work) != Status::ok) {
    // A refusal of an earlier request may have ended the queue pair, and its completion is not polled yet.
    if (peer.adapter->state(link.at_peer) != QueuePairState::error) violate("a good request is refused");
    link.failed = true;
    if (request.region) regions_[*request.region].maybe.clear();
    return false;
  }
  link.in_flight.push_back(std::move(request));
  return true;
}

void PeersWorld::answer(Peer& peer, Link& link) {
  const MessageHead head{link.life, link.answers, static_cast<std::uint32_t>(sizeof(MessageHead) + below(600)), 2};
  const auto place = std::span(outgoing_).subspan(peer.number * kPlaceBytes, kPlaceBytes);
  write_message(head, place);
  WorkRequest work;
  work.id = kAnswer;
  work.segments[0] = {place.data(), head.bytes, outgoing_tag_};
  work.segment_count = 1;
  if (owner_->post_send(link.at_owner, work) != Status::ok) return;  // it has failed meanwhile
  link.answering = true;
  ++link.answers;
}

/// Not always at once, so that there may be none when a message comes.
void PeersWorld::refill() {
  if (faults_.below(4) != 0) return;
  for (std::size_t i = 0; i < kPlaces; ++i) {
    if (posted_[i]) continue;
    const auto place = std::span(inbox_).subspan(i * kPlaceBytes, kPlaceBytes);
    std::ranges::fill(place, kUntouched);
    ReceiveRequest receive;
    receive.id = i;
    receive.segment = {place.data(), static_cast<std::uint32_t>(kPlaceBytes), inbox_tag_};
    const bool shared = i < kSharedReceives;
    const std::size_t peer = shared ? 0 : (i - kSharedReceives) / kDatagramReceives;
    const auto& datagrams = peers_[peer]->links[static_cast<std::size_t>(Service::datagram)];
    const Status status =
        shared ? owner_->post_shared_receive(shared_, receive) : owner_->post_receive(datagrams.at_owner, receive);
    if (status != Status::ok) return violate("a receive is refused");
    posted_[i] = true;
  }
}

// ---- completions and events

void PeersWorld::take_all() {
  std::array<Completion, 32> done;
  for (std::size_t i = 0, got = owner_->poll_completions(completions_, done); i < got; ++i) take_at_owner(done[i]);
  std::array<AsyncEvent, 32> events;
  for (auto& peer : peers_) {
    if (peer->adapter == nullptr) continue;
    const std::size_t got = peer->adapter->poll_completions(peer->completions, done);
    for (std::size_t i = 0; i < got; ++i) take_at_peer(*peer, done[i]);
    const std::size_t count = peer->adapter->poll_events(events);
    for (std::size_t i = 0; i < count; ++i) take_event(peer->number, events[i]);
  }
  for (std::size_t i = 0, got = owner_->poll_events(events); i < got; ++i) take_event(std::nullopt, events[i]);
}

void PeersWorld::take_at_owner(const Completion& done) {
  if (done.receive) {
    const auto place = std::span<const std::byte>(inbox_).subspan(done.id * kPlaceBytes, kPlaceBytes);
    posted_[done.id] = false;
    if (done.status == CompletionStatus::success) arrived(done, place, done.has_route ? kRouteHeaderBytes : 0);
    return;
  }
  for (auto& peer : peers_) {
    Link& link = peer->links[static_cast<std::size_t>(Service::reliable)];
    if (link.at_owner != done.queue_pair) continue;
    link.answering = false;
    if (done.status == CompletionStatus::success) continue;
    if (!may_fail(link)) violate("an answer failed on a good connection");
    link.failed = true;
  }
}

void PeersWorld::arrived(const Completion& done, std::span<const std::byte> place, std::size_t skip) {
  MessageHead head;
  std::memcpy(&head, place.data() + skip, sizeof head);
  count("arrived", head.number);
  for (auto& peer : peers_) {
    for (Link& link : peer->links) {
      if (link.life != head.life) continue;
      const auto sent = link.lengths.find(head.number);
      if (sent == link.lengths.end()) return violate("a message arrives that was not sent, or came before");
      const bool whole = head.bytes == sent->second && done.bytes == head.bytes + skip &&
                         is_message(head, place.subspan(skip, head.bytes));
      if (!whole) return violate("a message is not as it was sent");
      const auto behind = place.subspan(done.bytes);
      // What an unreliable message lost in the middle leaves its receive, with what had come, to the next one.
      const bool untouched = link.service == Service::unreliable ||
                             std::ranges::all_of(behind, [](std::byte byte) { return byte == kUntouched; });
      if (!untouched) return violate("something lies behind a message");
      if (head.secret != 0) return violate("a datagram arrives whose key is wrong");
      const bool right = done.queue_pair == link.at_owner && (skip == 0 || done.source == link.at_peer || link.failed);
      if (!right) return violate("a message arrives at another queue pair");
      return arrived(*peer, link, head);
    }
  }
  violate("a message of a life that is over arrives");
}

void PeersWorld::arrived(Peer& peer, Link& link, const MessageHead& head) {
  if (link.service == Service::datagram) {
    const bool fresh = link.seen.insert(head.number).second;
    if (!fresh && !paths_[peer.number]->lossy()) violate("a datagram comes twice where nothing is repeated");
    return;
  }
  if (link.service == Service::reliable && head.number != link.next) return violate("a message is missing or early");
  if (head.number < link.next) return violate("a message comes again, or too late");
  link.next = head.number + 1;
  link.lengths.erase(link.lengths.begin(), link.lengths.upper_bound(head.number));
  if (link.service == Service::reliable && !link.failed && !link.answering && one_in(3)) answer(peer, link);
}

void PeersWorld::answered(Peer& peer, Link& link, const Completion& done) {
  if (done.status != CompletionStatus::success) return;
  const auto place = peer.slot(Peer::kSlots);
  MessageHead head;
  std::memcpy(&head, place.data(), sizeof head);
  const bool expected = head.life == link.life && head.number == link.answered && head.bytes == done.bytes;
  if (!expected || !is_message(head, place.first(done.bytes))) return violate("an answer is not the next one");
  ++link.answered;
  ReceiveRequest next;
  next.segment = peer.segment(Peer::kSlots, kPlaceBytes);
  static_cast<void>(peer.adapter->post_receive(link.at_peer, next));  // unless it has failed meanwhile
}

void PeersWorld::take_at_peer(Peer& peer, const Completion& done) {
  const auto found =
      std::ranges::find_if(peer.links, [&](const Link& link) { return link.at_peer == done.queue_pair; });
  if (found == peer.links.end()) return;  // of a life that is over
  if (done.receive) return answered(peer, *found, done);
  if (found->in_flight.empty() || found->in_flight.front().id != done.id) {
    return violate("a request ends out of its order, or twice");
  }
  const Request request = std::move(found->in_flight.front());
  found->in_flight.pop_front();
  if (done.status == CompletionStatus::success) return carried_out(peer, *found, request);
  failed(peer, *found, request, done.status);
}

bool PeersWorld::good_all_the_while(const Request& request) const {
  if (!request.region) return true;
  const Region& region = regions_[*request.region];
  return !request.of_two && request.was_open && region.open && region.opened == request.opened;
}

/// Has failed, or a request that is under way can be refused.
bool PeersWorld::may_fail(const Link& link) const {
  const auto doubtful = [this](const Request& request) { return !good_all_the_while(request); };
  return link.failed || (link.service == Service::reliable && std::ranges::any_of(link.in_flight, doubtful));
}

void PeersWorld::carried_out(Peer& peer, Link& link, const Request& request) {
  if (!request.region || link.service != Service::reliable) return;  // what arrives says it
  if (request.of_two) return carried_out_of_two(request);
  Region& region = regions_[*request.region];
  region.busy = false;
  if (!request.was_open) return violate("a request on an ended tag succeeds");
  const auto slot = peer.slot(request.slot);
  if (request.operation == Operation::rdma_read &&
      !std::ranges::equal(slot.first(request.there.size()), request.there)) {
    return violate("a read brings something else than is there");
  }
  if (request.operation == Operation::fetch_add && word_of(slot) != request.before) {
    return violate("an addition was carried out twice, or found something else");
  }
  if (!writes(request.operation)) return;
  if (!good_all_the_while(request)) {
    if (!region.whole_at_end) violate("a write succeeded that its tag's end had cut off");
    return;
  }
  if (!region.holds(request.offset, request.bytes)) return violate("a write that succeeded is not there");
  std::ranges::copy(request.bytes, region.expected.begin() + static_cast<std::ptrdiff_t>(request.offset));
  region.maybe.clear();
  if (region.touch != TouchControl::one_touch) return;
  region.open = false;
  const ProtectionEntry* entry = owner_->table().find(region.tag);
  if (entry != nullptr && entry->valid) violate("a one-touch tag outlives its write");
  count("one-touch tag written", request.id);
}

/// Stays busy until the world rests: the other write is refused, and judge_two() looks at both.
void PeersWorld::carried_out_of_two(const Request& request) {
  const Region& region = regions_[*request.region];
  if (!request.was_open) return violate("a request on an ended tag succeeds");
  if (request.offset != region.offset) return violate("the second write to a one-touch tag succeeds");
  const bool same = region.open && region.opened == request.opened;
  const bool there = same ? region.holds(request.offset, request.bytes) : region.whole_at_end;
  if (!there) return violate("a write that succeeded is not there");
  count("one-touch tag written, and once more", request.id);
}

void PeersWorld::failed(Peer& peer, Link& link, const Request& request, CompletionStatus status) {
  count(to_string(status), request.id);
  const bool refused = status == CompletionStatus::remote_access_error ||
                       // A terminate message that was lost is told again by a syndrome, which knows fewer reasons.
                       (status == CompletionStatus::remote_operation_error && paths_[peer.number]->lossy());
  const bool flushed = status == CompletionStatus::flushed || status == CompletionStatus::outcome_unknown;
  if (refused) {
    if (good_all_the_while(request)) return violate("a request on a good tag is refused");
    link.failed = true;
  } else if (flushed && (may_fail(link) || !good_all_the_while(request))) {
    link.failed = true;  // a later request may be refused before this one's answer came
  } else {
    return violate(fmt::format("{} {} of peer {} ends as {} on a good connection", to_string(request.operation),
                               request.id, peer.number, to_string(status)));
  }
}

void PeersWorld::take_event(std::optional<std::size_t> number, const AsyncEvent& event) {
  trace_.event(now_, to_string(event.kind), event.queue_pair.value);
  if (event.kind == AsyncEventKind::path_down) {
    const auto of = number ? number : crashed_;
    if (!of || of != crashed_) return violate("a path is down that nobody cut");
    Peer& peer = *peers_[*of];
    if (!number && event.path != peer.path) return violate("another path is down than the one that was cut");
    (number ? peer.path_down : peer.owner_path_down) = true;
    return;
  }
  if (event.kind != AsyncEventKind::queue_pair_fatal)
    return violate(fmt::format("an event: {}", to_string(event.kind)));
  for (auto& peer : peers_) {
    for (Link& link : peer->links) {
      const bool its =
          number ? number == peer->number && link.at_peer == event.queue_pair : link.at_owner == event.queue_pair;
      if (!its || link.failed) continue;
      if (!may_fail(link)) return violate("a queue pair fails that nothing was refused on");
      link.failed = true;
    }
  }
}

}  // namespace splitnic::sim
