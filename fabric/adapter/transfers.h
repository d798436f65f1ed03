#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/adapter/dma_provider.h"
#include "fabric/memory/protection_table.h"

namespace splitnic::fabric {

/// Whose bytes a transfer moves.
enum class TransferOwner : std::uint8_t { send, response };

/// What a transfer was started for.
struct TransferFor {
  QpNumber queue_pair{};
  TransferOwner owner = TransferOwner::send;
  std::uint64_t position = 0;  ///< in the send or response queue
  Stag peers{};                ///< the peer's tag that it writes or reads through
};

/// The transfers that a DMA provider has under way, so that each completion finds its request, or nothing where the
/// queue pair has gone since. A pull stores into own memory: it is stopped as soon as that memory's tag ends, or the
/// request. Thread: the adapter's owner.
class Transfers final : public EntryWatch {
 public:
  /// provider: lent; null: the processor.
  explicit Transfers(DmaProvider* provider)
      : provider_(provider != nullptr ? provider : &processor_), puller_(provider_->puller()) {}
  ~Transfers() override;
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// transfer.id is not looked at.
  [[nodiscard]] DmaStart start(DmaTransfer& transfer, const TransferFor& what);
  /// Whether pull() may be called.
  [[nodiscard]] bool pulls() const { return puller_ != nullptr; }
  /// Likewise, out of the window. into: the segments whose memory the pieces are.
  [[nodiscard]] DmaStart pull(DmaTransfer& transfer, const TransferFor& what, std::span<const LocalSegment> into);
  /// Calls take(const TransferFor&, bool moved) for each that has ended; returns how many.
  template <class Take>
  std::size_t poll(Take&& take) {
    if (under_way_ == 0) return 0;
    std::size_t count = 0;
    if (any_stopped_) {
      any_stopped_ = false;
      for (const Slot& slot : slots_) {
        if (!slot.used || !slot.stopped) continue;
        take(*finish(slot.id), false);
        ++count;
      }
    }
    std::array<DmaCompletion, kAtMost> ended;
    const std::size_t reported = provider_->poll(ended);
    for (std::size_t i = 0; i < reported; ++i) {
      if (const auto what = finish(ended[i].id)) take(*what, ended[i].moved);
    }
    return count + reported;
  }
  /// How many were started at any time.
  [[nodiscard]] std::uint64_t started() const { return last_id_; }
  /// Whether one of the first `of` still moves bytes through this tag of the peer behind the window; tag 0: any tag.
  [[nodiscard]] bool busy_with(const PeerWindow& window, Stag peers, std::uint64_t of) const;
  [[nodiscard]] bool any() const { return under_way_ != 0; }
  /// The queue pair is no more, or starts anew: what ends of it from now on ends for nobody, and its pulls have stopped
  /// when this returns.
  void disown(QpNumber queue_pair);
  /// Its requests are flushed, and their memory is the user's again: its pulls have stopped when this returns.
  void stop_pulls(QpNumber queue_pair);
  /// The epoch of the path with this window is over.
  void abandon(const PeerWindow& window);
  /// Pulls into this entry stop now, and end with the next poll().
  void entry_ends(std::uint32_t index) override;

 private:
  static constexpr std::size_t kAtMost = 64;
  struct Slot {
    bool used = false;
    bool pull = false;
    bool stopped = false;  // a pull that is not the provider's any more
    std::uint64_t id = 0;
    const PeerWindow* window = nullptr;
    TransferFor what{};
    std::size_t into_count = 0;
    std::array<std::uint32_t, kMaxSegments> into{};  // indices of own tags
  };
  [[nodiscard]] Slot* free_slot(DmaTransfer& transfer);
  void occupy(Slot& slot, const DmaTransfer& transfer, const TransferFor& what);
  void release(Slot& slot);
  void stop(Slot& slot);
  [[nodiscard]] const TransferFor* finish(std::uint64_t id);

  ProcessorCopy processor_;
  DmaProvider* provider_;
  DmaPuller* puller_;
  std::array<Slot, kAtMost> slots_{};
  std::uint64_t last_id_ = 0;
  std::size_t under_way_ = 0;
  bool any_stopped_ = false;
};

}  // namespace splitnic::fabric
