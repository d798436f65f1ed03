#pragma once

#include <infiniband/verbs.h>

#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {

/// A binding of the window's present tag; no region, or no bytes: it unbinds.
[[nodiscard]] fabric::Bind binding_of(const Window& window, const ibv_mw_bind_info& info);
/// The same for a window of type 2, which gets this key. The adapter replaces the tag that the window has in the
/// binding's turn, so posting leaves the key in the window's struct to the program, as the providers mlx5 and rxe of
/// rdma-core do.
[[nodiscard]] fabric::Bind binding_of_type_2(const Window& window, std::uint32_t key, const ibv_mw_bind_info& info);

/// Puts a gather or scatter list into segments, without the empty ones; returns how many, or kTooManySegments: they do
/// not fit. (Not an optional: GCC returns one by a load that waits for all stores before it.)
[[nodiscard]] std::size_t segments_of(std::span<const ibv_sge> list, std::span<fabric::LocalSegment> segments);
inline constexpr std::size_t kTooManySegments = ~std::size_t{0};
/// Where a datagram goes. Takes no lock of the adapter or its device.
[[nodiscard]] fabric::DatagramTarget target_of(ibv_ah* handle, std::uint32_t queue_pair, std::uint32_t queue_key);
/// To be called before it, not under the adapter's lock: makes the way if the handle leads to one device of a process
/// and another one has the queue pair. Where no memory or path is left, the datagram gets lost.
void make_way(ibv_ah* handle, std::uint32_t queue_pair) noexcept;

}  // namespace splitnic::ibverbs
