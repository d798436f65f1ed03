#pragma once

#include <string>

#include "adapter_fixtures.h"

namespace splitnic::fabric::test {

inline constexpr Rights kEverything = kAllRights | Right::remote_read | Right::remote_atomic | Right::window_binding;

/// A range of an endpoint's buffer, opened to its peer.
struct Owned {
  RemoteAddress at{};
  std::span<std::byte> memory{};
};
inline Owned open(Endpoint& end, std::size_t bytes = Endpoint::kBufferBytes, Rights rights = kEverything) {
  const auto memory = std::span(end.buffer).first(bytes);
  const Stag tag = end.adapter.register_memory(end.domain, memory, rights).value();
  return {{end.adapter.region_address(tag), tag}, memory};
}

inline WorkRequest send_request(std::uint64_t id, const LocalSegment& segment) {
  WorkRequest request;
  request.id = id;
  request.segments[0] = segment;
  request.segment_count = 1;
  return request;
}

inline WorkRequest write_request(std::uint64_t id, const LocalSegment& segment, RemoteAddress to) {
  WorkRequest request = send_request(id, segment);
  request.operation = Operation::rdma_write;
  request.remote = to;
  return request;
}

inline WorkRequest read_request(Endpoint& end, std::uint64_t id, std::size_t to, std::size_t bytes,
                                RemoteAddress from) {
  WorkRequest request = send_request(id, end.segment(to, bytes));
  request.operation = Operation::rdma_read;
  request.remote = from;
  return request;
}

inline WorkRequest add_request(Endpoint& end, std::uint64_t id, std::size_t to, std::uint64_t add, RemoteAddress at) {
  WorkRequest request = read_request(end, id, to, 8, at);
  request.operation = Operation::fetch_add;
  request.swap_or_add = add;
  return request;
}

inline Status post(Endpoint& end, const WorkRequest& request) { return end.adapter.post_send(end.number, request); }

inline std::uint64_t word(const Endpoint& end, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, end.buffer.data() + offset, sizeof value);
  return value;
}
inline void set_word(Endpoint& end, std::size_t offset, std::uint64_t value) {
  std::memcpy(end.buffer.data() + offset, &value, sizeof value);
}

inline Cell read_cell(const ScriptedPeer& peer, std::uint32_t psn, std::uint32_t msn, RemoteAddress from,
                      std::uint32_t bytes) {
  Cell cell = peer.cell(Opcode::read_request, psn);
  cell.address = from.address;
  cell.tag = from.tag;
  cell.message_bytes = bytes;
  cell.message_sequence = msn;
  return cell;
}

inline Cell add_cell(const ScriptedPeer& peer, std::uint32_t psn, std::uint32_t msn, RemoteAddress at,
                     std::uint64_t add) {
  Cell cell = read_cell(peer, psn, msn, at, kAtomicBytes);
  cell.opcode = Opcode::fetch_add;
  cell.swap_or_add = add;
  return cell;
}

/// A whole write in one cell; or the first, of `all` bytes.
inline Cell write_cell(const ScriptedPeer& peer, Opcode opcode, std::uint32_t psn, RemoteAddress to, std::size_t all) {
  Cell cell = peer.cell(opcode, psn);
  cell.address = to.address;
  cell.tag = to.tag;
  cell.message_bytes = static_cast<std::uint32_t>(all);
  return cell;
}

inline std::vector<AsyncEvent> take_events(Endpoint& end) {
  std::vector<AsyncEvent> events(64);
  events.resize(end.adapter.poll_events(events));
  return events;
}

/// How the requests ended, in order, by name.
inline std::vector<std::string> how(const std::vector<Completion>& ends) {
  std::vector<std::string> names;
  for (const Completion& end : ends) names.emplace_back(to_string(end.status));
  return names;
}

}  // namespace splitnic::fabric::test
