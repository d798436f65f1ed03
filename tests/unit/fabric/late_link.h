#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/bridge/link.h"

namespace splitnic::fabric::test {

/// A link that is down until it has another one to go on over. Counts the cells that go the general way.
class LateLink : public CellLink {
 public:
  /// Null: none. The adapter is to follow.
  void use(FabricLink* under) {
    under_ = under;
    ++lives_;
  }
  std::size_t cells = 0;
  std::size_t polls = 0;

  [[nodiscard]] LinkProperties properties() const override {
    return {.lossless = true, .corrupts = false, .reports_settled = true};
  }
  [[nodiscard]] bool awaited() const override { return true; }
  [[nodiscard]] bool up() const override { return under_ != nullptr && under_->up(); }
  [[nodiscard]] std::uint64_t incarnation() const override {
    return under_ == nullptr ? 0 : lives_ << 32U | under_->incarnation();
  }
  [[nodiscard]] PortAddress port_address() const override { return PortAddress{1}; }
  [[nodiscard]] PortAddress peer_port_address() const override { return PortAddress{1}; }
  [[nodiscard]] std::size_t max_payload(VirtualLane lane) const override { return under_->max_payload(lane); }
  [[nodiscard]] bool claim(VirtualLane lane, const Cell& cell, std::size_t bytes, ClaimedPayload& to) override {
    return under_->claim(lane, cell, bytes, to);
  }
  std::uint64_t release(VirtualLane lane, const Cell& cell, std::uint32_t& packet_crc) override {
    ++cells;
    return under_->release(lane, cell, packet_crc);
  }
  [[nodiscard]] std::uint64_t settled(VirtualLane lane) override { return under_->settled(lane); }
  [[nodiscard]] bool wants_room(VirtualLane lane) const override { return up() && under_->wants_room(lane); }
  [[nodiscard]] bool drained(VirtualLane lane) override { return !up() || under_->drained(lane); }
  [[nodiscard]] const ReceivedCell* front(VirtualLane lane) override { return under_->front(lane); }
  void pop(VirtualLane lane) override {
    ++cells;
    under_->pop(lane);
  }
  void settle(VirtualLane lane) override { under_->settle(lane); }
  [[nodiscard]] SlotLane* slots(VirtualLane lane) override { return under_ == nullptr ? nullptr : under_->slots(lane); }
  bool return_room(VirtualLane lane, bool all) override { return under_->return_room(lane, all); }
  void notify() override {
    if (under_ != nullptr) under_->notify();
  }
  std::size_t poll(Time now) override {
    ++polls;
    return under_ == nullptr ? 0 : under_->poll(now);
  }
  [[nodiscard]] bool rests(Time now) const override { return under_ == nullptr || under_->rests(now); }
  [[nodiscard]] bool prepare_sleep() override { return under_ == nullptr || under_->prepare_sleep(); }
  void disarm() override {
    if (under_ != nullptr) under_->disarm();
  }
  [[nodiscard]] Time next_deadline(Time now, bool outstanding) const override {
    return under_ == nullptr ? kNever : under_->next_deadline(now, outstanding);
  }
  [[nodiscard]] int descriptor() const override { return -1; }

 private:
  FabricLink* under_ = nullptr;
  std::uint64_t lives_ = 0;
};

}  // namespace splitnic::fabric::test
