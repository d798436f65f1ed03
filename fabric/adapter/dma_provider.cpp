#include "fabric/adapter/dma_provider.h"

#include <algorithm>

namespace splitnic::fabric {
namespace {

/// From the window into the piece. False: the piece's memory is gone.
bool pull_piece(const PeerWindow& window, std::size_t from, const DmaPiece& piece) {
  if (window.is_memory()) return piece.memory.store(piece.offset, window.view(from, piece.bytes));
  std::array<std::byte, 4096> part;
  for (std::uint32_t done = 0; done < piece.bytes;) {
    const std::span here = std::span(part).first(std::min<std::size_t>(part.size(), piece.bytes - done));
    window.read(from + done, here);
    if (!piece.memory.store(piece.offset + done, here)) return false;
    done += static_cast<std::uint32_t>(here.size());
  }
  return true;
}

}  // namespace

DmaStart ProcessorCopy::start(const DmaTransfer& transfer) {
  std::size_t to = transfer.to;
  for (std::size_t i = 0; i < transfer.piece_count; ++i) {
    const DmaPiece& piece = transfer.pieces[i];
    if (piece.bytes == 0) continue;
    const auto claimed = transfer.window->claim(to, piece.bytes);
    if (!piece.memory.load(piece.offset, claimed, transfer.stores)) return DmaStart::failed;
    transfer.window->commit(to, claimed);
    to += piece.bytes;
  }
  return DmaStart::moved;
}

DmaStart TwoWayCopy::pull(const DmaTransfer& transfer) {
  std::size_t from = transfer.to;
  for (std::size_t i = 0; i < transfer.piece_count; ++i) {
    const DmaPiece& piece = transfer.pieces[i];
    if (piece.bytes == 0) continue;
    if (!pull_piece(*transfer.window, from, piece)) return DmaStart::failed;
    from += piece.bytes;
  }
  return DmaStart::moved;
}

}  // namespace splitnic::fabric
