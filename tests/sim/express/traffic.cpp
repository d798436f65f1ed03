// Requests, receives, completions, and what they must say.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "parts.h"
#include "world.h"

namespace splitnic::sim {

using namespace fabric;

namespace {

constexpr std::size_t kMostAtOnce = 8;  // requests of a list, receives, completions
constexpr std::byte kUsed{0xdd};        // where inline data was, after the post
constexpr std::byte kUnread{0xff};      // where an answer will be

std::byte byte_of(std::uint32_t number, std::size_t at) { return static_cast<std::byte>(number * 7 + at); }

}  // namespace

// ---- requests

void ExpressWorld::post_sends(std::size_t number) {
  End& end = *ends_[number];
  Queue& queue = *end.queues[below(end.queues.size())];
  std::vector<Draft> drafts;
  for (std::uint64_t left = 1 + below(6); left != 0 && queue.under_way.size() + drafts.size() < kPlaces - 2; --left) {
    drafts.push_back(draw_request(queue, drafts));
  }
  if (drafts.empty()) return;
  // Sooner or later one of the list has a completion, which says that those before it have ended.
  drafts.back().work.signalled = drafts.back().request.signalled = true;
  std::vector<WorkRequest> list;
  for (const Draft& draft : drafts) list.push_back(draft.work);
  std::size_t done = 0;
  const Status status = end.adapter->post_send(queue.number, list, done);
  if (status != Status::queue_full) expect(status, "post");
  trace_.event(now_, "post", number, done);
  for (std::size_t i = 0; i < done; ++i) posted(queue, drafts[i]);
}

/// list: those before it.
ExpressWorld::Draft ExpressWorld::draw_request(Queue& queue, std::vector<Draft>& list) {
  Draft draft;
  Posted& request = draft.request;
  const auto counted = [&](auto is_one) {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(list, [&](const Draft& each) { return is_one(each.request); }));
  };
  draft.work.id = request.id = queue.next_id + list.size();
  request.place = (queue.next_place + list.size()) % kPlaces;
  request.signalled = draft.work.signalled = !one_in(4);
  draft.work.fence = one_in(10);
  draft.work.solicited = one_in(5);
  request.words = static_cast<std::uint32_t>(1 + below(one_in(3) ? kPlaceBytes / 4 : 24));
  request.first_word = static_cast<std::uint32_t>(below(kWords - request.words + 1));
  const std::uint64_t kind = below(12);
  if (kind < 4) {
    draw_send(queue, draft, queue.sends + counted([](const Posted& each) { return each.sends(); }) + 1);
  } else if (kind < 9) {
    draw_write(queue, draft, queue.writes + counted([](const Posted& each) { return each.writes(); }) + 1);
  } else if (kind < 11) {
    draw_read(queue, draft, list);
  } else {
    draft.work.operation = Operation::fetch_add;
    draft.work.remote = {queue.peer->counter.address, queue.peer->counter.tag};
    draft.work.swap_or_add = 1;
    draft.work.segments[0] = queue.places.segment(request.place * kPlaceBytes, sizeof(std::uint64_t));
    request.words = 0;
    request.added_before =
        queue.additions + counted([](const Posted& each) { return each.operation == Operation::fetch_add; });
  }
  request.operation = draft.work.operation;
  draft.work.segment_count = 1;
  if (request.sends() || request.writes()) cut(draft);
  return draft;
}

void ExpressWorld::draw_send(Queue& queue, Draft& draft, std::uint32_t number) {
  Posted& request = draft.request;
  draft.work.operation = one_in(2) ? Operation::send : Operation::send_with_immediate;
  draft.work.immediate = request.number = number;
  const std::size_t at = request.place * kPlaceBytes;
  queue.places.store(at, std::as_bytes(std::span(&number, 1)));
  for (std::size_t i = sizeof number; i < 4U * request.words; ++i) queue.places.own[at + i] = byte_of(number, i);
  draft.work.segments[0] = queue.places.segment(at, 4 * request.words);
}

