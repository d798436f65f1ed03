#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "fabric/bridge/shm_setup.h"

namespace splitnic::fabric::shm_hello_test {
namespace {

using Bytes = std::array<unsigned char, kShmHelloBytes>;

ShmHelloFields sample() {
  return {.local_bytes = 0x0102030405,
          .window_bytes = 0x1112131415,
          .purpose = ShmPurpose::further_queue,
          .cookie = 0x2122232425262728,
          .features = kShmFeatureFurtherQueues,
          .name = "web1"};
}

Bytes bytes_of(const ShmHello& hello) {
  Bytes bytes{};
  std::memcpy(bytes.data(), &hello, sizeof hello);
  return bytes;
}

auto decode(const Bytes& bytes, std::size_t count = kShmHelloBytes) {
  return decode_shm_hello(std::as_bytes(std::span(bytes).first(count)));
}

}  // namespace

TEST_CASE("a hello has the bytes that the protocol says, and comes back from them", "[fabric][shm]") {
  Bytes expected{};
  std::memcpy(expected.data(),
              "SPLTNIC1\2\0\0\0\0\0\0\0"
              "\5\4\3\2\1\0\0\0\x15\x14\x13\x12\x11\0\0\0"
              "\2\0\0\0\0\0\0\0\x28\x27\x26\x25\x24\x23\x22\x21"
              "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
              "web1",
              68);
  CHECK(bytes_of(encode_shm_hello(sample())) == expected);
  const auto fields = decode(expected);
  REQUIRE(fields.has_value());
  CHECK(fields->local_bytes == sample().local_bytes);
  CHECK(fields->window_bytes == sample().window_bytes);
  CHECK(fields->purpose == sample().purpose);
  CHECK(fields->cookie == sample().cookie);
  CHECK(fields->features == sample().features);
  CHECK(fields->name == sample().name);
}

TEST_CASE("the reply has the bytes that the protocol says", "[fabric][shm]") {
  ShmReply reply{};
  reply.magic = kShmSetupMagic;
  reply.version = kShmSetupVersion;
  reply.status = static_cast<std::uint32_t>(ShmSetupStatus::no_session);
  reply.local_bytes = 0x0102;
  reply.window_bytes = 0x0304;
  reply.cookie = 0x0506;
  reply.features = 0x0708;
  CHECK(std::memcmp(&reply,
                    "SPLTNIC1\2\0\0\0\x08\0\0\0"
                    "\2\1\0\0\0\0\0\0\4\3\0\0\0\0\0\0"
                    "\6\5\0\0\0\0\0\0\x08\7\0\0\0\0\0\0"
                    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                    kShmReplyBytes) == 0);
}

TEST_CASE("each field of a hello is checked at its boundaries", "[fabric][shm]") {
  struct Row {
    const char* what;
    std::size_t offset;
    std::vector<unsigned char> bytes;
    const char* wrong;  ///< the field named; empty: accepted
  };
  const std::string name_of_64(kShmNameBytes, 'x');
  const std::vector<unsigned char> all_64(name_of_64.begin(), name_of_64.end());
  auto with_space_after = all_64;
  with_space_after[10] = 0;
  const Row rows[] = {
      {"unchanged", 0, {}, ""},
      {"the magic's first byte", 0, {'s'}, "magic"},
      {"the magic's last byte", 7, {'2'}, "magic"},
      {"version 0", 8, {0}, "version"},
      {"version 1", 8, {1}, "version"},
      {"version 3", 8, {3}, "version"},
      {"version 2^24 + 2", 11, {1}, "version"},
      {"the first reserved field", 12, {1}, "reserved"},
      {"its last byte", 15, {0x80}, "reserved"},
      {"the second reserved field", 36, {1}, "reserved"},
      {"its last byte", 39, {0x80}, "reserved"},
      {"the third reserved field", 56, {1}, "reserved"},
      {"its last byte", 63, {0x80}, "reserved"},
      {"purpose 0", 32, {0}, "purpose"},
      {"purpose 4", 32, {4}, "purpose"},
      {"purpose 2^31 + 2", 35, {0x80}, "purpose"},
      {"a session with a cookie", 32, {1}, "cookie"},
      {"an endnode with a cookie", 32, {3}, "cookie"},
      {"a further queue without one", 40, {0, 0, 0, 0, 0, 0, 0, 0}, "cookie"},
      {"a further queue with the smallest one", 40, {1, 0, 0, 0, 0, 0, 0, 0}, ""},
      {"a session without a cookie", 32, {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ""},
      {"an endnode without a cookie", 32, {3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ""},
      {"features that nobody knows", 48, {255, 255, 255, 255, 255, 255, 255, 255}, ""},
      {"sizes of any kind", 16, {255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0}, ""},
      {"no name", 64, {0, 0, 0, 0}, ""},
      {"a name of 64 bytes", 64, all_64, ""},
      {"a name of ten bytes with something behind it", 64, with_space_after, "name"},
      {"a control character", 65, {31}, "name"},
      {"a space", 65, {32}, ""},
      {"a delete character", 65, {127}, "name"},
      {"a byte of UTF-8", 65, {0xc3}, ""},
      {"padding that is not zero", 127, {1}, "name"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Bytes bytes = bytes_of(encode_shm_hello(sample()));
    std::copy(row.bytes.begin(), row.bytes.end(), bytes.begin() + static_cast<std::ptrdiff_t>(row.offset));
    const auto fields = decode(bytes);
    CHECK((fields ? "" : std::string(fields.error().field)) == row.wrong);
    if (!fields) {
      const bool version = std::string(row.wrong) == "version";
      CHECK(fields.error().fault == (version ? ShmHelloFault::other_version : ShmHelloFault::garbage));
    }
  }
}

TEST_CASE("a hello is incomplete up to its last byte; another magic or version is seen after 16", "[fabric][shm]") {
  Bytes bytes = bytes_of(encode_shm_hello(sample()));
  for (std::size_t count = 0; count < kShmHelloBytes; ++count) {
    CAPTURE(count);
    REQUIRE_FALSE(decode(bytes, count).has_value());
    CHECK(decode(bytes, count).error().fault == ShmHelloFault::incomplete);
  }
  bytes[8] = 1;
  CHECK(decode(bytes, 15).error().fault == ShmHelloFault::incomplete);
  CHECK(decode(bytes, 16).error().fault == ShmHelloFault::other_version);
  bytes[0] = 0;
  CHECK(decode(bytes, 16).error().fault == ShmHelloFault::garbage);
}

}  // namespace splitnic::fabric::shm_hello_test
