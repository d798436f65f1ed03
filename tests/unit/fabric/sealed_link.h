#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "fabric/bridge/link.h"
#include "fabric/link/cell_link.h"

namespace splitnic::fabric::test {

/// A link whose cells carry CRCs and may be lost, damaged or repeated on the way. A test carries them, or writes them
/// by hand: they wait in queues, as bytes. Epochs, addresses and direct access are those of a link over a bridge.
class SealedLink final : public CellLink {
 public:
  using Record = std::vector<std::byte>;
  using Queue = std::deque<Record>;
  static constexpr std::array<std::size_t, kLanes> kBytes{32U << 10U, 128U << 10U};

  /// under: lent; polled by its owner.
  explicit SealedLink(FabricLink& under) : under_(under) {}

  /// What this end has sent, and what it will receive; of the present epoch.
  [[nodiscard]] Queue& out(VirtualLane lane) { return queue(out_, lane); }
  [[nodiscard]] Queue& in(VirtualLane lane) { return queue(in_, lane); }

  std::size_t refusals = 0;  ///< claims that have found no room

  /// Nothing waits at either side.
  [[nodiscard]] bool empty() const {
    const auto none = [](const Queue& queue) { return queue.empty(); };
    return std::ranges::all_of(in_, none) && std::ranges::all_of(out_, none);
  }

  [[nodiscard]] LinkProperties properties() const override { return {.lossless = false, .corrupts = true}; }
  [[nodiscard]] bool up() const override { return under_.up(); }
  [[nodiscard]] std::uint64_t incarnation() const override { return under_.incarnation(); }
  [[nodiscard]] PortAddress port_address() const override { return under_.port_address(); }
  [[nodiscard]] PortAddress peer_port_address() const override { return under_.peer_port_address(); }
  [[nodiscard]] DirectAccess* direct() override { return under_.direct(); }

  [[nodiscard]] std::size_t max_payload(VirtualLane lane) const override {
    return std::min<std::size_t>(kBytes[static_cast<std::size_t>(lane)] - 1024, kMaxCellPayload);
  }
  [[nodiscard]] bool claim(VirtualLane lane, const Cell& /*cell*/, std::size_t payload_bytes,
                           ClaimedPayload& to) override {
    std::size_t waiting = 0;
    for (const Record& record : out(lane)) waiting += record.size();
    const bool room = waiting + kMaxCellOverhead + payload_bytes <= kBytes[static_cast<std::size_t>(lane)];
    wants_room_[static_cast<std::size_t>(lane)] = !room;
    if (!room) ++refusals;
    if (!room) return false;
    payload_.resize(payload_bytes);
    to = ClaimedPayload(payload_);
    return true;
  }
  std::uint64_t release(VirtualLane lane, const Cell& cell, std::uint32_t& packet_crc) override {
    Cell addressed = cell;
    addressed.source = port_address();
    addressed.destination = peer_port_address();
    out(lane).push_back(sealed(addressed, payload_, packet_crc));
    return 0;
  }
  [[nodiscard]] bool wants_room(VirtualLane lane) const override { return wants_room_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] bool drained(VirtualLane lane) override { return out(lane).empty(); }

  [[nodiscard]] const ReceivedCell* front(VirtualLane lane) override {
    Queue& from = in(lane);
    if (from.empty()) return nullptr;
    received_ = ReceivedCell{};
    const auto cell = decode_cell(from.front());
    if (!cell) {
      received_.fault = cell.error();
      return &received_;
    }
    received_.cell = *cell;
    received_.bytes = from.front();
    if (cell->destination != port_address() || cell->source != peer_port_address()) {
      received_.fault = CellFault::port_address;
    }
    received_.payload =
        CellPayload(PeerMemory::over(from.front().data() + cell_head_bytes(cell->opcode), cell->payload.size()));
    return &received_;
  }
  void pop(VirtualLane lane) override { in(lane).pop_front(); }
  bool return_room(VirtualLane /*lane*/, bool /*all*/) override { return false; }

  void notify() override { under_.notify(); }
  std::size_t poll(Time now) override { return under_.poll(now); }
  [[nodiscard]] bool prepare_sleep() override { return under_.prepare_sleep(); }
  void disarm() override { under_.disarm(); }
  [[nodiscard]] Time next_deadline(Time now, bool outstanding) const override {
    return under_.next_deadline(now, outstanding);
  }
  [[nodiscard]] int descriptor() const override { return under_.descriptor(); }

  /// The bytes of such a cell. packet_crc: runs over the packet.
  static Record sealed(const Cell& cell, std::span<const std::byte> payload, std::uint32_t& packet_crc) {
    const std::array pieces{payload};
    const CellEnvelope envelope(cell, pieces, payload.size(), packet_crc);
    Record record(envelope.head().begin(), envelope.head().end());
    record.insert(record.end(), payload.begin(), payload.end());
    record.insert(record.end(), envelope.tail().begin(), envelope.tail().end());
    return record;
  }

 private:
  /// Nothing of an epoch that is over arrives in another.
  [[nodiscard]] Queue& queue(std::array<Queue, kLanes>& queues, VirtualLane lane) {
    if (epoch_ != under_.incarnation()) {
      epoch_ = under_.incarnation();
      in_ = {};
      out_ = {};
    }
    return queues[static_cast<std::size_t>(lane)];
  }

  FabricLink& under_;
  std::uint64_t epoch_ = 0;
  std::array<Queue, kLanes> in_{};
  std::array<Queue, kLanes> out_{};
  std::array<bool, kLanes> wants_room_{};
  Record payload_;
  ReceivedCell received_{};
};

}  // namespace splitnic::fabric::test
