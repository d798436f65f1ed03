#include "common/frame/checksum.h"

#include <catch2/catch.hpp>

#include "tests/unit/common/packet_builder.h"

namespace splitnic::frame::frame_checksum_test {

using test::Bytes;

TEST_CASE("the sum agrees with RFC 1071's example", "[common][frame]") {
  Bytes bytes;
  test::put32(bytes, 0x0001f203);
  test::put32(bytes, 0xf4f5f6f7);
  CHECK(InternetSum().add(bytes).folded() == 0xddf2);
  CHECK(InternetSum().add(bytes).checksum() == 0x220d);
}

TEST_CASE("the sum agrees with a plain one at every length and alignment", "[common][frame]") {
  const Bytes bytes = test::pattern(400);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length + begin <= bytes.size(); ++length) {
      const auto piece = std::span(bytes).subspan(begin, length);
      REQUIRE(InternetSum().add(piece).folded() == test::reference_sum(piece));
    }
  }
}

TEST_CASE("pieces add up to the whole", "[common][frame]") {
  const Bytes bytes = test::pattern(301, 7);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 2) {
    InternetSum sum;
    sum.add(std::span(bytes).subspan(cut)).add(std::span(bytes).first(cut));
    REQUIRE(sum.folded() == test::reference_sum(bytes));
  }
}

TEST_CASE("64 KiB of ones lose no carry", "[common][frame]") {
  const Bytes bytes(65536, std::byte{0xff});
  InternetSum sum;
  for (int i = 0; i < 1000; ++i) sum.add(bytes);
  CHECK(sum.folded() == 0xffff);
  CHECK(sum.add_number(1).folded() == 1);
  CHECK(InternetSum().folded() == 0);
}

TEST_CASE("the pseudo-headers of both IP versions are summed as the RFCs draw them", "[common][frame]") {
  for (const int version : {4, 6}) {
    for (const std::size_t bytes : {8UL, 20UL, 1480UL, 65535UL}) {
      test::Below below;
      below.ip_version = version;
      const auto sum =
          pseudo_header_sum(below.source_address(), below.destination_address(), 17, static_cast<std::uint16_t>(bytes));
      CHECK(sum.folded() == test::reference_sum(test::pseudo_header(below, 17, bytes)));
    }
  }
}

TEST_CASE("an IPv4 header's checksum ignores what its field holds", "[common][frame]") {
  for (std::size_t options = 0; options <= 40; options += 4) {
    test::Below below;
    below.ipv4_options = test::pattern(options);
    Bytes frame = test::ip_frame(below, 1, test::pattern(8));
    const auto header = std::span(frame).subspan(14, 20 + options);
    CHECK(InternetSum().add(header).is_valid());
    const auto right = test::get16(header, 10);
    test::set16(header, 10, 0xbeef);
    CHECK(ipv4_header_checksum(header) == right);
  }
}

}  // namespace splitnic::frame::frame_checksum_test
