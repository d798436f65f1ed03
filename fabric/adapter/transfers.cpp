#include "fabric/adapter/transfers.h"

#include <algorithm>

namespace splitnic::fabric {

DmaStart Transfers::start(DmaTransfer& transfer, const TransferFor& what) {
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.used; });
  if (free == slots_.end()) return DmaStart::busy;
  // The low bits are the slot, so that a completion finds it; the rest keeps an abandoned transfer's from matching.
  const auto slot = static_cast<std::uint64_t>(free - slots_.begin());
  transfer.id = ++last_id_ * kAtMost + slot;
  const DmaStart answer = provider_->start(transfer);
  if (answer == DmaStart::started) {
    *free = Slot{true, transfer.id, transfer.window, what};
    ++under_way_;
  }
  return answer;
}

const TransferFor* Transfers::finish(std::uint64_t id) {
  Slot& slot = slots_[id % kAtMost];
  if (!slot.used || slot.id != id) return nullptr;
  slot.used = false;
  --under_way_;
  return &slot.what;
}

bool Transfers::busy_with(const PeerWindow& window, Stag into, std::uint64_t of) const {
  return under_way_ != 0 && std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
           const bool asked_for = into == Stag{} || slot.what.into == into;
           return slot.used && slot.window == &window && asked_for && slot.id / kAtMost <= of;
         });
}

void Transfers::disown(QpNumber queue_pair) {
  if (under_way_ == 0) return;
  for (Slot& slot : slots_) {
    if (slot.what.queue_pair == queue_pair) slot.what.queue_pair = QpNumber{};
  }
}

void Transfers::abandon(const PeerWindow& window) {
  const auto through_it = [&](const Slot& slot) { return slot.used && slot.window == &window; };
  if (under_way_ == 0 || std::none_of(slots_.begin(), slots_.end(), through_it)) return;
  provider_->abandon(window);
  for (Slot& slot : slots_) {
    if (!through_it(slot)) continue;
    slot.used = false;
    --under_way_;
  }
}

Transfers::~Transfers() {
  for (const Slot& slot : slots_) {
    if (slot.used) abandon(*slot.window);
  }
}

}  // namespace splitnic::fabric
