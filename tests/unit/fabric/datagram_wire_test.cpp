#include "fabric/wire/datagram.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "fabric/wire/cell.h"

namespace splitnic::fabric::datagram_wire_test {
namespace {

template <class T>
std::string hex(const T& value) {
  std::string text;
  for (const std::byte byte : std::as_bytes(std::span(&value, 1))) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

Gid some_group() {
  Gid gid;
  for (std::size_t i = 0; i < gid.bytes.size(); ++i) gid.bytes[i] = static_cast<std::uint8_t>(0xf0 + i);
  gid.bytes[0] = 0xff;
  return gid;
}

DatagramHeader some_header() {
  DatagramHeader header;
  header.queue_key = 0x11223344;
  header.source_queue_pair = QpNumber{0x556677};
  header.flow_label = 0x89abc;
  header.traffic_class = 0xde;
  header.hop_limit = 0x40;
  header.group = some_group();
  return header;
}

TEST_CASE("the bytes of a datagram's header are pinned", "[fabric][datagram]") {
  const DatagramBytes bytes = encode_datagram(some_header());
  CHECK(hex(bytes) ==
        "44332211"
        "77665500"
        "bc9ae80d"
        "40"
        "000000"
        "fff1f2f3f4f5f6f7f8f9fafbfcfdfeff");
  DatagramHeader read;
  REQUIRE(decode_datagram(bytes, read));
  CHECK(read == some_header());
}

TEST_CASE("a datagram's header word by word is the same as whole", "[fabric][wire][datagram]") {
  DatagramHeader header = some_header();
  header.group = Gid{};
  std::array<std::byte, sizeof(DatagramBytes)> words{};
  words.fill(std::byte{0xee});
  DatagramWords(header).put(words.data(), header.queue_key);
  const DatagramBytes whole = encode_datagram(header);
  CHECK(std::memcmp(words.data(), &whole, sizeof whole) == 0);
}

TEST_CASE("the route header is the one that verbs programs know", "[fabric][datagram]") {
  DatagramHeader header = some_header();
  const PortAddress source{0x020000000a1b};
  const PortAddress receiver{0x0242ac110003};
  const RouteHeader to_group = route_of(header, {port_gid(source), port_gid(receiver)}, 0x1234);
  CHECK(hex(to_group) ==
        "6de89abc"
        "1234"
        "1b"
        "40"
        "fe80000000000000"
        "000000fffe000a1b"
        "fff1f2f3f4f5f6f7f8f9fafbfcfdfeff");
  header.group = Gid{};
  CHECK(route_of(header, {port_gid(source), port_gid(receiver)}, 1).destination == port_gid(receiver));
  CHECK(hex(port_gid(receiver)) ==
        "fe80000000000000"
        "0042acfffe110003");
  CHECK_FALSE(port_gid(receiver).is_group());
}

TEST_CASE("each field of a datagram's header is refused just beyond its boundary", "[fabric][datagram]") {
  struct Row {
    const char* what;
    std::size_t at;
    std::vector<std::uint8_t> value;
    bool good;
  };
  const std::vector<Row> rows{
      {"unchanged", 0, {}, true},
      {"any queue key", 0, {0xff, 0xff, 0xff, 0xff}, true},
      {"no source", 4, {0, 0, 0, 0}, false},
      {"the least source", 4, {1, 0, 0, 0}, true},
      {"the highest source", 4, {0xfe, 0xff, 0xff, 0}, true},
      {"the multicast queue pair as a source", 4, {0xff, 0xff, 0xff, 0}, false},
      {"a source of 25 bits", 4, {0, 0, 0, 1}, false},
      {"all of class and flow", 8, {0xff, 0xff, 0xff, 0x0f}, true},
      {"a bit beyond", 8, {0, 0, 0, 0x10}, false},
      {"a reserved byte", 13, {1}, false},
      {"the last reserved byte", 15, {0x80}, false},
      {"a group that is none", 16, {0xfe}, false},
      {"no group", 16, std::vector<std::uint8_t>(16, 0), true},
      {"a single bit of a group", 16, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, false},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    DatagramBytes bytes = encode_datagram(some_header());
    std::ranges::copy(std::as_bytes(std::span(row.value)),
                      std::as_writable_bytes(std::span(&bytes, 1)).subspan(row.at).begin());
    DatagramHeader header;
    CHECK(decode_datagram(bytes, header) == row.good);
  }
}

}  // namespace
}  // namespace splitnic::fabric::datagram_wire_test
