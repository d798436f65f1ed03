#pragma once

#include <cstdint>
#include <initializer_list>

#include "fabric/verbs/address_handle.h"
#include "fabric/verbs/types.h"

/// Work requests for QueuePair::post_send(). The flags (signalled, fence, solicited, inline_data) are fields to set
/// afterwards. The completion returns the id. Nothing is checked before the post.
namespace splitnic::verbs {

/// A gather or scatter list of at most limits().segments.
using Segments = std::initializer_list<LocalSegment>;

[[nodiscard]] WorkRequest send(std::uint64_t id, Segments segments);
/// tag: a tag of the peer, which the arrival of the message invalidates.
[[nodiscard]] WorkRequest send_with_invalidate(std::uint64_t id, Segments segments, Stag tag);
/// To a datagram queue pair of the peer, whose queue key the receiver checks; of a group's handle, the queue pair is
/// not looked at. The handle is read during the call; a datagram that has not left when the handle ends is dropped. The
/// message must fit one cell.
[[nodiscard]] WorkRequest send_datagram(std::uint64_t id, Segments segments, const AddressHandle& to,
                                        QpNumber queue_pair, std::uint32_t queue_key);
[[nodiscard]] WorkRequest rdma_write(std::uint64_t id, Segments from, RemoteAddress to);
/// Consumes a receive of the peer, whose completion has the immediate.
[[nodiscard]] WorkRequest rdma_write_with_immediate(std::uint64_t id, Segments from, RemoteAddress to,
                                                    std::uint32_t immediate);
[[nodiscard]] WorkRequest rdma_read(std::uint64_t id, Segments into, RemoteAddress from);
/// An atomic on 8 aligned bytes at `at`, in the owner's byte order. The 8 bytes of `before` get the old value.
[[nodiscard]] WorkRequest compare_swap(std::uint64_t id, LocalSegment before, RemoteAddress at, std::uint64_t compare,
                                       std::uint64_t swap);
[[nodiscard]] WorkRequest fetch_add(std::uint64_t id, LocalSegment before, RemoteAddress at, std::uint64_t add);
/// tag: of a region registered through a send queue, or of a type 2 window.
[[nodiscard]] WorkRequest local_invalidate(std::uint64_t id, Stag tag);
/// Delays the requests behind it on the queue. time: at most limits().delay. Source: S4.
[[nodiscard]] WorkRequest delay(std::uint64_t id, Duration time);

/// A receive of one segment. ReceiveRequest::more adds segments to its scatter list; it is read during the post.
[[nodiscard]] ReceiveRequest receive(std::uint64_t id, LocalSegment into);

}  // namespace splitnic::verbs
