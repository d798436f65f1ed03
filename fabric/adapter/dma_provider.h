#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/adapter/work.h"
#include "fabric/bridge/peer_memory.h"
#include "fabric/memory/region.h"

namespace splitnic::fabric {

/// A part of registered memory, which stays translatable while this lives.
struct DmaPiece {
  RegionMemory memory{};
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

/// Bytes of registered memory, on their way into the peer's.
struct DmaTransfer {
  std::uint64_t id = 0;  ///< returned with the completion
  std::array<DmaPiece, kMaxSegments> pieces{};
  std::size_t piece_count = 0;
  PeerWindow* window = nullptr;
  std::size_t to = 0;  ///< offset in the window; checked
  /// How to store bytes that the peer reads next, because a message announces them; null: plainly. Lent
  /// for the call, also to a provider that copies the rest.
  StoreHabit* stores = nullptr;
};

struct DmaCompletion {
  std::uint64_t id = 0;
  bool moved = false;  ///< false: a piece's memory is gone, or the engine failed
};

enum class DmaStart : std::uint8_t {
  moved,    ///< done already; no completion follows
  failed,   ///< likewise
  started,  ///< poll() will report the completion
  busy,     ///< not taken: try again later
};

/// Moves the bytes of RDMA writes and of directly answered reads through the peer window: this processor, a DMA
/// engine, or a device that has the bytes itself. A transfer has written all its bytes before the provider reports its
/// completion, so a later publish() orders them before the slot that announces them. Thread: the adapter's owner.
/// Source: S2 (DMA provider), Figs. 10 and 12.
class DmaProvider {
 public:
  virtual ~DmaProvider() = default;
  /// transfer: lent for the call; a provider that needs it longer copies it.
  [[nodiscard]] virtual DmaStart start(const DmaTransfer& transfer) = 0;
  /// Completions since the last call, in any order; returns how many.
  [[nodiscard]] virtual std::size_t poll(std::span<DmaCompletion> out) = 0;
  /// The epoch of a path is over: returns when no transfer writes through this window any more. These transfers get no
  /// completions.
  virtual void abandon(const PeerWindow& window) = 0;
};

/// Copies at once. The default.
class ProcessorCopy final : public DmaProvider {
 public:
  [[nodiscard]] DmaStart start(const DmaTransfer& transfer) override;
  [[nodiscard]] std::size_t poll(std::span<DmaCompletion> /*out*/) override { return 0; }
  void abandon(const PeerWindow& /*window*/) override {}
};

}  // namespace splitnic::fabric
