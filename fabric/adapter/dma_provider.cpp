#include "fabric/adapter/dma_provider.h"

namespace splitnic::fabric {

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

}  // namespace splitnic::fabric
