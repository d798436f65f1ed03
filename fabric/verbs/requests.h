#pragma once

#include <cstdint>
#include <initializer_list>

#include "fabric/verbs/types.h"

/// Work requests for QueuePair::post_send(), ready but for the flags (signalled, fence, solicited, inline_data), which
/// are fields. id comes back in the completion. Nothing is checked before the post.
namespace splitnic::verbs {

/// A gather or scatter list of at most limits().segments.
using Segments = std::initializer_list<LocalSegment>;

[[nodiscard]] WorkRequest send(std::uint64_t id, Segments segments);
/// tag: the peer's, ended when the message has arrived.
[[nodiscard]] WorkRequest send_with_invalidate(std::uint64_t id, Segments segments, Stag tag);
[[nodiscard]] WorkRequest rdma_write(std::uint64_t id, Segments from, RemoteAddress to);
/// The peer sees it: a receive is consumed, its completion has the immediate.
[[nodiscard]] WorkRequest rdma_write_with_immediate(std::uint64_t id, Segments from, RemoteAddress to,
                                                    std::uint32_t immediate);
[[nodiscard]] WorkRequest rdma_read(std::uint64_t id, Segments into, RemoteAddress from);
/// On 8 aligned bytes at `at`, in the owner's byte order; what they held goes into the 8 bytes of `before`.
[[nodiscard]] WorkRequest compare_swap(std::uint64_t id, LocalSegment before, RemoteAddress at, std::uint64_t compare,
                                       std::uint64_t swap);
[[nodiscard]] WorkRequest fetch_add(std::uint64_t id, LocalSegment before, RemoteAddress at, std::uint64_t add);
/// Of a region registered through a send queue, or of a type 2 window.
[[nodiscard]] WorkRequest local_invalidate(std::uint64_t id, Stag tag);
/// What comes after it on the queue waits. At most limits().delay. Source: S4.
[[nodiscard]] WorkRequest delay(std::uint64_t id, Duration time);

/// A receive of one segment. Further ones of its scatter list: ReceiveRequest::more, read during the post.
[[nodiscard]] ReceiveRequest receive(std::uint64_t id, LocalSegment into);

}  // namespace splitnic::verbs