void ExpressWorld::draw_write(Queue& queue, Draft& draft, std::uint32_t number) {
  Posted& request = draft.request;
  draft.work.operation = one_in(3) ? Operation::rdma_write_with_immediate : Operation::rdma_write;
  draft.work.immediate = request.number = number;
  draft.work.remote = {queue.peer->target.address + 4 * request.first_word, queue.peer->target.tag};
  const std::size_t at = request.place * kPlaceBytes;
  for (std::size_t i = 0; i < request.words; ++i) queue.places.store(at + 4 * i, std::as_bytes(std::span(&number, 1)));
  draft.work.segments[0] = queue.places.segment(at, 4 * request.words);
}

void ExpressWorld::draw_read(Queue& queue, Draft& draft, const std::vector<Draft>& before) {
  Posted& request = draft.request;
  draft.work.operation = Operation::rdma_read;
  draft.work.remote = {queue.peer->target.address + 4 * request.first_word, queue.peer->target.tag};
  const auto first = queue.newest.begin() + request.first_word;
  request.at_least.assign(first, first + request.words);
  for (const Draft& draft_before : before) {
    const Posted& write = draft_before.request;
    if (!write.writes()) continue;
    for (std::uint32_t word = write.first_word; word != write.first_word + write.words; ++word) {
      if (word - request.first_word < request.words) request.at_least[word - request.first_word] = write.number;
    }
  }
  request.in_sinks = queue.has_sinks && one_in(2);
  Area& into = request.in_sinks ? queue.sinks : queue.places;
  const std::vector<std::byte> unread(4 * request.words, kUnread);
  into.store(request.place * kPlaceBytes, unread);
  draft.work.segments[0] = into.segment(request.place * kPlaceBytes, 4 * request.words);
}

/// Some messages are inline, some have two segments.
void ExpressWorld::cut(Draft& draft) {
  LocalSegment& whole = draft.work.segments[0];
  if (whole.bytes <= kMostInline && one_in(5)) {
    draft.work.inline_data = true;
  } else if (one_in(4)) {
    const auto bytes = static_cast<std::uint32_t>(1 + below(whole.bytes - 1));
    draft.work.segments[1] = {whole.address + bytes, whole.bytes - bytes, whole.tag};
    whole.bytes = bytes;
    draft.work.segment_count = 2;
  }
}

void ExpressWorld::posted(Queue& queue, Draft& draft) {
  const Posted& request = draft.request;
  queue.next_id = request.id + 1;
  queue.next_place = (request.place + 1) % kPlaces;
  if (request.sends()) queue.sends = request.number;
  if (request.writes()) {
    queue.writes = request.number;
    std::fill_n(queue.newest.begin() + request.first_word, request.words, request.number);
  }
  if (request.operation == Operation::fetch_add) ++queue.additions;
  if (request.arrives()) queue.sent.push_back({request.operation, request.number, 4 * request.words});
  // Inline data is the program's again, as soon as it is posted.
  if (draft.work.inline_data) {
    queue.places.store(request.place * kPlaceBytes, std::vector<std::byte>(kPlaceBytes, kUsed));
  }
  queue.under_way.push_back(request);
  if (scenario_.plant == ExpressPlant::swap && !planted_ && queue.sent.size() > 1) {
    std::swap(queue.sent.back(), queue.sent[queue.sent.size() - 2]);
    planted_ = true;
  }
}

// ---- receives

void ExpressWorld::post_receives(std::size_t number) {
  End& end = *ends_[number];
  Queue& queue = *end.queues[below(end.queues.size())];
  for (std::uint64_t left = 1 + below(6); left != 0; --left) {
    if (queue.shape->shared_receives ? !post_shared_receive(end) : !post_receive(end, queue)) return;
  }
}

