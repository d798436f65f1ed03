#include "fabric/link/udp_wire.h"

#include <boost/describe.hpp>
#include <cstring>

#include "common/check.h"
#include "common/crc32c.h"
#include "fabric/wire/read_at.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kCheckEnd = offsetof(UdpCommon, check) + sizeof(UdpCommon::check);
using RecordLength = boost::endian::little_uint16_buf_t;

std::uint32_t check_of(std::span<const std::byte> datagram) {
  return crc32c(datagram.subspan(kCheckEnd), crc32c(datagram.first(offsetof(UdpCommon, check))));
}

UdpCommon common_of(std::uint8_t kind, UdpKey receiver) {
  UdpCommon common;
  common.magic = kUdpMagic;
  common.version = kUdpVersion;
  common.kind = kind;
  common.check = 0;
  common.receiver_key = receiver.value;
  return common;
}

tl::expected<UdpDatagram, UdpFault> refused(UdpFault fault) { return tl::unexpected(fault); }

tl::expected<UdpDatagram, UdpFault> decode_hello(std::span<const std::byte> datagram) {
  if (datagram.size() != sizeof(UdpHelloBytes)) return refused(UdpFault::length);
  const auto bytes = read_at<UdpHelloBytes>(datagram, 0);
  if (bytes.reserved != decltype(bytes.reserved){}) return refused(UdpFault::reserved);
  UdpHello hello;
  hello.receiver_key = UdpKey{bytes.common.receiver_key.value()};
  hello.sender_key = UdpKey{bytes.sender_key.value()};
  hello.epoch = Epoch{bytes.epoch.value()};
  hello.port_address = PortAddress{bytes.port_address.value()};
  hello.datagram_bytes = bytes.datagram_bytes.value();
  if (hello.sender_key == UdpKey{}) return refused(UdpFault::key);
  if (hello.epoch == Epoch{}) return refused(UdpFault::epoch);
  if (hello.port_address.value >= kPortAddressLimit) return refused(UdpFault::port_address);
  if (hello.datagram_bytes < kUdpMinDatagram || hello.datagram_bytes > kUdpMaxDatagram) {
    return refused(UdpFault::datagram_bytes);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    hello.window_bytes[lane] = bytes.window_bytes[lane].value();
    // A window that never holds the longest datagram would stop the lane for good.
    if (hello.window_bytes[lane] < hello.datagram_bytes) return refused(UdpFault::window);
  }
  return hello;
}

bool whole_records(std::span<const std::byte> records) {
  while (!records.empty()) {
    if (records.size() < kUdpRecordHead) return false;
    const std::size_t bytes = read_at<RecordLength>(records, 0).value();
    if (bytes < kUdpMinRecord || bytes > records.size() - kUdpRecordHead) return false;
    records = records.subspan(kUdpRecordHead + bytes);
  }
  return true;
}

tl::expected<UdpDatagram, UdpFault> decode_data(std::span<const std::byte> datagram) {
  if (datagram.size() < sizeof(UdpDataBytes)) return refused(UdpFault::length);
  const auto bytes = read_at<UdpDataBytes>(datagram, 0);
  if (bytes.reserved.value() != 0) return refused(UdpFault::reserved);
  if (bytes.common.receiver_key.value() == 0) return refused(UdpFault::key);
  if (bytes.lane.value() >= kLanes) return refused(UdpFault::lane);
  if ((bytes.flags.value() & ~kUdpFlagAsk) != 0) return refused(UdpFault::flags);
  UdpData data;
  data.receiver_key = UdpKey{bytes.common.receiver_key.value()};
  data.epochs = bytes.epochs.value();
  data.lane = static_cast<VirtualLane>(bytes.lane.value());
  data.ask = (bytes.flags.value() & kUdpFlagAsk) != 0;
  data.position = bytes.position.value();
  for (std::size_t lane = 0; lane < kLanes; ++lane) data.granted[lane] = bytes.granted[lane].value();
  data.records = datagram.subspan(sizeof(UdpDataBytes));
  if (!whole_records(data.records)) return refused(UdpFault::records);
  return data;
}

}  // namespace

BOOST_DESCRIBE_ENUM(UdpFault, length, magic, version, check, kind, reserved, key, epoch, port_address, window,
                    datagram_bytes, lane, flags, records)
const char* to_string(UdpFault fault) { return boost::describe::enum_to_string(fault, "?"); }

UdpHelloBytes encode_udp(const UdpHello& hello) {
  UdpHelloBytes bytes{};
  bytes.common = common_of(kUdpHello, hello.receiver_key);
  bytes.sender_key = hello.sender_key.value;
  bytes.epoch = hello.epoch.value;
  bytes.port_address = hello.port_address.value;
  for (std::size_t lane = 0; lane < kLanes; ++lane) bytes.window_bytes[lane] = hello.window_bytes[lane];
  bytes.datagram_bytes = hello.datagram_bytes;
  bytes.common.check = check_of(std::as_bytes(std::span(&bytes, 1)));
  return bytes;
}

void seal_udp(const UdpData& data, std::span<std::byte> datagram) {
  SPLITNIC_CHECK_OP(datagram.size(), >=, sizeof(UdpDataBytes));
  UdpDataBytes bytes{};
  bytes.common = common_of(kUdpData, data.receiver_key);
  bytes.epochs = data.epochs;
  bytes.lane = static_cast<std::uint8_t>(data.lane);
  bytes.flags = data.ask ? kUdpFlagAsk : std::uint8_t{0};
  bytes.position = data.position;
  for (std::size_t lane = 0; lane < kLanes; ++lane) bytes.granted[lane] = data.granted[lane];
  std::memcpy(datagram.data(), &bytes, sizeof bytes);
  const boost::endian::little_uint32_buf_t check(check_of(datagram));
  std::memcpy(datagram.data() + offsetof(UdpCommon, check), &check, sizeof check);
}

tl::expected<UdpDatagram, UdpFault> decode_udp(std::span<const std::byte> datagram) {
  if (datagram.size() < sizeof(UdpCommon) || datagram.size() > kUdpMaxDatagram) return refused(UdpFault::length);
  const auto common = read_at<UdpCommon>(datagram, 0);
  if (common.magic.value() != kUdpMagic) return refused(UdpFault::magic);
  if (common.version.value() != kUdpVersion) return refused(UdpFault::version);
  if (common.check.value() != check_of(datagram)) return refused(UdpFault::check);
  switch (common.kind.value()) {
    case kUdpHello:
      return decode_hello(datagram);
    case kUdpData:
      return decode_data(datagram);
    default:
      return refused(UdpFault::kind);
  }
}

}  // namespace splitnic::fabric
