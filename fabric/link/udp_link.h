#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/random.h"
#include "common/time.h"
#include "fabric/link/cell_link.h"
#include "fabric/link/udp_peer.h"

namespace splitnic::fabric {

/// Where datagrams come from: a socket.
class DatagramSource {
 public:
  virtual ~DatagramSource() = default;
  /// Gives each datagram that has come, up to a limit, to its peer; returns how many.
  virtual std::size_t receive(Time now) = 0;
  /// Readable when a datagram has come.
  [[nodiscard]] virtual int descriptor() const = 0;
  /// Takes no more datagrams for this peer.
  virtual void forget(const UdpPeer& peer) = 0;
};

/// A link over UDP datagrams. It loses, repeats and reorders cells, and it has no memory in common with its peer: RDMA
/// data travels in cells. Made by UdpSocket::connect(), or by a caller with another source of datagrams. Thread: the
/// owner.
class UdpLink final : public CellLink {
 public:
  /// sink, random: lent. source: lent; the link polls it, and calls forget() at its end. Null: the caller gives
  /// datagrams to peer().
  UdpLink(DatagramSink& sink, const UdpOptions& options, RandomSource& random, DatagramSource* source = nullptr);
  ~UdpLink() override;
  UdpLink(const UdpLink&) = delete;
  UdpLink& operator=(const UdpLink&) = delete;

  /// Voids everything of the present epoch and begins anew.
  void restart() { peer_.restart(); }
  [[nodiscard]] UdpPeer& peer() { return peer_; }

  [[nodiscard]] LinkProperties properties() const override { return {.lossless = false, .corrupts = true}; }
  [[nodiscard]] bool up() const override { return peer_.up(); }
  [[nodiscard]] std::uint64_t incarnation() const override { return peer_.incarnation(); }
  [[nodiscard]] PortAddress port_address() const override { return peer_.port_address(); }
  [[nodiscard]] PortAddress peer_port_address() const override { return peer_.peer_port_address(); }

  [[nodiscard]] std::size_t max_payload(VirtualLane lane) const override;
  [[nodiscard]] bool claim(VirtualLane lane, const Cell& cell, std::size_t payload_bytes, ClaimedPayload& to) override;
  std::uint64_t release(VirtualLane lane, const Cell& cell, std::uint32_t& packet_crc) override;
  [[nodiscard]] bool wants_room(VirtualLane lane) const override { return peer_.wants_room(lane); }
  [[nodiscard]] bool drained(VirtualLane lane) override { return peer_.drained(lane); }
  [[nodiscard]] const ReceivedCell* front(VirtualLane lane) override;
  void pop(VirtualLane lane) override;
  bool return_room(VirtualLane /*lane*/, bool /*all*/) override { return false; }  // flush() knows what was consumed
  void notify() override { static_cast<void>(peer_.flush()); }

  std::size_t poll(Time now) override;
  [[nodiscard]] bool prepare_sleep() override;
  void disarm() override {}
  [[nodiscard]] Time next_deadline(Time now, bool outstanding) const override;
  [[nodiscard]] int descriptor() const override { return source_ != nullptr ? source_->descriptor() : -1; }

 private:
  UdpPeer peer_;
  DatagramSource* source_;
  std::span<std::byte> claimed_{};  // the record
  std::size_t claimed_payload_ = 0;
  ReceivedCell received_{};
  std::optional<VirtualLane> in_received_{};  // the lane whose oldest record it is
  std::uint64_t received_in_ = 0;             // the incarnation
};

}  // namespace splitnic::fabric