/// False: there is no room for it.
bool ExpressWorld::post_receive(End& at, Queue& queue) {
  if (queue.receives.size() >= kReceivePlaces - 2) return false;
  const std::size_t place = queue.next_receive % kReceivePlaces;
  ReceiveRequest request;
  request.id = queue.next_receive;
  request.segment = queue.inbox.segment(place * kPlaceBytes, kPlaceBytes);
  const Status status = at.adapter->post_receive(queue.number, request);
  if (status == Status::queue_full) return false;
  expect(status, "receive");
  queue.receives.emplace_back(queue.next_receive++, place);
  return true;
}

/// As post_receive(). At times the queue's depth or limit changes, too.
bool ExpressWorld::post_shared_receive(End& at) {
  if (at.shared_places.size() >= kSharedPlaces - kMostAtOnce) return false;
  std::size_t place = at.next_shared % kSharedPlaces;
  const auto is_used = [&] {
    return std::ranges::any_of(at.shared_places, [&](const auto& each) { return each.second == place; });
  };
  while (is_used()) place = (place + 1) % kSharedPlaces;
  const auto first = static_cast<std::uint32_t>(one_in(3) ? 4 * below(100) : kPlaceBytes);
  ReceiveRequest request;
  request.id = at.next_shared;
  request.segment = at.shared_inbox.segment(place * kPlaceBytes, first);
  const LocalSegment rest =
      at.shared_inbox.segment(place * kPlaceBytes + first, static_cast<std::uint32_t>(kPlaceBytes) - first);
  if (rest.bytes != 0) request.more = std::span(&rest, 1);
  const Status status = at.adapter->post_shared_receive(at.shared, request);
  if (status == Status::queue_full) return false;
  expect(status, "shared receive");
  at.shared_places[at.next_shared++] = place;
  if (one_in(4)) static_cast<void>(at.adapter->arm_limit(at.shared, 1 + below(at.shared_depth)));
  if (one_in(8)) {
    const std::size_t depth = 1 + below(2 * kReceiveDepth);
    if (at.adapter->resize_shared_receive_queue(at.shared, depth) == Status::ok) at.shared_depth = depth;
  }
  return true;
}

// ---- completions

void ExpressWorld::take_completions(std::size_t number) {
  End& end = *ends_[number];
  std::array<Completion, kMostAtOnce> taken;
  const auto room = std::span(taken).first(1 + below(kMostAtOnce));
  const std::size_t ends = end.adapter->poll_completions(end.sends, room);
  for (const Completion& done : room.first(ends)) {
    const bool swallow = scenario_.plant == ExpressPlant::swallow && !std::exchange(planted_, true);
    if (!swallow && verdicts_.clean()) ended(end, done);
  }
  const std::size_t messages = end.adapter->poll_completions(end.receives, room);
  for (const Completion& done : room.first(messages)) {
    if (verdicts_.clean()) arrived(end, done);
  }
  trace_.event(now_, "completions", ends, messages);
}

/// A request of this end. Those before it that make no completion have ended, too.
void ExpressWorld::ended(End& at, const Completion& done) {
  Queue* queue = find(at, done.queue_pair);
  if (queue == nullptr) return violate("a completion of an unknown queue pair");
  if (done.id < queue->first_id) return;  // of before the reset
  const auto what = fmt::format("end {}, connection {}, request {}, {}", at.number, queue->connection, done.id,
                                to_string(done.operation));
  if (done.status != CompletionStatus::success) return violate(fmt::format("{}: {}", what, to_string(done.status)));
  while (!queue->under_way.empty() && queue->under_way.front().id < done.id) {
    const Posted& before = queue->under_way.front();
    if (before.signalled) return violate(fmt::format("{} completed before {}", what, before.id));
    queue->under_way.pop_front();
  }
  if (queue->under_way.empty() || queue->under_way.front().id != done.id) {
    return violate(fmt::format("{} completed, and was not under way", what));
  }
  const Posted request = std::move(queue->under_way.front());
  queue->under_way.pop_front();
  if (request.operation != done.operation) return violate(what + " is of another operation");
  if (request.operation == Operation::rdma_read) return check_read(*queue, request);
  if (request.operation == Operation::fetch_add) {
    std::uint64_t before = 0;
    queue->places.load(request.place * kPlaceBytes, std::as_writable_bytes(std::span(&before, 1)));
    if (before != request.added_before) violate(fmt::format("{} saw {}, not {}", what, before, request.added_before));
    return;
  }
  const bool plants = scenario_.plant == ExpressPlant::byte && request.writes() && request.number == queue->writes;
  if (plants && !std::exchange(planted_, true)) {
    const std::uint32_t wrong = ~request.number;
    queue->peer->target.store(4 * request.first_word, std::as_bytes(std::span(&wrong, 1)));
  }
}

