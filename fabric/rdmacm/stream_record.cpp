#include "fabric/rdmacm/stream_record.h"

#include <algorithm>
#include <limits>

#include "fabric/rdmacm/copied_bytes.h"

namespace splitnic::rdmacm {
namespace {

bool fits_address_space(std::uint64_t address, std::uint64_t bytes) {
  return bytes <= std::numeric_limits<std::uint64_t>::max() - address;
}

}  // namespace

StreamSetUpBytes encode(const StreamSetUp& set_up) {
  StreamSetUpBytes bytes{};
  bytes.magic = kStreamMagic;
  bytes.version = kStreamVersion;
  bytes.ring_address = set_up.ring_address;
  bytes.ring_key = set_up.ring_key;
  bytes.ring_bytes = set_up.ring_bytes;
  bytes.messages = set_up.messages;
  bytes.io_maps = set_up.io_maps;
  return bytes;
}

tl::expected<StreamSetUp, StreamFault> decode_set_up(std::span<const std::byte> private_data) {
  if (private_data.size() < sizeof(StreamSetUpBytes)) return tl::unexpected(StreamFault::size);
  const auto bytes = copied_bytes<StreamSetUpBytes>(private_data);
  if (bytes.magic.value() != kStreamMagic) return tl::unexpected(StreamFault::magic);
  if (bytes.version.value() != kStreamVersion) return tl::unexpected(StreamFault::version);
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (bytes.reserved.value() != 0 || !std::ranges::all_of(private_data.subspan(sizeof bytes), is_zero))
    return tl::unexpected(StreamFault::reserved);
  StreamSetUp set_up{bytes.ring_address.value(), bytes.ring_key.value(), bytes.ring_bytes.value(),
                     bytes.messages.value(), bytes.io_maps.value()};
  const bool ring = set_up.ring_bytes >= kMinRingBytes && set_up.ring_bytes <= kMaxRingBytes &&
                    fits_address_space(set_up.ring_address, set_up.ring_bytes);
  if (!ring) return tl::unexpected(StreamFault::ring);
  if (set_up.messages < kMinMessages || set_up.messages > kMaxMessages) return tl::unexpected(StreamFault::messages);
  if (set_up.io_maps > kMaxIoMaps) return tl::unexpected(StreamFault::io_maps);
  return set_up;
}

StreamControlBytes encode(const StreamControl& control) {
  StreamControlBytes bytes{};
  bytes.kind = static_cast<std::uint8_t>(control.kind);
  bytes.key = control.key;
  bytes.consumed_bytes = control.consumed_bytes;
  bytes.consumed_messages = control.consumed_messages;
  bytes.offset = control.offset;
  bytes.address = control.address;
  bytes.bytes = control.bytes;
  return bytes;
}

tl::expected<StreamControl, StreamFault> decode_control(std::span<const std::byte> from) {
  if (from.size() != sizeof(StreamControlBytes)) return tl::unexpected(StreamFault::size);
  const auto bytes = copied_bytes<StreamControlBytes>(from);
  if (bytes.kind == 0 || bytes.kind > static_cast<std::uint8_t>(ControlKind::map))
    return tl::unexpected(StreamFault::kind);
  if (bytes.reserved != decltype(bytes.reserved){}) return tl::unexpected(StreamFault::reserved);
  StreamControl control;
  control.kind = static_cast<ControlKind>(bytes.kind);
  control.consumed_bytes = bytes.consumed_bytes.value();
  control.consumed_messages = bytes.consumed_messages.value();
  control.key = bytes.key.value();
  control.offset = bytes.offset.value();
  control.address = bytes.address.value();
  control.bytes = bytes.bytes.value();
  const bool maps = control.kind == ControlKind::map;
  const bool fits =
      maps ? fits_address_space(control.address, control.bytes) && fits_address_space(control.offset, control.bytes)
           : control.key == 0 && control.offset == 0 && control.address == 0 && control.bytes == 0;
  if (!fits) return tl::unexpected(StreamFault::map);
  return control;
}

}  // namespace splitnic::rdmacm
