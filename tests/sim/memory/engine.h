#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "common/random.h"
#include "fabric/adapter/dma_provider.h"

namespace splitnic::sim {

/// A DMA engine that takes its time, in polls, and pulls, too: some transfers are moved at once, some later and in
/// another order, some at once and reported later; some find it busy.
class SlowEngine final : public fabric::DmaProvider, private fabric::DmaPuller {
 public:
  explicit SlowEngine(RandomSource& random) : random_(random) {}

  [[nodiscard]] fabric::DmaStart start(const fabric::DmaTransfer& transfer) override { return take({transfer, false}); }
  [[nodiscard]] fabric::DmaPuller* puller() override { return this; }
  [[nodiscard]] std::size_t poll(std::span<fabric::DmaCompletion> out) override {
    std::size_t ended = 0;
    std::erase_if(waiting_, [&](const Waiting& waiting) {
      if (waiting.due > polls_ || ended == out.size()) return false;
      const fabric::DmaStart came_to = waiting.moved ? *waiting.moved : move(waiting);
      out[ended++] = {waiting.transfer.id, came_to == fabric::DmaStart::moved};
      return true;
    });
    ++polls_;
    return ended;
  }
  void abandon(const fabric::PeerWindow& window) override {
    std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.transfer.window == &window; });
  }
  [[nodiscard]] bool idle() const { return waiting_.empty(); }

  bool may_pull = true;  ///< false: it is busy for pulls

 private:
  static constexpr std::size_t kAtMost = 4;
  struct Waiting {
    fabric::DmaTransfer transfer;
    bool pull = false;
    std::uint64_t due = 0;                    ///< at this poll, or as soon as there is room to tell
    std::optional<fabric::DmaStart> moved{};  ///< already, and how that ended
  };
  [[nodiscard]] fabric::DmaStart pull(const fabric::DmaTransfer& transfer) override {
    return may_pull ? take({transfer, true}) : fabric::DmaStart::busy;
  }
  void stop(std::uint64_t id) override {
    std::erase_if(waiting_, [id](const Waiting& waiting) { return waiting.transfer.id == id; });
  }
  [[nodiscard]] fabric::DmaStart take(Waiting what) {
    if (random_.below(3) == 0) return move(what);
    if (waiting_.size() == kAtMost) return fabric::DmaStart::busy;
    const std::uint64_t takes = random_.below(12);
    what.due = polls_ + takes;
    if (takes % 3 == 2) what.moved = move(what);
    waiting_.push_back(what);
    return fabric::DmaStart::started;
  }
  [[nodiscard]] fabric::DmaStart move(const Waiting& what) {
    return what.pull ? copy_.puller()->pull(what.transfer) : copy_.start(what.transfer);
  }

  RandomSource& random_;
  fabric::TwoWayCopy copy_;
  std::uint64_t polls_ = 0;
  std::deque<Waiting> waiting_;
};

}  // namespace splitnic::sim