void ExpressWorld::check_read(Queue& queue, const Posted& request) {
  const Area& from = request.in_sinks ? queue.sinks : queue.places;
  for (std::uint32_t i = 0; i < request.words; ++i) {
    const std::uint32_t value = from.word(request.place * kPlaceBytes / 4 + i);
    const std::uint32_t newest = queue.newest[request.first_word + i];
    if (value >= request.at_least[i] && value <= newest) continue;
    return violate(fmt::format("connection {}: read {} returned {} for word {}, which held {} to {} meanwhile",
                               queue.connection, request.id, value, request.first_word + i, request.at_least[i],
                               newest));
  }
}

void ExpressWorld::arrived(End& at, const Completion& done) {
  Queue* queue = find(at, done.queue_pair);
  if (queue == nullptr) return violate("a receive of an unknown queue pair");
  const auto what = fmt::format("end {}, connection {}, receive {}", at.number, queue->connection, done.id);
  const std::byte* place = nullptr;
  if (queue->shape->shared_receives) {
    const auto posted = at.shared_places.find(done.id);
    if (posted == at.shared_places.end()) return violate(what + " was not posted");
    place = &at.shared_inbox.own[posted->second * kPlaceBytes];
    at.shared_places.erase(posted);
  } else {
    if (done.id < queue->first_receive) return;  // of before the reset
    if (queue->receives.empty() || queue->receives.front().first != done.id) return violate(what + " is out of order");
    place = &queue->inbox.own[queue->receives.front().second * kPlaceBytes];
    queue->receives.pop_front();
  }
  if (done.status != CompletionStatus::success) return violate(fmt::format("{}: {}", what, to_string(done.status)));
  std::deque<Sent>& sent = queue->peer->sent;
  if (sent.empty()) return violate(what + " has a message that was not sent");
  check_message(sent.front(), done, place);
  sent.pop_front();
  ++summary_.arrived;
}

void ExpressWorld::check_message(const Sent& sent, const Completion& done, const std::byte* place) {
  const bool write = sent.operation == Operation::rdma_write_with_immediate;
  if (write != (done.operation == Operation::rdma_write_with_immediate)) {
    return violate(fmt::format("a {} came in place of a {}", to_string(done.operation), to_string(sent.operation)));
  }
  if (done.bytes != sent.bytes) return violate(fmt::format("a message of {} bytes has {}", sent.bytes, done.bytes));
  const bool has_immediate = sent.operation != Operation::send;
  if (has_immediate != done.has_immediate || (has_immediate && done.immediate != sent.number)) {
    return violate(fmt::format("message {} came in place of {}", done.immediate, sent.number));
  }
  if (write) return;
  std::uint32_t number = 0;
  std::memcpy(&number, place, sizeof number);
  if (number != sent.number) return violate(fmt::format("message {} came in place of {}", number, sent.number));
  for (std::size_t i = sizeof number; i < done.bytes; ++i) {
    if (place[i] != byte_of(number, i)) return violate(fmt::format("byte {} of message {} differs", i, number));
  }
}

}  // namespace splitnic::sim
