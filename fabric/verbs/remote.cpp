#include "fabric/verbs/remote.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace splitnic::verbs {

std::array<std::byte, kRemoteKeyBytes> encode(const RemoteKey& key) {
  RemoteKeyWire wire{};
  wire.address = key.address;
  wire.tag = key.tag.value;
  wire.bytes = key.bytes;
  return std::bit_cast<std::array<std::byte, kRemoteKeyBytes>>(wire);
}

std::optional<RemoteKey> decode_remote_key(std::span<const std::byte> bytes) {
  if (bytes.size() != kRemoteKeyBytes) return std::nullopt;
  RemoteKeyWire wire{};
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  return RemoteKey{wire.address.value(), Stag{wire.tag.value()}, wire.bytes.value()};
}

std::array<std::byte, kQueuePairAddressBytes> encode(const QueuePairAddress& address) {
  QueuePairAddressWire wire{};
  wire.port = address.port.value;
  wire.queue_pair = address.queue_pair.value;
  wire.first_psn = address.first_psn;
  wire.reads_in = address.reads_in;
  return std::bit_cast<std::array<std::byte, kQueuePairAddressBytes>>(wire);
}

std::optional<QueuePairAddress> decode_queue_pair_address(std::span<const std::byte> bytes) {
  if (bytes.size() != kQueuePairAddressBytes) return std::nullopt;
  QueuePairAddressWire wire{};
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  const bool reserved_clear = std::ranges::all_of(wire.reserved, [](std::uint8_t byte) { return byte == 0; });
  const std::uint32_t number = wire.queue_pair.value();
  if (wire.port.value() >> 48U != 0 || number == 0 || number >> 24U != 0 || !reserved_clear) return std::nullopt;
  return QueuePairAddress{PortAddress{wire.port.value()}, QpNumber{number}, wire.first_psn.value(),
                          wire.reads_in.value()};
}

}  // namespace splitnic::verbs
