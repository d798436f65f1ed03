#include "fabric/rdmacm/datagram_record.h"

#include "fabric/rdmacm/copied_bytes.h"

namespace splitnic::rdmacm {

DatagramHeaderBytes encode_source(const Address& source) {
  DatagramHeaderBytes bytes{};
  bytes.magic = kDatagramMagic;
  bytes.version = kDatagramVersion;
  bytes.number = source.number;
  bytes.address = source.bytes;
  bytes.scope = source.scope;
  return bytes;
}

std::optional<Address> decode_source(std::span<const std::byte> from) {
  if (from.size() < sizeof(DatagramHeaderBytes)) return std::nullopt;
  const auto bytes = copied_bytes<DatagramHeaderBytes>(from);
  const Address source{bytes.address, bytes.number.value(), bytes.scope.value()};
  const bool known = bytes.magic.value() == kDatagramMagic && bytes.version.value() == kDatagramVersion;
  if (!known || source.number == 0 || source.is_any() || source.is_multicast()) return std::nullopt;
  return source;
}

}  // namespace splitnic::rdmacm
