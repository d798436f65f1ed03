// Work requests: drawn, foretold, posted.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "world.h"

namespace splitnic::sim {

using namespace fabric;

namespace {

constexpr std::uint64_t kMostBytes = 1500;

}  // namespace

void MemoryWorld::request() {
  Draft draft = draw_request();
  foretell(*draft);
  if (in_flight_.size() >= scenario_.in_flight_max || must_settle(*draft)) {
    settle();
    if (!verdicts_.clean()) return;
    foretell(*draft);
  }
  draft->follower = follows_failure(*draft);
  post(std::move(draft));
}

MemoryWorld::Draft MemoryWorld::draw_request() {
  auto draft = std::make_unique<Request>();
  Request& request = *draft;
  request.number = ++numbers_;
  const bool of_the_owner = one_in(6);
  request.from = 2 * below(kPaths) + (of_the_owner ? 0 : 1);
  request.queue = below(kQueues);
  request.work.id = request.number;
  request.work.signalled = !one_in(8);
  request.work.solicited = one_in(8);
  request.work.fence = one_in(4);
  const std::uint64_t kind = below(100);
  if (kind < 30) {
    draw_write(request);
  } else if (kind < 52) {
    draw_read(request);
  } else if (kind < 66) {
    draw_atomic(request);
  } else if (kind < 80) {
    draw_send(request);
  } else {
    // The tables with the most in them are the owner's.
    if (one_in(2)) request.from &= ~std::size_t{1};
    if (kind < 90) {
      draw_bind(request);
    } else if (kind < 95) {
      request.work.operation = Operation::register_memory;
      request.memory = draw_registration(request);
    } else if (kind < 99) {
      request.work.operation = Operation::local_invalidate;
      request.work.invalidate = draw_to_invalidate(request.from, request.queue, false);
    } else {
      request.work.operation = Operation::delay;
      request.work.delay = std::chrono::microseconds(below(100));
    }
  }
  return draft;
}

void MemoryWorld::draw_write(Request& request) {
  const bool immediate = one_in(4);
  request.work.operation = immediate ? Operation::rdma_write_with_immediate : Operation::rdma_write;
  if (immediate) request.work.immediate = draws_.next32();
  draw_target(request, Right::remote_write, one_in(60) ? 4200 : kMostBytes);
  draw_sources(request, request.bytes);
  if (immediate) draw_receive(request, 0);
}

void MemoryWorld::draw_read(Request& request) {
  request.work.operation = Operation::rdma_read;
  draw_target(request, Right::remote_read, kMostBytes);
  const std::uint32_t first =
      request.bytes > 1 && one_in(4) ? 1 + static_cast<std::uint32_t>(below(request.bytes - 1)) : request.bytes;
  draw_sinks(request, first);
  // An answer's last segment ends a limited entry: in a list it would not be said whose that is.
  const auto limited = [&](Stag tag) {
    const auto* entry = from(request).reference.find(tag);
    return entry != nullptr && entry->touch != TouchControl::unlimited;
  };
  if (first != request.bytes && std::ranges::any_of(request.segment_tags, limited)) draw_sinks(request, request.bytes);
}

/// Where an answer goes: `first` bytes into one segment, the rest into another.
void MemoryWorld::draw_sinks(Request& request, std::uint32_t first) {
  const Queue& queue = from(request).queues[request.queue];
  request.work.segment_count = 0;
  request.segment_tags.clear();
  request.segments.clear();
  request.segments_verdict = "ok";
  for (const std::uint32_t bytes : {first, request.bytes - first}) {
    if (bytes == 0 && request.work.segment_count != 0) break;
    const Segment sink = draw_segment(request.from, queue, bytes, true, Right::local_write, true);
    request.work.segments[request.work.segment_count++] = sink.local;
    request.segment_tags.push_back(sink.local.tag);
    request.segments.insert(request.segments.end(), sink.pieces.begin(), sink.pieces.end());
    if (!sink.good() && request.segments_verdict == "ok") request.segments_verdict = sink.verdict;
  }
}

void MemoryWorld::draw_atomic(Request& request) {
  request.work.operation = one_in(2) ? Operation::compare_swap : Operation::fetch_add;
  draw_target(request, Right::remote_atomic, 8);
  draw_sinks(request, request.bytes);
  request.work.swap_or_add = draws_.next();
  request.work.compare = draws_.next();  // or what is there: apply_atomic()
}

void MemoryWorld::draw_send(Request& request) {
  const bool invalidate = one_in(2);
  request.work.operation = invalidate ? Operation::send_with_invalidate : Operation::send;
  if (invalidate) request.work.invalidate = draw_to_invalidate(request.from ^ 1U, request.queue, true);
  request.bytes = static_cast<std::uint32_t>(one_in(16) ? 0 : 1 + below(one_in(2) ? 64 : 700));
  draw_sources(request, request.bytes);
  draw_receive(request, request.bytes);
  if (one_in(80)) request.receive.reset();
  // Combined: registers first, then sends.
  if (one_in(8) && request.segments_verdict == "ok") request.memory = draw_registration(request);
}

/// Mostly a tag that may be invalidated so.
Stag MemoryWorld::draw_to_invalidate(std::size_t number, std::size_t queue, bool by_peer) {
  const Site& site = sites_[number];
  Stag tag{};
  for (int attempt = one_in(4) ? 15 : 0; attempt < 16; ++attempt) {
    tag = draw_tag(number);
    // What is in use by those before it is worth a try.
    for (const Draft& other : in_flight_) {
      const bool before = other->from == number && other->queue == queue && !other->segment_tags.empty();
      if (!by_peer && before && one_in(4)) tag = other->segment_tags[below(other->segment_tags.size())];
    }
    if (site.reference.table.invalidate(tag, site.queues[queue].consumer(), by_peer) == "ok") break;
  }
  return tag;
}

/// A gather list of so many bytes; inline at times, and where no memory is good for it.
void MemoryWorld::draw_sources(Request& request, std::uint32_t bytes) {
  const Queue& queue = from(request).queues[request.queue];
  WorkRequest& work = request.work;
  work.inline_data = one_in(bytes <= queue.inline_bytes ? 4 : 200);
  std::uint32_t left = bytes;
  const std::size_t parts = 1 + (one_in(3) ? below(3) : 0);
  for (std::size_t part = 0; part < parts && (left != 0 || part == 0); ++part) {
    const bool last = part + 1 == parts;
    const std::uint32_t here = last ? left : static_cast<std::uint32_t>(below(left + 1));
    left -= here;
    if (work.inline_data) {
      const std::size_t offset = below(Arena::kBytes - here);
      work.segments[work.segment_count++] = {arenas_[from(request).arena_image].at(offset), here, Stag{}};
      request.segments.push_back({from(request).arena_image, offset, here});
      continue;
    }
    const Segment segment = draw_segment(request.from, queue, here, true, Right::local_read, false);
    work.segments[work.segment_count++] = segment.local;
    request.segment_tags.push_back(segment.local.tag);
    request.segments.insert(request.segments.end(), segment.pieces.begin(), segment.pieces.end());
    if (!segment.good() && request.segments_verdict == "ok") request.segments_verdict = segment.verdict;
  }
}

/// What the target posts for the request to consume: good memory, mostly enough of it.
void MemoryWorld::draw_receive(Request& request, std::uint32_t bytes) {
  const std::size_t target = request.from ^ 1U;
  const Queue& queue = sites_[target].queues[request.queue];
  Receive receive;
  const std::uint64_t room = one_in(40) && bytes != 0 ? below(bytes) : bytes + (one_in(2) ? 0 : below(64));
  const std::uint64_t first = one_in(3) ? below(room + 1) : room;
  receive.segment_count = 0;
  for (const std::uint64_t part : {first, room - first}) {
    if (part == 0 && receive.segment_count != 0) break;
    LocalSegment& local = receive.segments[receive.segment_count++];
    if (part == 0) continue;
    Segment drawn;
    for (int attempt = 0; attempt < 4 && !drawn.good(); ++attempt) {
      drawn = draw_segment(target, queue, part, true, Right::local_write, false);
    }
    if (!drawn.good()) continue;  // no bytes, then
    local = drawn.local;
    receive.tags.push_back(local.tag);
    receive.pieces.insert(receive.pieces.end(), drawn.pieces.begin(), drawn.pieces.end());
  }
  receive.expected.id = request.number;
  receive.expected.receive = true;
  request.receive = std::move(receive);
}

void MemoryWorld::draw_bind(Request& request) {
  const Site& site = from(request);
  const Queue& queue = site.queues[request.queue];
  Bind bind;
  const int attempts = one_in(4) ? 1 : 10;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    bind.window = draw_tag(request.from, is_window);
    bind.region = draw_tag(request.from, is_region);
    const auto [address, length] = draw_range(site.reference.find(bind.region), 2 * Arena::kPage);
    bind.address = address;
    bind.length = one_in(8) ? 0 : length;
    bind.rights = one_in(20) ? draw_rights() : draw_rights(true);
    bind.touch = one_in(4) ? (one_in(2) ? TouchControl::one_touch : TouchControl::one_shot) : TouchControl::unlimited;
    bind.key = draw_key(bind.window);
    bind.zero_based = one_in(8);
    bind.invalidatable = !one_in(3);
    if (site.reference.table.bind(bind, queue.consumer()) == "ok") break;
  }
  request.work.operation = Operation::bind_window;
  request.memory = bind;
}

