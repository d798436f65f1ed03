#pragma once

#include <cstddef>
#include <optional>

#include "fabric/bridge/anchor.h"
#include "fabric/bridge/link.h"

namespace splitnic::fabric {

/// Where an end of a bridge has what its link needs, in its own memory of so many bytes: the anchor, the armed flag,
/// the tails, the rings of each lane, the protection table and its admissions; the rest is for buffers. Rings take a
/// quarter of the memory at most. Without epochs. nullopt: the memory is too small. Thread: any. Source:
/// design, "The bridge".
[[nodiscard]] std::optional<Anchor> layout_of(const LinkOptions& options, std::size_t memory_bytes);

}  // namespace splitnic::fabric
