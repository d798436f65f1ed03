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

/// Bytes of registered memory, on their way into the peer's; or the peer's, which are pulled.
struct DmaTransfer {
  std::uint64_t id = 0;  ///< returned with the completion
  std::array<DmaPiece, kMaxSegments> pieces{};
  std::size_t piece_count = 0;
  PeerWindow* window = nullptr;
  std::size_t to = 0;  ///< offset in the window; checked. Of a pull: the bytes come from there
  /// How to store bytes that the peer reads next, because a message announces them; null: plainly. Lent
  /// for the call, also to a provider that copies the rest. Null in a pull.
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

/// The option of a provider to pull the bytes of this end's reads out of the peer window, so that the peer's processor
/// answers nothing. A read whose pull fails, or is not taken, is answered by the owner. Thread: the adapter's owner.
/// Source: S2 Fig. 12 (the reader's provider retrieves the data).
class DmaPuller {
 public:
  virtual ~DmaPuller() = default;
  /// As DmaProvider::start(), from the window into the pieces. The bytes are those that the peer's memory has after the
  /// call, and all of them are in place before the provider reports the completion, by DmaProvider::poll(). Whether
  /// the peer was there all the while is for the adapter to find out, afterwards.
  [[nodiscard]] virtual DmaStart pull(const DmaTransfer& transfer) = 0;
  /// Of a pull that was started: returns when nothing more is stored into its pieces, whose memory may be another's
  /// next. It gets no completion.
  virtual void stop(std::uint64_t id) = 0;
};

/// Moves the bytes of RDMA writes, and of reads that are answered directly, into the peer window: this processor, a DMA
/// engine, or a device that has the bytes itself. A transfer has written all its bytes before the provider reports its
/// completion, so a later publish() orders them before the slot that announces them. Thread: the adapter's owner.
/// Source: S2 (DMA provider), Fig. 10.
class DmaProvider {
 public:
  virtual ~DmaProvider() = default;
  /// transfer: lent for the call; a provider that needs it longer copies it.
  [[nodiscard]] virtual DmaStart start(const DmaTransfer& transfer) = 0;
  /// Completions since the last call, in any order; returns how many.
  [[nodiscard]] virtual std::size_t poll(std::span<DmaCompletion> out) = 0;
  /// The epoch of a path is over: returns when no transfer writes through this window any more, no pull reads through
  /// it, and nothing more is stored into the pieces of its pulls. These transfers get no completions.
  virtual void abandon(const PeerWindow& window) = 0;
  /// Null: it does not pull. Else valid, and the same, for as long as the provider.
  [[nodiscard]] virtual DmaPuller* puller() { return nullptr; }
};

/// Copies at once. The default.
class ProcessorCopy final : public DmaProvider {
 public:
  [[nodiscard]] DmaStart start(const DmaTransfer& transfer) override;
  [[nodiscard]] std::size_t poll(std::span<DmaCompletion> /*out*/) override { return 0; }
  void abandon(const PeerWindow& /*window*/) override {}
};

/// Copies at once, and pulls likewise. For shared memory: a window onto a device would be read word by word, and the
/// processor would wait for each of them.
class TwoWayCopy final : public DmaProvider, private DmaPuller {
 public:
  [[nodiscard]] DmaStart start(const DmaTransfer& transfer) override { return copy_.start(transfer); }
  [[nodiscard]] std::size_t poll(std::span<DmaCompletion> /*out*/) override { return 0; }
  void abandon(const PeerWindow& /*window*/) override {}
  [[nodiscard]] DmaPuller* puller() override { return this; }

 private:
  [[nodiscard]] DmaStart pull(const DmaTransfer& transfer) override;
  void stop(std::uint64_t /*id*/) override {}

  ProcessorCopy copy_;
};

}  // namespace splitnic::fabric