FastRegister MemoryWorld::draw_registration(Request& request) {
  const Site& site = from(request);
  FastRegister registration;
  const int attempts = one_in(4) ? 1 : 10;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    registration.tag = draw_tag(request.from, is_region);
    registration.key = draw_key(registration.tag);
    request.pages.clear();
    request.page_pieces = draw_pages(request.from, 1 + below(2), registration.pages, request.pages);
    registration.options = draw_options(request.from);
    if (!registration.options.base || *registration.options.base > (std::uint64_t{1} << 63U)) {
      registration.options.base = draws_.next() >> 2U;
    }
    const Consumer by = site.queues[request.queue].consumer();
    if (site.reference.table.fast_register(registration, by) == "ok") break;
  }
  return registration;
}

bool MemoryWorld::follows_failure(const Request& request) const {
  return std::ranges::any_of(in_flight_, [&](const Draft& other) {
    return other->fails() && other->from == request.from && other->queue == request.queue;
  });
}

/// Whether the request may be carried out before an earlier one, or although that is refused: a write that ends a
/// one-touch entry, over a path that reorders.
bool MemoryWorld::may_overtake(const Request& request) const {
  if (request.work.operation != Operation::rdma_write || !paths_[request.from / 2]->lossy()) return false;
  const ProtectionEntry* entry = to(request).adapter->table().find(request.work.remote.tag);
  return entry != nullptr && entry->touch == TouchControl::one_touch;
}

