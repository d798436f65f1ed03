#include "fabric/link/udp_link.h"

#include <algorithm>
#include <array>

#include "common/check.h"

namespace splitnic::fabric {
namespace {

// A socket without room has some again soon; no descriptor reports this.
constexpr Duration kSendAgain = std::chrono::milliseconds(1);

std::size_t record_bytes(const Cell& cell, std::size_t payload_bytes) {
  const bool packet_crc = traits(cell.opcode).last && !cell.direct;
  return cell_head_bytes(cell.opcode) + payload_bytes + (packet_crc ? 2 : 1) * kCrcBytes;
}

}  // namespace

UdpLink::UdpLink(DatagramSink& sink, const UdpOptions& options, RandomSource& random, DatagramSource* source)
    : peer_(sink, options, random), source_(source) {}

UdpLink::~UdpLink() {
  if (source_ != nullptr) source_->forget(peer_);
}

std::size_t UdpLink::max_payload(VirtualLane /*lane*/) const {
  return std::min<std::size_t>(peer_.max_record_bytes() - kMaxCellOverhead, kMaxCellPayload);
}

bool UdpLink::claim(VirtualLane lane, const Cell& cell, std::size_t payload_bytes, ClaimedPayload& to) {
  claimed_ = peer_.claim(lane, record_bytes(cell, payload_bytes));
  if (claimed_.empty()) return false;
  claimed_payload_ = payload_bytes;
  to = ClaimedPayload(claimed_.subspan(cell_head_bytes(cell.opcode), payload_bytes));
  return true;
}

std::uint64_t UdpLink::release(VirtualLane lane, const Cell& cell, std::uint32_t& packet_crc) {
  Cell addressed = cell;
  addressed.source = peer_.port_address();
  addressed.destination = peer_.peer_port_address();
  const std::size_t head = cell_head_bytes(cell.opcode);
  const auto payload = std::span<const std::byte>(claimed_).subspan(head, claimed_payload_);
  const std::array pieces{payload};
  const CellEnvelope envelope(addressed, pieces, payload.size(), packet_crc);
  SPLITNIC_CHECK_OP(envelope.head().size(), ==, head);
  SPLITNIC_CHECK_OP(head + payload.size() + envelope.tail().size(), ==, claimed_.size());
  std::ranges::copy(envelope.head(), claimed_.begin());
  std::ranges::copy(envelope.tail(), claimed_.last(envelope.tail().size()).begin());
  peer_.release(lane, claimed_.size());
  claimed_ = {};
  return 0;
}

const ReceivedCell* UdpLink::front(VirtualLane lane) {
  if (received_in_ != incarnation()) in_received_.reset();
  if (in_received_ == lane) return &received_;
  const auto record = peer_.front(lane);
  if (record.empty()) return nullptr;
  in_received_ = lane;
  received_in_ = incarnation();
  received_ = ReceivedCell{};
  const auto cell = decode_cell(record);
  if (!cell) {
    received_.fault = cell.error();
    return &received_;
  }
  received_.cell = *cell;
  received_.bytes = record;
  if (cell->destination != port_address() || cell->source != peer_port_address()) {
    received_.fault = CellFault::port_address;
  }
  const std::size_t head = cell_head_bytes(cell->opcode);
  received_.payload = CellPayload(PeerMemory::over(&record[head], cell->payload.size()));
  return &received_;
}

void UdpLink::pop(VirtualLane lane) {
  if (in_received_ == lane) in_received_.reset();
  peer_.pop(lane);
}

std::size_t UdpLink::poll(Time now) {
  if (source_ != nullptr) source_->receive(now);
  return peer_.poll(now);
}

bool UdpLink::prepare_sleep() {
  // The descriptor stays readable while a datagram waits, so there is nothing to arm.
  static_cast<void>(peer_.flush());
  if (!up()) return true;
  return std::ranges::none_of(std::array{VirtualLane::control, VirtualLane::data}, [this](VirtualLane lane) {
    return !peer_.front(lane).empty() || peer_.room_again(lane);
  });
}

Time UdpLink::next_deadline(Time now, bool /*outstanding*/) const {
  const bool waits_for_socket = up() && !(peer_.drained(VirtualLane::control) && peer_.drained(VirtualLane::data));
  const Time deadline = peer_.next_deadline();
  return waits_for_socket ? std::min(deadline, now + kSendAgain) : deadline;
}

}  // namespace splitnic::fabric
