#include "fabric/link/udp_wire.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/crc32c.h"

namespace splitnic::fabric::udp_wire_test {
namespace {

using Bytes = std::vector<std::byte>;

UdpHello some_hello() {
  UdpHello hello;
  hello.receiver_key = UdpKey{0x1112131415161718};
  hello.sender_key = UdpKey{0x2122232425262728};
  hello.epoch = Epoch{0x3132333435363738};
  hello.port_address = PortAddress{0x414243444546};
  hello.window_bytes = {0x51525354, 0x61626364};
  hello.datagram_bytes = 1472;
  return hello;
}

UdpData some_data() {
  UdpData data;
  data.receiver_key = UdpKey{0x1112131415161718};
  data.epochs = 0x21222324;
  data.lane = VirtualLane::data;
  data.ask = true;
  data.position = 0x3132333435363738;
  data.granted = {0x4142434445464748, 0x5152535455565758};
  return data;
}

Bytes bytes_of(const UdpHello& hello) {
  const UdpHelloBytes bytes = encode_udp(hello);
  const auto view = std::as_bytes(std::span(&bytes, 1));
  return {view.begin(), view.end()};
}

/// records: their lengths; each is filled with its number.
Bytes bytes_of(const UdpData& data, const std::vector<std::size_t>& records) {
  Bytes bytes(sizeof(UdpDataBytes));
  std::uint8_t number = 0;
  for (const std::size_t length : records) {
    bytes.push_back(static_cast<std::byte>(length & 0xffU));
    bytes.push_back(static_cast<std::byte>(length >> 8U));
    bytes.insert(bytes.end(), length, static_cast<std::byte>(++number));
  }
  seal_udp(data, bytes);
  return bytes;
}

void seal_again(Bytes& bytes) {
  const std::uint32_t check = crc32c(std::span(bytes).subspan(8), crc32c(std::span(bytes).first(4)));
  for (std::size_t i = 0; i < 4; ++i) bytes[4 + i] = static_cast<std::byte>(check >> 8 * i);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

std::string verdict(const Bytes& bytes) {
  const auto decoded = decode_udp(bytes);
  return decoded ? "good" : to_string(decoded.error());
}

TEST_CASE("the bytes of a UDP hello are pinned", "[fabric][udp]") {
  const Bytes bytes = bytes_of(some_hello());
  CHECK(hex(bytes) ==
        "534e0101"
        "aea7b5f2"
        "1817161514131211"
        "2827262524232221"
        "3837363534333231"
        "4645444342410000"
        "54535251"
        "64636261"
        "c0050000"
        "000000000000000000000000");
  const auto decoded = decode_udp(bytes);
  REQUIRE(decoded.has_value());
  CHECK(std::get<UdpHello>(*decoded) == some_hello());
}

TEST_CASE("the bytes of a UDP datagram with records are pinned", "[fabric][udp]") {
  const Bytes bytes = bytes_of(some_data(), {36, 37});
  CHECK(hex(std::span(bytes).first(50)) ==
        "534e0102"
        "a570a48f"
        "1817161514131211"
        "24232221"
        "01"
        "01"
        "0000"
        "3837363534333231"
        "4847464544434241"
        "5857565554535251"
        "2400");
  const auto decoded = decode_udp(bytes);
  REQUIRE(decoded.has_value());
  const auto data = std::get<UdpData>(*decoded);
  CHECK(data.receiver_key == some_data().receiver_key);
  CHECK(data.epochs == some_data().epochs);
  CHECK(data.lane == VirtualLane::data);
  CHECK(data.ask);
  CHECK(data.position == some_data().position);
  CHECK(data.granted == some_data().granted);
  auto rest = data.records;
  const auto first = next_udp_record(rest);
  CHECK(Bytes(first.begin(), first.end()) == Bytes(36, std::byte{1}));
  const auto second = next_udp_record(rest);
  CHECK(Bytes(second.begin(), second.end()) == Bytes(37, std::byte{2}));
  CHECK(rest.empty());
}

TEST_CASE("each field of a UDP datagram is refused just beyond its boundary", "[fabric][udp]") {
  struct Row {
    const char* what;
    Bytes bytes;
    std::size_t at;  ///< where `value` is written, little-endian
    std::vector<std::uint8_t> value;
    const char* verdict;
  };
  const Bytes hello = bytes_of(some_hello());
  const Bytes data = bytes_of(some_data(), {36, 40});
  const std::vector<Row> rows{
      {"an unchanged hello", hello, 0, {}, "good"},
      {"unchanged data", data, 0, {}, "good"},
      {"another magic", hello, 0, {0x52}, "magic"},
      {"version 0", hello, 2, {0}, "version"},
      {"version 2", hello, 2, {2}, "version"},
      {"kind 0", hello, 3, {0}, "kind"},
      {"kind 3", data, 3, {3}, "kind"},
      {"a hello that says it is data", hello, 3, {2}, "reserved"},
      {"data that says it is a hello", data, 3, {1}, "length"},
      {"a hello for a key that is not known", hello, 8, {0, 0, 0, 0, 0, 0, 0, 0}, "good"},
      {"no sender key", hello, 16, {0, 0, 0, 0, 0, 0, 0, 0}, "key"},
      {"the least sender key", hello, 16, {1, 0, 0, 0, 0, 0, 0, 0}, "good"},
      {"no epoch", hello, 24, {0, 0, 0, 0, 0, 0, 0, 0}, "epoch"},
      {"the highest port address", hello, 32, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0}, "good"},
      {"a port address of 49 bits", hello, 32, {0, 0, 0, 0, 0, 0, 1, 0}, "port_address"},
      {"the least control window", hello, 40, {0xc0, 5, 0, 0}, "good"},
      {"a control window less than a datagram", hello, 40, {0xbf, 5, 0, 0}, "window"},
      {"a data window less than a datagram", hello, 44, {0xbf, 5, 0, 0}, "window"},
      {"the least datagram", hello, 48, {0, 2, 0, 0}, "good"},
      {"a datagram less than that", hello, 48, {0xff, 1, 0, 0}, "datagram_bytes"},
      {"the largest datagram", hello, 48, {0xe3, 0xff, 0, 0}, "good"},
      {"a datagram larger than that", hello, 48, {0xe4, 0xff, 0, 0}, "datagram_bytes"},
      {"a reserved byte at the start", hello, 52, {1}, "reserved"},
      {"a reserved byte at the end", hello, 63, {1}, "reserved"},
      {"data for no key", data, 8, {0, 0, 0, 0, 0, 0, 0, 0}, "key"},
      {"the other lane", data, 20, {0}, "good"},
      {"a lane that is none", data, 20, {2}, "lane"},
      {"no flag", data, 21, {0}, "good"},
      {"an unknown flag", data, 21, {2}, "flags"},
      {"a reserved half", data, 22, {0, 1}, "reserved"},
      {"a record of less than a cell", data, 48, {35, 0}, "records"},
      {"a record of one byte more, so that the next begins elsewhere", data, 48, {37, 0}, "records"},
      {"a last record that is longer than the datagram", data, 48 + 2 + 36, {41, 0}, "records"},
      {"a last record that ends before the datagram", data, 48 + 2 + 36, {39, 0}, "records"},
      {"a record beyond everything", data, 48, {0xff, 0xff}, "records"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    Bytes bytes = row.bytes;
    for (std::size_t i = 0; i < row.value.size(); ++i) bytes[row.at + i] = std::byte{row.value[i]};
    if (!row.value.empty() && bytes != row.bytes) {
      const char* unsealed = row.at < 3 ? row.verdict : "check";
      CHECK(verdict(bytes) == unsealed);
    }
    seal_again(bytes);
    CHECK(verdict(bytes) == row.verdict);
  }
}

TEST_CASE("a UDP datagram of any other length is refused", "[fabric][udp]") {
  Bytes hello = bytes_of(some_hello());
  for (std::size_t length = 0; length < hello.size(); ++length) {
    Bytes shorter(hello.begin(), hello.begin() + static_cast<std::ptrdiff_t>(length));
    if (length >= 8) seal_again(shorter);
    INFO(length);
    CHECK(verdict(shorter) == "length");
  }
  hello.push_back(std::byte{});
  seal_again(hello);
  CHECK(verdict(hello) == "length");

  const Bytes data = bytes_of(some_data(), {36});
  for (std::size_t length = 0; length < data.size(); ++length) {
    Bytes shorter(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(length));
    if (length >= 8) seal_again(shorter);
    INFO(length);
    const bool whole = length == sizeof(UdpDataBytes);
    CHECK(verdict(shorter) == (whole ? "good" : length < sizeof(UdpDataBytes) ? "length" : "records"));
  }
  CHECK(verdict(bytes_of(some_data(), {kUdpMaxDatagram - 50})) == "good");
  CHECK(verdict(bytes_of(some_data(), {kUdpMaxDatagram - 50 + 1})) == "length");
}

TEST_CASE("a UDP datagram with one wrong bit is refused", "[fabric][udp]") {
  for (Bytes bytes : {bytes_of(some_hello()), bytes_of(some_data(), {36})}) {
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      const auto flip = static_cast<std::byte>(1U << bit % 8);
      bytes[bit / 8] ^= flip;
      REQUIRE(verdict(bytes) != "good");
      bytes[bit / 8] ^= flip;
    }
    CHECK(verdict(bytes) == "good");
  }
}

}  // namespace
}  // namespace splitnic::fabric::udp_wire_test