/// Whether what is in flight must end first, for the model to be able to foretell the request.
bool MemoryWorld::must_settle(const Request& request) const {
  const std::size_t path = request.from / 2;
  const bool bad = request.bad_segment;
  const bool overtakes = may_overtake(request);
  for (const Draft& other : in_flight_) {
    if (conflict(*other, request, overtakes)) return true;
    if (other->from / 2 != path || other->queue != request.queue) continue;
    const bool back = other->from != request.from;
    if (other->fails() && overtakes) return true;
    // A refusal ends both directions. Behind one, requests are flushed; those that are carried out here are not.
    const bool aside = other->refused_here || request.local() || request.changes_own_table();
    if (other->fails() && (back || aside || request.fails())) return true;
    // A queue without memory requests looks at segments at once, also behind an invalidation that waits for its turn.
    if (bad && !from(request).queues[request.queue].memory_requests && other->changes_own_table()) return true;
    // With others before it, a bad segment may be refused at once or in its turn.
    if (bad && (back || other->fails() || !request.fails_whole())) return true;
    if (request.fails() && (back || (paths_[path]->lossy() && other->answered()))) return true;
  }
  return false;
}

void MemoryWorld::post_receive(Request& request) {
  Receive& receive = *request.receive;
  ReceiveRequest posted;
  posted.id = receive.expected.id;
  posted.segment = receive.segments[0];
  posted.more = std::span(receive.segments).subspan(1, receive.segment_count - 1);
  const Status status = to(request).adapter->post_receive(to(request).queues[request.queue].number, posted);
  if (status != Status::ok) violate(fmt::format("a receive is refused as {}", to_string(status)));
}

