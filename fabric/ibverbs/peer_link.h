#pragma once

#include <functional>
#include <memory>

#include "common/random.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/link.h"
#include "fabric/link/cell_link.h"

namespace splitnic::ibverbs {

/// The link to the endnode with one local ID: down until a bridge to it is there, and again when that endnode has died;
/// a later endnode with the same local ID gets a new bridge. So the path, and everything that names it, exists before
/// the bridge. Thread: the adapter's owner.
class PeerLink final : public fabric::CellLink {
  using PortAddress = fabric::PortAddress;
  using VirtualLane = fabric::VirtualLane;
  using Cell = fabric::Cell;
  using ClaimedPayload = fabric::ClaimedPayload;
  using ReceivedCell = fabric::ReceivedCell;

 public:
  /// random: lent. hung_up: called by poll() when the peer has hung up; it must not call the adapter.
  PeerLink(const fabric::LinkOptions& options, RandomSource& random, std::function<void()> hung_up);
  ~PeerLink() override;
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  /// Uses this bridge from now on; null: none. Returns the parts that were in use, for the caller to end elsewhere. The
  /// adapter follows at once (SharedAdapter::with_link), because it remembers the lanes of the link in use.
  struct Parts {
    std::shared_ptr<fabric::Bridge> bridge;
    std::unique_ptr<fabric::FabricLink> link;
  };
  [[nodiscard]] Parts use(std::shared_ptr<fabric::Bridge> bridge);

  [[nodiscard]] fabric::LinkProperties properties() const override {
    return {.lossless = true, .corrupts = false, .reports_settled = true};
  }
  [[nodiscard]] bool awaited() const override { return true; }
  [[nodiscard]] bool up() const override { return link_ != nullptr && link_->up(); }
  [[nodiscard]] std::uint64_t incarnation() const override { return link_ == nullptr ? before_ : link_->incarnation(); }
  [[nodiscard]] const std::uint64_t* live_incarnation() const override { return &live_; }
  [[nodiscard]] PortAddress port_address() const override { return options_.port_address; }
  [[nodiscard]] PortAddress peer_port_address() const override;
  [[nodiscard]] std::size_t max_payload(VirtualLane lane) const override { return link_->max_payload(lane); }
  [[nodiscard]] bool claim(VirtualLane lane, const Cell& cell, std::size_t payload_bytes, ClaimedPayload& to) override {
    return link_->claim(lane, cell, payload_bytes, to);
  }
  std::uint64_t release(VirtualLane lane, const Cell& cell, std::uint32_t& packet_crc) override {
    return link_->release(lane, cell, packet_crc);
  }
  [[nodiscard]] std::uint64_t settled(VirtualLane lane) override { return link_->settled(lane); }
  [[nodiscard]] bool wants_room(VirtualLane lane) const override { return link_ != nullptr && link_->wants_room(lane); }
  [[nodiscard]] bool drained(VirtualLane lane) override { return link_ == nullptr || link_->drained(lane); }
  [[nodiscard]] const ReceivedCell* front(VirtualLane lane) override { return link_->front(lane); }
  void pop(VirtualLane lane) override { link_->pop(lane); }
  void settle(VirtualLane lane) override { link_->settle(lane); }
  [[nodiscard]] fabric::SlotLane* slots(VirtualLane lane) override {
    return link_ == nullptr ? nullptr : link_->slots(lane);
  }
  bool return_room(VirtualLane lane, bool all) override { return link_->return_room(lane, all); }
  void notify() override {
    if (link_ != nullptr) link_->notify();
  }
  std::size_t poll(Time now) override;
  [[nodiscard]] bool rests(Time now) const override { return link_ == nullptr || (!hung_up() && link_->rests(now)); }
  [[nodiscard]] bool prepare_sleep() override { return link_ == nullptr || link_->prepare_sleep(); }
  [[nodiscard]] bool rearm() override { return link_ == nullptr || link_->rearm(); }
  [[nodiscard]] bool stays_armed() const override { return link_ != nullptr && link_->stays_armed(); }
  void disarm() override {
    if (link_ != nullptr) link_->disarm();
  }
  [[nodiscard]] Time next_deadline(Time now, bool outstanding) const override {
    return link_ == nullptr ? kNever : link_->next_deadline(now, outstanding);
  }
  /// Of a set that the bridge's descriptor belongs to.
  [[nodiscard]] int descriptor() const override { return set_; }
  /// Cells that have come in wait in the lanes, or what the peer has settled.
  [[nodiscard]] bool brings_more();

 private:
  /// The peer has, and poll() has not said so yet.
  [[nodiscard]] bool hung_up() const { return watched_ && bridge_->link() == fabric::LinkState::down; }

  fabric::LinkOptions options_;
  RandomSource& random_;
  std::function<void()> hung_up_;
  int set_;
  bool watched_ = false;      // the bridge's descriptor is in the set
  std::uint64_t before_ = 0;  // the last incarnation of the link before
  std::uint64_t live_ = 0;    // live_incarnation()
  std::shared_ptr<fabric::Bridge> bridge_;
  std::unique_ptr<fabric::FabricLink> link_;
};

}  // namespace splitnic::ibverbs
