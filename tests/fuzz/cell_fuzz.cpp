// Any bytes as a cell, as they are and once more with a cell CRC that fits, so that the fields behind it are reached.
// What decode_cell() accepts must encode again to the same bytes.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "fabric/wire/cell.h"

namespace {

using namespace splitnic::fabric;

void take(std::span<const std::byte> bytes) {
  const auto cell = decode_cell(bytes);
  if (!cell) {
    SPLITNIC_CHECK(to_string(cell.error())[0] != '?');
    return;
  }
  SPLITNIC_CHECK_OP(cell->payload.size(), <=, kMaxCellPayload);
  const std::array pieces{cell->payload};
  std::uint32_t packet_crc = kPacketCrcStart;
  const CellEnvelope again(*cell, pieces, cell->payload.size(), packet_crc);
  const auto head = again.head();
  SPLITNIC_CHECK(std::equal(head.begin(), head.end(), bytes.begin()));
  SPLITNIC_CHECK(cell->payload.data() == bytes.data() + head.size());
  SPLITNIC_CHECK_OP(head.size() + cell->payload.size() + again.tail().size(), <=, bytes.size());
  if (!cell->direct) SPLITNIC_CHECK(packet_crc == extend_packet_crc(kPacketCrcStart, *cell, bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::transform(data, data + size, bytes.begin(), [](std::uint8_t byte) { return static_cast<std::byte>(byte); });
  take(bytes);
  if (bytes.size() < kCrcBytes) return 0;
  const auto body = std::span<const std::byte>(bytes).first(bytes.size() - kCrcBytes);
  const boost::endian::little_uint32_buf_t crc(splitnic::crc32c(body));
  std::memcpy(bytes.data() + body.size(), &crc, sizeof crc);
  take(bytes);
  return 0;
}
