#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "common/random.h"
#include "fabric/adapter/dma_provider.h"

namespace splitnic::sim {

/// A DMA engine that takes its time, in polls: some transfers are moved at once, some later and in another order, some
/// find it busy.
class SlowEngine final : public fabric::DmaProvider {
 public:
  explicit SlowEngine(RandomSource& random) : random_(random) {}

  [[nodiscard]] fabric::DmaStart start(const fabric::DmaTransfer& transfer) override {
    if (random_.below(3) == 0) return copy_.start(transfer);
    if (waiting_.size() == kAtMost) return fabric::DmaStart::busy;
    waiting_.push_back({transfer, polls_ + random_.below(12)});
    return fabric::DmaStart::started;
  }
  [[nodiscard]] std::size_t poll(std::span<fabric::DmaCompletion> out) override {
    std::size_t ended = 0;
    std::erase_if(waiting_, [&](const Waiting& waiting) {
      if (waiting.due > polls_ || ended == out.size()) return false;
      out[ended++] = {waiting.transfer.id, copy_.start(waiting.transfer) == fabric::DmaStart::moved};
      return true;
    });
    ++polls_;
    return ended;
  }
  void abandon(const fabric::PeerWindow& window) override {
    std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.transfer.window == &window; });
  }
  [[nodiscard]] bool idle() const { return waiting_.empty(); }

 private:
  static constexpr std::size_t kAtMost = 4;
  struct Waiting {
    fabric::DmaTransfer transfer;
    std::uint64_t due = 0;  ///< at this poll, or as soon as there is room to tell
  };

  RandomSource& random_;
  fabric::ProcessorCopy copy_;
  std::uint64_t polls_ = 0;
  std::deque<Waiting> waiting_;
};

}  // namespace splitnic::sim
