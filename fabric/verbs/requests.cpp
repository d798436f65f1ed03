#include "fabric/verbs/requests.h"

#include <algorithm>

#include "fabric/verbs/objects.h"

namespace splitnic::verbs {
namespace {

/// A list that is too long keeps its count, so that the post refuses it.
WorkRequest request(std::uint64_t id, Operation operation, Segments segments) {
  WorkRequest made;
  made.id = id;
  made.operation = operation;
  made.segment_count = segments.size();
  std::copy_n(segments.begin(), std::min(segments.size(), made.segments.size()), made.segments.begin());
  return made;
}

WorkRequest remote_request(std::uint64_t id, Operation operation, Segments segments, RemoteAddress remote) {
  WorkRequest made = request(id, operation, segments);
  made.remote = remote;
  return made;
}

}  // namespace

WorkRequest send(std::uint64_t id, Segments segments) { return request(id, Operation::send, segments); }

WorkRequest send_with_invalidate(std::uint64_t id, Segments segments, Stag tag) {
  WorkRequest made = request(id, Operation::send_with_invalidate, segments);
  made.invalidate = tag;
  return made;
}

WorkRequest send_datagram(std::uint64_t id, Segments segments, const AddressHandle& to, QpNumber queue_pair,
                          std::uint32_t queue_key) {
  WorkRequest made = request(id, Operation::send, segments);
  made.datagram = {to ? to.object()->number : fabric::AddressHandleNumber{}, queue_pair, queue_key};
  return made;
}

WorkRequest rdma_write(std::uint64_t id, Segments from, RemoteAddress to) {
  return remote_request(id, Operation::rdma_write, from, to);
}

WorkRequest rdma_write_with_immediate(std::uint64_t id, Segments from, RemoteAddress to, std::uint32_t immediate) {
  WorkRequest made = remote_request(id, Operation::rdma_write_with_immediate, from, to);
  made.immediate = immediate;
  return made;
}

WorkRequest rdma_read(std::uint64_t id, Segments into, RemoteAddress from) {
  return remote_request(id, Operation::rdma_read, into, from);
}

WorkRequest compare_swap(std::uint64_t id, LocalSegment before, RemoteAddress at, std::uint64_t compare,
                         std::uint64_t swap) {
  WorkRequest made = remote_request(id, Operation::compare_swap, {before}, at);
  made.compare = compare;
  made.swap_or_add = swap;
  return made;
}

WorkRequest fetch_add(std::uint64_t id, LocalSegment before, RemoteAddress at, std::uint64_t add) {
  WorkRequest made = remote_request(id, Operation::fetch_add, {before}, at);
  made.swap_or_add = add;
  return made;
}

WorkRequest local_invalidate(std::uint64_t id, Stag tag) {
  WorkRequest made = request(id, Operation::local_invalidate, {});
  made.invalidate = tag;
  return made;
}

WorkRequest delay(std::uint64_t id, Duration time) {
  WorkRequest made = request(id, Operation::delay, {});
  made.delay = time;
  return made;
}

ReceiveRequest receive(std::uint64_t id, LocalSegment into) {
  ReceiveRequest made;
  made.id = id;
  made.segment = into;
  return made;
}

}  // namespace splitnic::verbs
