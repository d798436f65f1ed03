#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "adapter_requests.h"

namespace splitnic::fabric::test {

/// An adapter at end 0; at end 1 a peer that takes slots and settles them by hand.
struct SlotPeer {
  static constexpr std::uint32_t kPsn = 1000;     // of the peer's packets
  static constexpr std::uint32_t kOwnPsn = 5000;  // of the adapter's
  static constexpr QpNumber kNumber{77};

  explicit SlotPeer(const AdapterOptions& options = small_cells(), const QueuePairAttributes& queue_pair = {})
      : host(pair.link(0), options, pair.random(), queue_pair) {
    REQUIRE(host.adapter.connect(host.number, {kNumber, kOwnPsn, kPsn}) == Status::ok);
  }

  Cell cell(Opcode opcode, std::uint32_t psn) const {
    Cell made;
    made.opcode = opcode;
    made.destination_queue_pair = host.number;
    made.packet_sequence = psn;
    return made;
  }
  Cell awaited_send(std::uint32_t psn) const {
    Cell made = cell(Opcode::send_only, psn);
    made.awaited = true;
    return made;
  }
  static Cell not_taken(QpNumber queue_pair, std::uint32_t psn) {
    Cell made;
    made.opcode = Opcode::not_taken;
    made.destination_queue_pair = queue_pair;
    made.packet_sequence = psn;
    return made;
  }
  bool put(const Cell& made, std::span<const std::byte> payload = {}) {
    ClaimedPayload to;
    if (!link.claim(VirtualLane::data, made, payload.size(), to)) return false;
    to.put(payload);
    std::uint32_t packet_crc = kPacketCrcStart;
    static_cast<void>(link.release(VirtualLane::data, made, packet_crc));
    return true;
  }
  /// The adapter's own lane is full, until the peer takes something.
  void fill_lane() {
    ClaimedPayload to;
    const Cell filler = not_taken(QpNumber{99}, 0);
    while (pair.link(0).claim(VirtualLane::data, filler, 0, to)) {
      std::uint32_t packet_crc = kPacketCrcStart;
      static_cast<void>(pair.link(0).release(VirtualLane::data, filler, packet_crc));
    }
  }
  /// Receives for so many messages.
  void receive(std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) REQUIRE(host.receive(i, 4096, 64) == Status::ok);
  }
  /// Consumes what the adapter sent, and settles nothing.
  std::vector<Cell> take() {
    pair.advance(microseconds(1));
    std::vector<Cell> cells;
    for (const ReceivedCell* received = link.front(VirtualLane::data); received != nullptr;
         received = link.front(VirtualLane::data)) {
      REQUIRE_FALSE(received->fault.has_value());
      cells.push_back(received->cell);
      link.pop(VirtualLane::data);
    }
    return cells;
  }
  void tell() { static_cast<void>(link.return_room(VirtualLane::data, true)); }
  void settle() {
    link.settle(VirtualLane::data);
    tell();
  }
  void poll(Duration by = microseconds(1)) {
    pair.advance(by);
    host.adapter.poll(pair.now());
    pair.advance(Duration::zero());
  }
  std::size_t completed() {
    std::size_t good = 0;
    for (const Completion& done : host.take()) good += done.status == CompletionStatus::success ? 1 : 0;
    return good;
  }

  LinkedPair pair;
  Endpoint host;
  FabricLink& link = pair.link(1);
};

/// The requests that ended with this status, in order.
inline std::vector<std::uint64_t> ids_of(const std::vector<Completion>& completions, CompletionStatus status) {
  std::vector<std::uint64_t> ids;
  for (const Completion& done : completions) {
    if (!done.receive && done.status == status) ids.push_back(done.id);
  }
  return ids;
}

}  // namespace splitnic::fabric::test
