#include "kinds.h"

#include <algorithm>

namespace splitnic::quiet_verbs {
namespace {

/// A part of a slot, one slot, several cells.
constexpr std::array<std::uint32_t, 3> kLengths{8, 300, 9000};

Requests writes(const Places& places, verbs::RemoteAddress to) {
  Requests made;
  for (const std::uint32_t bytes : kLengths) made.push_back(verbs::rdma_write(bytes, {places.part(bytes)}, to));
  made.push_back(verbs::rdma_write_with_immediate(4, {places.part(64)}, to, 7));
  return made;
}

}  // namespace

std::size_t receives_of(const Requests& requests) {
  return static_cast<std::size_t>(std::ranges::count_if(requests, [](const verbs::WorkRequest& request) {
    return request.operation == verbs::Operation::send ||
           request.operation == verbs::Operation::rdma_write_with_immediate;
  }));
}

Requests sends(const Places& places) {
  Requests made;
  for (const std::uint32_t bytes : kLengths) made.push_back(verbs::send(bytes, {places.part(bytes)}));
  return made;
}

Requests direct_writes(const Places& places) { return writes(places, places.direct); }

Requests writes_in_cells(const Places& places) { return writes(places, places.in_cells); }

Requests inline_requests(const Places& places) {
  const verbs::LocalSegment part = places.part(kInlineBytes);
  Requests made{verbs::send(1, {part}), verbs::rdma_write(2, {part}, places.in_cells)};
  for (verbs::WorkRequest& request : made) request.inline_data = true;
  return made;
}

Requests gathered(const Places& places) { return {verbs::send(1, {places.part(40), places.part(300, 1000)})}; }

Requests reads(const Places& places) {
  Requests made;
  for (const std::uint32_t bytes : kLengths) {
    made.push_back(verbs::rdma_read(bytes, {places.part(bytes)}, places.in_cells));
  }
  return made;
}

Requests atomics(const Places& places) {
  return {verbs::compare_swap(1, places.part(8), places.in_cells, 0, 1),
          verbs::fetch_add(2, places.part(8), places.in_cells, 1)};
}

Requests datagrams(const Places& places) {
  Requests made;
  for (const std::uint32_t bytes : {8U, 300U, 1000U}) {
    verbs::WorkRequest request = verbs::send(bytes, {places.part(bytes)});
    request.datagram = places.other;
    made.push_back(request);
  }
  return made;
}

Requests many_sends(const Places& places) {
  Requests made;
  for (std::size_t i = 0; i < kMostInList; ++i) made.push_back(verbs::send(i, {places.part(64)}));
  return made;
}

Requests many_datagrams(const Places& places) {
  Requests made = many_sends(places);
  for (verbs::WorkRequest& request : made) request.datagram = places.other;
  return made;
}

}  // namespace splitnic::quiet_verbs