/// A request with a bad segment was taken: it will fail in its turn.
bool MemoryWorld::fails_in_its_turn(Request& request) {
  Queue& queue = from(request).queues[request.queue];
  const bool others = std::ranges::any_of(
      in_flight_, [&](const Draft& other) { return other->from == request.from && other->queue == request.queue; });
  if (!queue.memory_requests || !others) return false;
  request.verdict = "bad segment in its turn";
  request.refusal = {CompletionStatus::local_protection_error, {}};
  end_taken(request.from / 2, request.queue);
  AsyncEvent fatal;
  from(request).fatal[queue.number.value] = fatal;
  fatal.from_peer = true;
  to(request).fatal[to(request).queues[request.queue].number.value] = fatal;
  count(to_string(request.work.operation), request.verdict, request.number);
  return true;
}

/// Fresh bytes, so that no store goes unnoticed; not under the feet of what is in flight.
void MemoryWorld::freshen(const Request& request) {
  for (const Piece& piece : request.segments) {
    if (nobody_uses(piece)) images_[piece.image].fill(piece, draws_);
  }
}

/// What a request finds when it arrives: a receive, bytes, a word to compare with.
void MemoryWorld::prepare(Request& request) {
  const bool posted = request.post_expected == Status::ok;
  const bool arrives = posted && !request.follower && !(request.fails() && request.refused_here);
  if (!arrives) request.receive.reset();
  const bool stands =
      to(request).queues[request.queue].standing && request.work.operation == Operation::rdma_write_with_immediate;
  if (stands && request.fails()) request.receive.reset();  // it stays, and says nothing
  if (request.receive && stands) {
    request.receive->expected.id = Receive::kStanding;
  } else if (request.receive) {
    post_receive(request);
  }
  if (!request.answered() && !request.local()) freshen(request);
  if (request.work.operation == Operation::compare_swap && posted && !request.fails() && one_in(2)) {
    const RemoteAddress& remote = request.work.remote;
    const auto there = content(to(request).reference.pieces(remote.tag, remote.address, sizeof(std::uint64_t)));
    std::memcpy(&request.work.compare, there.data(), there.size());
  }
}

void MemoryWorld::post(Draft draft) {
  Request& request = *draft;
  prepare(request);
  const bool expected_ok = request.post_expected == Status::ok;
  if (expected_ok) apply(request);
  request.work.memory = request.memory ? &*request.memory : nullptr;
  Site& site = from(request);
  const Status status = site.adapter->post_send(site.queues[request.queue].number, request.work);
  const std::string what = to_string(request.work.operation);
  const std::string& verdict = request.segments_verdict == "ok" ? request.verdict : request.segments_verdict;
  remember(fmt::format("{} #{} site {} queue {} tag {:#x} at {:#x} bytes {}: {} {}{}", what, request.number,
                       request.from, request.queue, request.work.remote.tag.value, request.work.remote.address,
                       request.bytes, to_string(request.post_expected), verdict,
                       request.follower ? ", follows a failure" : ""));
  count(what, !expected_ok ? to_string(status) : request.follower ? "flushed" : request.verdict, request.number);
  // Behind a request that fails it depends on whether that is known already.
  if (status == Status::bad_state && request.follower) return;
  const bool taken_nevertheless = status == Status::ok && request.bad_segment;
  if (taken_nevertheless && fails_in_its_turn(request)) return in_flight_.push_back(std::move(draft));
  if (status != request.post_expected) {
    return violate(fmt::format("posting {} answers {}, the model says {}", what, to_string(status),
                               to_string(request.post_expected)));
  }
  if (!expected_ok) return;
  if (request.work.inline_data) freshen(request);  // it was copied: what becomes of its source does not matter
  in_flight_.push_back(std::move(draft));
}

}  // namespace splitnic::sim
