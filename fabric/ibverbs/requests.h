#pragma once

#include <infiniband/verbs.h>

#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {

/// A binding of the window's present tag; no region, or no bytes: it unbinds.
[[nodiscard]] fabric::Bind binding_of(const Window& window, const ibv_mw_bind_info& info);

/// Puts a gather or scatter list into segments, without the empty ones; returns how many. most: at most so many fit.
/// nullopt: too many.
[[nodiscard]] std::optional<std::size_t> segments_of(std::span<const ibv_sge> list,
                                                     std::span<fabric::LocalSegment> segments);
/// Where a datagram goes.
[[nodiscard]] fabric::DatagramTarget target_of(ibv_ah* handle, std::uint32_t queue_pair, std::uint32_t queue_key);

}  // namespace splitnic::ibverbs
