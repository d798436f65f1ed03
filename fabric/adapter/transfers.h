#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fabric/adapter/dma_provider.h"

namespace splitnic::fabric {

/// Whose bytes a transfer moves.
enum class TransferOwner : std::uint8_t { send, response };

/// What a transfer was started for.
struct TransferFor {
  QpNumber queue_pair{};
  TransferOwner owner = TransferOwner::send;
  std::uint64_t position = 0;  ///< in the send or response queue
  Stag into{};                 ///< the peer's tag that it writes through
};

/// The transfers that a DMA provider has under way, so that each completion finds its request, or nothing where the
/// queue pair has gone since. Thread: the adapter's owner.
class Transfers {
 public:
  /// provider: lent; null: the processor.
  explicit Transfers(DmaProvider* provider) : provider_(provider != nullptr ? provider : &processor_) {}
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// transfer.id is not looked at.
  [[nodiscard]] DmaStart start(DmaTransfer& transfer, const TransferFor& what);
  /// Calls take(const TransferFor&, bool moved) for each that has ended; returns how many.
  template <class Take>
  std::size_t poll(Take&& take) {
    if (under_way_ == 0) return 0;
    std::array<DmaCompletion, kAtMost> ended;
    const std::size_t count = provider_->poll(ended);
    for (std::size_t i = 0; i < count; ++i) {
      if (const auto what = finish(ended[i].id)) take(*what, ended[i].moved);
    }
    return count;
  }
  /// How many were started at any time.
  [[nodiscard]] std::uint64_t started() const { return last_id_; }
  /// Whether one of the first `of` is still writing through this tag of the peer behind the window; tag 0: any tag.
  [[nodiscard]] bool busy_with(const PeerWindow& window, Stag into, std::uint64_t of) const;
  [[nodiscard]] bool any() const { return under_way_ != 0; }
  /// The queue pair is no more, or starts anew: what ends of it from now on ends for nobody.
  void disown(QpNumber queue_pair);
  /// The epoch of the path with this window is over.
  void abandon(const PeerWindow& window);

 private:
  static constexpr std::size_t kAtMost = 64;
  struct Slot {
    bool used = false;
    std::uint64_t id = 0;
    const PeerWindow* window = nullptr;
    TransferFor what{};
  };
  [[nodiscard]] const TransferFor* finish(std::uint64_t id);

  ProcessorCopy processor_;
  DmaProvider* provider_;
  std::array<Slot, kAtMost> slots_{};
  std::uint64_t last_id_ = 0;
  std::size_t under_way_ = 0;
};

}  // namespace splitnic::fabric
