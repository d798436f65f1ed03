#include "common/frame/ethernet.h"

#include "common/frame/headers.h"

namespace splitnic::frame {
namespace {

/// The bytes after a VLAN ethertype: the tag's control information, then the next ethertype.
struct WireTag {
  big_uint16_buf_t control;
  big_uint16_buf_t ethertype;
};
static_assert(sizeof(WireTag) == kVlanTagBytes && alignof(WireTag) == 1);

}  // namespace

// Runs for every frame, so it writes the header field by field into the caller's memory (one variable for all returns).
std::optional<EthernetHeader> parse_ethernet(std::span<const std::byte> frame) {
  std::optional<EthernetHeader> header;
  if (frame.size() < kEthernetHeaderBytes) return header;
  header.emplace();
  header->destination = load<MacAddress>(frame, 0);
  header->source = load<MacAddress>(frame, 6);
  header->ethertype = load<big_uint16_buf_t>(frame, 12).value();
  header->payload_offset = kEthernetHeaderBytes;
  while (is_vlan(header->ethertype) && header->vlan_tags < kMaxVlanTags) {
    if (!holds<WireTag>(frame, header->payload_offset)) {
      header.reset();
      return header;
    }
    const auto tag = load<WireTag>(frame, header->payload_offset);
    if (header->vlan_tags == 0) {
      header->outer_tpid = header->ethertype;
      header->vlan_id = tag.control.value() & kVlanIdMask;
    }
    ++header->vlan_tags;
    header->ethertype = tag.ethertype.value();
    header->payload_offset += kVlanTagBytes;
  }
  return header;
}

}  // namespace splitnic::frame
