#include "fabric/rdmacm/stream_record.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace splitnic::rdmacm::stream_record_test {
namespace {

constexpr StreamSetUp kSetUp{0x1122334455667788, 0xaabbccdd, 65536, 384, 2};
constexpr StreamControl kMap{ControlKind::map, 0x101, 0x102, 0x03040506, 0x1000, 0x7f0000001000, 0x2000};

template <class Bytes>
std::vector<std::byte> raw(const Bytes& bytes) {
  std::vector<std::byte> out(sizeof bytes);
  std::memcpy(out.data(), &bytes, sizeof bytes);
  return out;
}

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

TEST_CASE("the set-up of a stream has these bytes", "[rdmacm]") {
  CHECK(hex(raw(encode(kSetUp))) ==
        "534c5253"
        "0100"
        "0000"
        "8877665544332211"
        "ddccbbaa"
        "00000100"
        "80010000"
        "02000000");
}

TEST_CASE("a control message of a stream has these bytes", "[rdmacm]") {
  CHECK(hex(raw(encode(kMap))) ==
        "03"
        "000000"
        "06050403"
        "0101000000000000"
        "0201000000000000"
        "0010000000000000"
        "00100000007f0000"
        "0020000000000000");
  CHECK(hex(raw(encode(StreamControl{ControlKind::end, 5, 6})))
            .starts_with("02000000000000000500000000000000"
                         "06"));
}

TEST_CASE("a set-up is read from private data, which has zeros behind it", "[rdmacm]") {
  auto bytes = raw(encode(kSetUp));
  CHECK(decode_set_up(bytes).value() == kSetUp);
  bytes.resize(196);
  CHECK(decode_set_up(bytes).value() == kSetUp);
  bytes.back() = std::byte{1};
  CHECK(decode_set_up(bytes).error() == StreamFault::reserved);
  CHECK(decode_set_up(std::span(bytes).first(31)).error() == StreamFault::size);
  CHECK(decode_set_up({}).error() == StreamFault::size);
}

TEST_CASE("a set-up that no end sends is refused, and the fault is named", "[rdmacm]") {
  const auto fault_with = [](const std::function<void(StreamSetUpBytes&)>& change) {
    StreamSetUpBytes bytes = encode(kSetUp);
    change(bytes);
    return decode_set_up(raw(bytes)).error();
  };
  CHECK(fault_with([](auto& bytes) { bytes.magic = 0; }) == StreamFault::magic);
  CHECK(fault_with([](auto& bytes) { bytes.version = 2; }) == StreamFault::version);
  CHECK(fault_with([](auto& bytes) { bytes.reserved = 1; }) == StreamFault::reserved);
  CHECK(fault_with([](auto& bytes) { bytes.ring_bytes = kMinRingBytes - 1; }) == StreamFault::ring);
  CHECK(fault_with([](auto& bytes) { bytes.ring_bytes = kMaxRingBytes + 1; }) == StreamFault::ring);
  CHECK(fault_with([](auto& bytes) { bytes.ring_address = ~std::uint64_t{0} - 10; }) == StreamFault::ring);
  CHECK(fault_with([](auto& bytes) { bytes.messages = kMinMessages - 1; }) == StreamFault::messages);
  CHECK(fault_with([](auto& bytes) { bytes.messages = kMaxMessages + 1; }) == StreamFault::messages);
  CHECK(fault_with([](auto& bytes) { bytes.io_maps = kMaxIoMaps + 1; }) == StreamFault::io_maps);
}

TEST_CASE("a control message that no end sends is refused, and the fault is named", "[rdmacm]") {
  CHECK(decode_control(raw(encode(kMap))).value() == kMap);
  const auto fault_with = [](const std::function<void(StreamControlBytes&)>& change) {
    StreamControlBytes bytes = encode(kMap);
    change(bytes);
    return decode_control(raw(bytes)).error();
  };
  CHECK(fault_with([](auto& bytes) { bytes.kind = 0; }) == StreamFault::kind);
  CHECK(fault_with([](auto& bytes) { bytes.kind = 4; }) == StreamFault::kind);
  CHECK(fault_with([](auto& bytes) { bytes.reserved[2] = 1; }) == StreamFault::reserved);
  CHECK(fault_with([](auto& bytes) { bytes.kind = 1; }) == StreamFault::map);
  CHECK(fault_with([](auto& bytes) { bytes.bytes = ~std::uint64_t{0}; }) == StreamFault::map);
  CHECK(fault_with([](auto& bytes) { bytes.offset = ~std::uint64_t{0} - 1; }) == StreamFault::map);
  const auto bytes = raw(encode(kMap));
  CHECK(decode_control(std::span(bytes).first(47)).error() == StreamFault::size);
}

}  // namespace
}  // namespace splitnic::rdmacm::stream_record_test
