#include "messaging/wire/immediate.h"

#include <catch2/catch.hpp>

namespace splitnic::messaging::wire::wire_immediate_test {

TEST_CASE("immediate data is pool, element and length", "[messaging][wire]") {
  CHECK(encode_immediate({PoolNumber{7}, 5, 256}) == 0x0705'0100);
  CHECK(encode_immediate({PoolNumber{255}, 255, 65'535}) == 0xffff'ffff);
  CHECK(decode_immediate(0x0705'0100) == Indication{PoolNumber{7}, 5, 256});
}

TEST_CASE("length 0 in immediate data means 65536, where elements are that large", "[messaging][wire]") {
  CHECK(encode_immediate({PoolNumber{1}, 2, 65'536}) == 0x0102'0000);
  const auto indication = decode_immediate(0x0102'0000);
  CHECK(indication == Indication{PoolNumber{1}, 2, 65'536});
  CHECK(fits_pool(indication, 256, 65'536));
  CHECK_FALSE(fits_pool(indication, 256, 65'472));
}

TEST_CASE("every length survives immediate data", "[messaging][wire]") {
  for (std::uint32_t length = 1; length <= 65'536; ++length) {
    const Indication indication{PoolNumber{length % 256}, length % 251, length};
    if (decode_immediate(encode_immediate(indication)) != indication) FAIL("length " << length);
  }
}

TEST_CASE("a pool is indicated by immediate data only where all its numbers fit", "[messaging][wire]") {
  CHECK(uses_immediate(PoolNumber{0}, 1, 64));
  CHECK(uses_immediate(PoolNumber{255}, 256, 65'536));
  CHECK_FALSE(uses_immediate(PoolNumber{256}, 256, 65'536));
  CHECK_FALSE(uses_immediate(PoolNumber{255}, 257, 65'536));
  CHECK_FALSE(uses_immediate(PoolNumber{255}, 256, 65'600));
}

TEST_CASE("an indication must lie inside its pool and could hold a frame", "[messaging][wire]") {
  CHECK(fits_pool({PoolNumber{1}, 255, 14}, 256, 2048));
  CHECK(fits_pool({PoolNumber{1}, 0, 2048}, 256, 2048));
  CHECK_FALSE(fits_pool({PoolNumber{1}, 256, 14}, 256, 2048));
  CHECK_FALSE(fits_pool({PoolNumber{1}, 0, 13}, 256, 2048));
  CHECK_FALSE(fits_pool({PoolNumber{1}, 0, 2049}, 256, 2048));
}

}  // namespace splitnic::messaging::wire::wire_immediate_test
