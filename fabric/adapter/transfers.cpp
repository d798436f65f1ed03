#include "fabric/adapter/transfers.h"

#include <algorithm>

namespace splitnic::fabric {

/// With a new identifier for the transfer; null: there is none. The identifier's low bits are the slot, so that a
/// completion finds it; the rest keeps an abandoned transfer's from matching.
Transfers::Slot* Transfers::free_slot(DmaTransfer& transfer) {
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.used; });
  if (free == slots_.end()) return nullptr;
  transfer.id = ++last_id_ * kAtMost + static_cast<std::uint64_t>(free - slots_.begin());
  return &*free;
}

void Transfers::occupy(Slot& slot, const DmaTransfer& transfer, const TransferFor& what) {
  slot.used = true;
  slot.pull = slot.stopped = false;
  slot.id = transfer.id;
  slot.window = transfer.window;
  slot.what = what;
  ++under_way_;
}

void Transfers::release(Slot& slot) {
  slot.used = false;
  --under_way_;
}

DmaStart Transfers::start(DmaTransfer& transfer, const TransferFor& what) {
  Slot* slot = free_slot(transfer);
  if (slot == nullptr) return DmaStart::busy;
  const DmaStart answer = provider_->start(transfer);
  if (answer == DmaStart::started) occupy(*slot, transfer, what);
  return answer;
}

DmaStart Transfers::pull(DmaTransfer& transfer, const TransferFor& what, std::span<const LocalSegment> into) {
  Slot* slot = free_slot(transfer);
  if (slot == nullptr) return DmaStart::busy;
  const DmaStart answer = puller_->pull(transfer);
  if (answer != DmaStart::started) return answer;
  occupy(*slot, transfer, what);
  slot->pull = true;
  slot->into_count = into.size();
  std::ranges::transform(into, slot->into.begin(), [](const LocalSegment& segment) { return segment.tag.index(); });
  return answer;
}

const TransferFor* Transfers::finish(std::uint64_t id) {
  Slot& slot = slots_[id % kAtMost];
  if (!slot.used || slot.id != id) return nullptr;
  release(slot);
  return &slot.what;
}

bool Transfers::busy_with(const PeerWindow& window, Stag peers, std::uint64_t of) const {
  return under_way_ != 0 && std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
           const bool asked_for = peers == Stag{} || slot.what.peers == peers;
           return slot.used && slot.window == &window && asked_for && slot.id / kAtMost <= of;
         });
}

void Transfers::stop(Slot& slot) {
  if (slot.stopped) return;
  puller_->stop(slot.id);
  slot.stopped = true;
}

void Transfers::stop_pulls(QpNumber queue_pair) {
  if (under_way_ == 0) return;
  for (Slot& slot : slots_) {
    if (!slot.used || !slot.pull || slot.what.queue_pair != queue_pair) continue;
    stop(slot);
    release(slot);
  }
}

void Transfers::disown(QpNumber queue_pair) {
  if (under_way_ == 0) return;
  stop_pulls(queue_pair);
  for (Slot& slot : slots_) {
    if (slot.what.queue_pair == queue_pair) slot.what.queue_pair = QpNumber{};
  }
}

void Transfers::abandon(const PeerWindow& window) {
  const auto through_it = [&](const Slot& slot) { return slot.used && slot.window == &window; };
  if (under_way_ == 0 || std::none_of(slots_.begin(), slots_.end(), through_it)) return;
  provider_->abandon(window);
  for (Slot& slot : slots_) {
    if (through_it(slot)) release(slot);
  }
}

void Transfers::entry_ends(std::uint32_t index) {
  if (under_way_ == 0) return;
  for (Slot& slot : slots_) {
    if (!slot.used || !slot.pull) continue;
    const auto into = std::span(slot.into).first(slot.into_count);
    if (std::ranges::find(into, index) == into.end()) continue;
    stop(slot);
    any_stopped_ = true;
  }
}

Transfers::~Transfers() {
  for (const Slot& slot : slots_) {
    if (slot.used) abandon(*slot.window);
  }
}

}  // namespace splitnic::fabric
