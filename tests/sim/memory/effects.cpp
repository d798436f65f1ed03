// What the model says of a request: how it ends, what it uses, what it changes.
#include <algorithm>
#include <cstring>

#include "world.h"

namespace splitnic::sim {

using namespace fabric;

namespace {

Right right_of(Operation operation) {
  if (operation == Operation::rdma_read) return Right::remote_read;
  const bool atomic = operation == Operation::compare_swap || operation == Operation::fetch_add;
  return atomic ? Right::remote_atomic : Right::remote_write;
}

bool is_send(const Request& request) {
  return request.work.operation == Operation::send || request.work.operation == Operation::send_with_invalidate;
}

Asked asked_by(const Request& request) {
  if (is_send(request)) return Asked::invalidate;
  if (request.reads()) return Asked::read;
  return request.answered() ? Asked::atomic : Asked::write;
}

}  // namespace

Access MemoryWorld::access_of(const Request& request) const {
  const Queue& queue = to(request).queues[request.queue];
  return {request.work.remote.tag,          queue.domain, request.bytes,
          right_of(request.work.operation), queue.number, static_cast<std::uint32_t>(request.number)};
}

Status MemoryWorld::post_status(const Request& request) const {
  const Queue& queue = from(request).queues[request.queue];
  const bool registers = request.memory && std::holds_alternative<FastRegister>(*request.memory);
  const bool permitted = !registers || queue.memory_requests;
  if (request.local()) return permitted ? Status::ok : Status::not_permitted;
  if (request.bytes > 4096) return Status::bad_length;
  if (request.work.inline_data && request.bytes > queue.inline_bytes) return Status::bad_length;
  if (!permitted) return Status::not_permitted;
  return Status::ok;
}

std::string MemoryWorld::verdict_of(const Request& request) const {
  const Queue& own = from(request).queues[request.queue];
  const auto& table = from(request).reference.table;
  if (request.memory && is_send(request)) {  // combined
    const std::string registered = table.fast_register(std::get<FastRegister>(*request.memory), own.consumer());
    if (registered != "ok") return "registration refused: " + registered;
  }
  switch (request.work.operation) {
    case Operation::delay:
      return "ok";
    case Operation::bind_window:
      return table.bind(std::get<Bind>(*request.memory), own.consumer());
    case Operation::register_memory:
      return table.fast_register(std::get<FastRegister>(*request.memory), own.consumer());
    case Operation::local_invalidate:
      return table.invalidate(request.work.invalidate, own.consumer(), false);
    case Operation::send:
    case Operation::send_with_invalidate: {
      if (!request.receive) return "receiver_not_ready";
      if (bytes_of(request.receive->pieces) < request.bytes) return "too_long";
      const Queue& queue = to(request).queues[request.queue];
      if (request.work.operation == Operation::send) return "ok";
      return to(request).reference.table.invalidate(request.work.invalidate, queue.consumer(), true);
    }
    default:
      return to(request).reference.check(access_of(request), Reference::Side::remote, request.work.remote.address);
  }
}

void MemoryWorld::foretell(Request& request) const {
  request.post_expected = post_status(request);
  request.bad_segment = request.post_expected == Status::ok && !request.local() && !request.work.inline_data &&
                        request.segments_verdict != "ok";
  if (request.bad_segment) request.post_expected = request.segment_beyond() ? Status::bad_length : Status::bad_tag;
  request.verdict = request.post_expected == Status::ok ? verdict_of(request) : "ok";
  request.refused_here = request.local() || request.verdict.starts_with("registration");
  if (request.refused_here) {
    request.refusal = {CompletionStatus::memory_request_error, {}};
  } else if (request.verdict == "too_long") {
    request.refusal = {CompletionStatus::remote_invalid_request_error, {1, 2, 5}};
  } else if (request.verdict == "receiver_not_ready") {
    request.refusal = {CompletionStatus::receiver_not_ready, {}};
  } else {
    request.refusal = refusal_of(asked_by(request), request.verdict);
  }
  request.uses.clear();
  request.tags.clear();
  request.storable.clear();
  if (request.fails() || request.bad_segment) use_taken(request);
  if (request.post_expected == Status::ok) return foretell_uses(request);
  for (const Stag tag : request.segment_tags) use(request, request.from, tag, false, false);
}

void MemoryWorld::use(Request& request, std::size_t site, Stag tag, bool remote, bool changes) const {
  request.tags.push_back({site, tag.index(), changes, remote});
  const auto found = sites_[site].reference.table.entries.find(tag.index());
  if (found == sites_[site].reference.table.entries.end() || !is_window(found->second.kind)) return;
  request.tags.push_back({site, found->second.region, false, remote});
}

void MemoryWorld::use(Request& request, const Pieces& pieces, bool remote, bool writes) const {
  for (const Piece& piece : pieces) request.uses.push_back({piece, writes, remote});
}

/// A refusal ends the queue pair at both ends, and with it the one-shot entries that its reads have taken.
void MemoryWorld::use_taken(Request& request) const {
  for (const std::size_t site : {request.from, request.from ^ 1U}) {
    for (const Answered& answered : sites_[site].queues[request.queue].answered) {
      if (answered.read) use(request, site, answered.access.tag, site != request.from, true);
    }
  }
}

void MemoryWorld::end_taken(std::size_t path, std::size_t queue) {
  for (const std::size_t site : {2 * path, 2 * path + 1}) {
    sites_[site].reference.end_taken(sites_[site].queues[queue]);
  }
}

void MemoryWorld::foretell_uses(Request& request) const {
  const auto limited = [&](std::size_t site, Stag tag) {
    const Reference::Entry* entry = sites_[site].reference.find(tag);
    return entry != nullptr && entry->touch != TouchControl::unlimited;
  };
  const std::size_t owner = request.from ^ 1U;
  if (request.work.operation == Operation::local_invalidate) {
    use(request, request.from, request.work.invalidate, false, true);
  } else if (request.memory && std::holds_alternative<FastRegister>(*request.memory)) {
    use(request, request.from, std::get<FastRegister>(*request.memory).tag, false, true);
  } else if (request.memory) {
    use(request, request.from, std::get<Bind>(*request.memory).window, false, true);
    use(request, request.from, std::get<Bind>(*request.memory).region, false, false);
  }
  if (request.local()) return;
  use(request, request.segments, false, request.answered());
  for (const Stag tag : request.segment_tags) {
    use(request, request.from, tag, false, request.answered() && limited(request.from, tag));
  }
  if (request.receive) {
    use(request, request.receive->pieces, true, true);
    for (const Stag tag : request.receive->tags) use(request, owner, tag, true, false);
  }
  if (is_send(request)) {
    if (request.work.operation == Operation::send) return;
    return use(request, owner, request.work.invalidate, true, true);
  }
  const RemoteAddress& remote = request.work.remote;
  const Queue& queue = to(request).queues[request.queue];
  use(request, owner, remote.tag, true, limited(owner, remote.tag));
  if (request.answered() && queue.answered.size() == queue.reads_in) {  // forgotten for this one
    use(request, owner, queue.answered.front().access.tag, true, limited(owner, queue.answered.front().access.tag));
  }
  if (!request.answered()) {
    request.storable = to(request).reference.storable(access_of(request), remote.address);
  }
  if (!request.fails()) {
    use(request, to(request).reference.pieces(remote.tag, remote.address, request.bytes), true, !request.reads());
  } else {
    use(request, request.storable, true, true);
  }
}

void MemoryWorld::apply(Request& request) {
  const bool combined = request.memory && is_send(request);
  if (combined && !request.follower && !request.refused_here) apply_memory_request(request);
  if (request.follower || request.fails()) return apply_failure(request);
  switch (request.work.operation) {
    case Operation::delay:
      return;
    case Operation::bind_window:
    case Operation::register_memory:
    case Operation::local_invalidate:
      return apply_memory_request(request);
    case Operation::send:
    case Operation::send_with_invalidate:
      return apply_send(request);
    case Operation::rdma_read:
      return apply_read(request);
    case Operation::compare_swap:
    case Operation::fetch_add:
      return apply_atomic(request);
    default:
      return apply_write(request);
  }
}

void MemoryWorld::apply_failure(Request& request) {
  const auto may_write = [&](const Pieces& pieces) {
    request.either = true;
    change(request, pieces, content(request.segments));
  };
  if (!request.storable.empty()) may_write(request.storable);
  if (request.follower) return;
  const bool pulls = request.reads() && from(request).engine != nullptr;
  if (pulls && to(request).reference.revoked(access_of(request), request.work.remote.address) != nullptr) {
    request.spoils_sink = true;
    may_write(request.segments);
  }
  if (request.receive) {
    request.receive->expected.status =
        request.verdict == "too_long" ? CompletionStatus::local_length_error : CompletionStatus::flushed;
    if (is_send(request)) may_write(part_of(request.receive->pieces, 0, request.bytes));
  }
  AsyncEvent fatal;
  fatal.reason = request.refusal.reason;
  Site& own = from(request);
  const std::uint32_t own_number = own.queues[request.queue].number.value;
  const bool local = request.refused_here || request.verdict == "receiver_not_ready";
  if (request.refused_here && !own.queues[request.queue].fails_whole) return;
  end_taken(request.from / 2, request.queue);
  fatal.from_peer = !local;
  own.fatal[own_number] = fatal;
  if (request.verdict == "receiver_not_ready") return;
  fatal.from_peer = local;
  to(request).fatal[to(request).queues[request.queue].number.value] = fatal;
}

void MemoryWorld::apply_write(Request& request) {
  Reference& reference = to(request).reference;
  const RemoteAddress& remote = request.work.remote;
  change(request, reference.pieces(remote.tag, remote.address, request.bytes), content(request.segments));
  static_cast<void>(reference.touch(access_of(request), false));
  if (!request.receive) return;
  Completion& expected = request.receive->expected;
  expected.bytes = request.bytes;
  expected.has_immediate = true;
  expected.immediate = request.work.immediate;
  expected.solicited = request.work.solicited;
}

void MemoryWorld::apply_read(Request& request) {
  Reference& reference = to(request).reference;
  const RemoteAddress& remote = request.work.remote;
  const Access access = access_of(request);
  change(request, request.segments, content(reference.pieces(remote.tag, remote.address, request.bytes)));
  static_cast<void>(reference.touch(access, true));
  reference.take(to(request).queues[request.queue], {access, true});
  hold_pulls(request.from);
  if (request.bytes == 0) return;
  const Queue& own = from(request).queues[request.queue];
  const Access sink{request.segment_tags.front(), own.domain, request.bytes, Right::remote_write, own.number, 0};
  static_cast<void>(from(request).reference.touch(sink, false));
}

/// An owner ends a one-shot entry that a read has taken with a later read of the queue. It hears nothing of pulled
/// ones, and the model can't know which are pulled: so none is from the first such read on.
void MemoryWorld::hold_pulls(std::size_t number) {
  Site& site = sites_[number];
  const Site& owner = sites_[number ^ 1U];
  if (site.engine == nullptr) return;
  const auto takes_one = [&](const Answered& answered) {
    const Reference::Entry* entry = owner.reference.find(answered.access.tag);
    return answered.read && entry != nullptr && entry->touch == TouchControl::one_shot;
  };
  const bool any = std::ranges::any_of(
      owner.queues, [&](const Queue& queue) { return std::ranges::any_of(queue.answered, takes_one); });
  if (any) site.engine->may_pull = false;
}

void MemoryWorld::apply_atomic(Request& request) {
  Reference& reference = to(request).reference;
  const Access access = access_of(request);
  const Pieces target = reference.pieces(access.tag, request.work.remote.address, 8);
  const std::vector<std::byte> before = content(target);
  std::uint64_t word = 0;
  std::memcpy(&word, before.data(), sizeof word);
  if (request.work.operation == Operation::fetch_add) {
    word += request.work.swap_or_add;
  } else if (word == request.work.compare) {
    word = request.work.swap_or_add;
  }
  change(request, target, std::as_bytes(std::span(&word, 1)));
  change(request, request.segments, before);
  static_cast<void>(reference.touch(access, false));
  reference.take(to(request).queues[request.queue], {access, false});
  const Queue& own = from(request).queues[request.queue];
  const Access sink{request.segment_tags.front(), own.domain, 8, Right::remote_write, own.number, 0};
  static_cast<void>(from(request).reference.touch(sink, false));
}

void MemoryWorld::apply_send(Request& request) {
  change(request, part_of(request.receive->pieces, 0, request.bytes), content(request.segments));
  Completion& expected = request.receive->expected;
  expected.bytes = request.bytes;
  expected.solicited = request.work.solicited;
  if (request.work.operation == Operation::send) return;
  expected.has_invalidated = true;
  expected.tag = request.work.invalidate;
  to(request).reference.table.end(request.work.invalidate.index());
}

void MemoryWorld::apply_memory_request(Request& request) {
  Reference& reference = from(request).reference;
  const Consumer by = from(request).queues[request.queue].consumer();
  if (request.work.operation == Operation::local_invalidate) {
    return reference.table.end(request.work.invalidate.index());
  }
  if (const auto* bind = std::get_if<Bind>(&*request.memory)) {
    request.tag_expected = reference.table.bound(*bind, by);
  } else {
    const auto& registration = std::get<FastRegister>(*request.memory);
    request.tag_expected = Stag::from(registration.tag.index(), registration.key);
    reference.table.entries.at(registration.tag.index()).instance = registration.key;
    reference.describe(registration.tag.index(), registration.options, *registration.options.base, request.page_pieces);
  }
  note(request.from, request.tag_expected);
}

/// bytes: of all the pieces together. The model's memory changes now, unless the request is to fail.
void MemoryWorld::change(Request& request, const Pieces& pieces, std::span<const std::byte> bytes) {
  for (const Piece& piece : pieces) {
    const auto memory = images_[piece.image].expected().subspan(piece.offset, piece.bytes);
    const auto now = bytes.first(piece.bytes);
    request.changes.push_back({piece, {memory.begin(), memory.end()}, {now.begin(), now.end()}});
    if (!request.either) std::ranges::copy(now, memory.begin());
    bytes = bytes.subspan(piece.bytes);
  }
}

std::vector<std::byte> MemoryWorld::content(const Pieces& pieces) {
  std::vector<std::byte> bytes;
  for (const Piece& piece : pieces) {
    const auto memory = images_[piece.image].expected().subspan(piece.offset, piece.bytes);
    bytes.insert(bytes.end(), memory.begin(), memory.end());
  }
  return bytes;
}

bool MemoryWorld::nobody_uses(const Piece& piece) const {
  return std::ranges::none_of(in_flight_, [&](const Draft& request) {
    return std::ranges::any_of(request->uses, [&](const Use& use) { return overlap(use.piece, piece); });
  });
}

}  // namespace splitnic::sim
