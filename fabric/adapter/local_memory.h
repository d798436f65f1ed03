#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/adapter/context.h"

namespace splitnic::fabric {

/// A posted segment's bytes [offset, offset + bytes), for that user. Segments are checked with every use:
/// since the post the memory may have been deregistered. remembered: of this user. Source: S3 Fig. 15.
[[nodiscard]] ProtectionTable::Checked<Placement> check_segment_in_table(const AdapterContext& context,
                                                                         const Consumer& user,
                                                                         const LocalSegment& segment,
                                                                         std::uint32_t offset, std::uint32_t bytes,
                                                                         Right right, RememberedRegion& remembered);
[[nodiscard]] inline ProtectionTable::Checked<Placement> check_segment(const AdapterContext& context,
                                                                       const Consumer& user,
                                                                       const LocalSegment& segment,
                                                                       std::uint32_t offset, std::uint32_t bytes,
                                                                       Right right, RememberedRegion& remembered) {
  const auto known = remembered.find(segment.tag, segment.as_number() + offset, bytes, right);
  if (known) return *known;
  return check_segment_in_table(context, user, segment, offset, bytes, right, remembered);
}
/// Likewise, as the sink of an own read or atomic. psn: nullopt before the request is numbered. Source: S3 Fig. 18B.
[[nodiscard]] ProtectionTable::Checked<Placement> check_sink(const AdapterContext& context, const Consumer& user,
                                                             const LocalSegment& segment, std::uint32_t offset,
                                                             std::uint32_t bytes, std::optional<std::uint32_t> psn);
/// What a peer asks of the table with the packet `psn`.
[[nodiscard]] Access access_of(const QueuePair& queue_pair, Stag tag, std::uint64_t bytes, Right right,
                               std::uint32_t psn);
/// The status of a post whose segment the table refuses: bad_length if the segment reaches beyond the tag's memory,
/// else bad_tag.
[[nodiscard]] Status post_status(ProtectionError refusal);
/// The address that peers would use for the segment's first byte; what is not a region's is answered as it stands.
[[nodiscard]] std::uint64_t peers_address(const AdapterContext& context, const LocalSegment& segment);

/// Bytes of all the request's segments, of which there are at most kMaxSegments.
[[nodiscard]] std::uint64_t message_bytes(const WorkRequest& request);
/// Copies the inline data of such a request; to: message_bytes() or more. False: the process does not have this memory.
[[nodiscard]] bool copy_inline(const WorkRequest& request, std::span<std::byte> to);

/// Calls part(segment, offset in it, bytes) for what of the list holds [offset, offset + bytes), in order, until one
/// answers false; whether none did.
template <class Part>
bool for_parts(std::span<const LocalSegment> segments, std::uint32_t offset, std::uint32_t bytes, Part&& part) {
  for (const LocalSegment& segment : segments) {
    if (bytes == 0) return true;
    if (offset >= segment.bytes) {
      offset -= segment.bytes;
      continue;
    }
    const std::uint32_t here = bytes < segment.bytes - offset ? bytes : segment.bytes - offset;
    if (!part(segment, offset, here)) return false;
    bytes -= here;
    offset = 0;
  }
  return true;
}

/// The first bytes of the placement, into the next of a claimed cell. False: the memory is gone.
[[nodiscard]] bool load_placement(const Placement& placement, ClaimedPayload& to, std::size_t bytes);
/// A received payload into the placement. False: likewise.
[[nodiscard]] bool store_placement(const Placement& placement, const CellPayload& from);

/// Whether the process can still read the first bytes of the placement; looks at one byte of each page.
[[nodiscard]] bool still_there(const Placement& placement, std::size_t bytes);

/// Runs the packet's CRC over the cell. False: the cell ends its packet, and the packet is damaged.
[[nodiscard]] bool packet_is_whole(std::uint32_t& packet_crc, const ReceivedCell& received);

/// The memory of a tag has been taken from the process.
void report_gone(AdapterContext& context, QpNumber queue_pair, Stag tag);

}  // namespace splitnic::fabric
