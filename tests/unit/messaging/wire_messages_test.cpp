#include "messaging/wire/messages.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "common/random.h"
#include "tests/unit/messaging/wire_samples.h"

namespace splitnic::messaging::wire::wire_messages_test {

using samples::Bytes;
using samples::encoded;
using samples::from_hex;
using splitnic::SeededRandom;
using Reason = DecodeReason;

namespace {

/// Narrow enough that every limit is within reach of a test.
constexpr Limits kLimits{.message_bytes = 2048,
                         .list_entries = 4,
                         .frame_bytes = 1514,
                         .pool_elements = 512,
                         .element_bytes = 2048,
                         .highest_pool = 1000};

constexpr char kPoolGet[] = "0100 0200 1100000000000000 ea050000 00020000";
constexpr char kPool[] =
    "0100 0100 0000000000000000 00000000 07000000 00010000 00080000 ab563412 00001000007f0000 0100edfe00000000";
constexpr char kUpdate[] = "0100 0300 0000000000000000 07000000 fa000000 06000000";
constexpr char kFlush[] = "0100 0400 8877665544332211 07000000 02000080";
constexpr char kFlushReply[] = "0100 0500 8877665544332211";
constexpr char kSendData[] = "0100 0600 0000000000000000 0e000000 ffffffffffff02005e1000010800";
constexpr char kIndicate[] = "0100 0700 0000000000000000 2c010000 3f000000 00080000";
constexpr char kCfgRequest[] = "0100 0800 0100000000000000 03000000 04000000 00000000 aabbccdd";
constexpr char kCfgReply[] = "0100 0900 0100000000000000 06000000 00000000 00000000";
constexpr char kUnsupported[] = "0100 0080 6300000000000000 01000a00 0100 0100 01000000";

struct Mutation {
  const char* base;
  std::size_t offset;
  int width;  ///< bytes
  std::uint64_t value;
  std::optional<Reason> reason{};  ///< nullopt: accepted
  const char* field = "";
};

Bytes mutated(const Mutation& mutation) {
  Bytes bytes = from_hex(mutation.base);
  for (int i = 0; i < mutation.width; ++i) {
    bytes.at(mutation.offset + static_cast<std::size_t>(i)) = static_cast<std::byte>(mutation.value >> (8 * i) & 0xffU);
  }
  return bytes;
}

constexpr std::uint64_t kHighest32 = 0xffff'ffff;

const Mutation kMutations[] = {
    {kPool, 0, 2, 0, Reason::bad_version, "version"},
    {kPool, 0, 2, 2, Reason::bad_version, "version"},
    {kPool, 0, 2, 0xffff, Reason::bad_version, "version"},
    {kPool, 2, 2, 0, Reason::unknown_function, "function"},
    {kPool, 2, 2, 10, Reason::unknown_function, "function"},
    {kPool, 2, 2, 0x7fff, Reason::unknown_function, "function"},
    {kPool, 2, 2, 0x8001, Reason::unknown_function, "function"},
    {kPool, 4, 8, ~0ULL},
    {kPool, 12, 4, 1, Reason::reserved_not_zero, "reserved"},
    {kPool, 12, 4, 0x8000'0000, Reason::reserved_not_zero, "reserved"},
    {kPool, 16, 4, 0},
    {kPool, 16, 4, 1000},
    {kPool, 16, 4, 1001, Reason::out_of_range, "pool"},
    {kPool, 16, 4, kHighest32, Reason::out_of_range, "pool"},
    {kPool, 20, 4, 0, Reason::out_of_range, "elements"},
    {kPool, 20, 4, 1},
    {kPool, 20, 4, 512},
    {kPool, 20, 4, 513, Reason::count_over_limit, "elements"},
    {kPool, 20, 4, kHighest32, Reason::count_over_limit, "elements"},
    {kPool, 24, 4, 0, Reason::out_of_range, "element bytes"},
    {kPool, 24, 4, 63, Reason::out_of_range, "element bytes"},
    {kPool, 24, 4, 64},
    {kPool, 24, 4, 65, Reason::not_a_multiple, "element bytes"},
    {kPool, 24, 4, 2047, Reason::not_a_multiple, "element bytes"},
    {kPool, 24, 4, 2048},
    {kPool, 24, 4, 2049, Reason::out_of_range, "element bytes"},
    {kPool, 24, 4, 2112, Reason::out_of_range, "element bytes"},
    {kPool, 24, 4, 0xffff'ffc0, Reason::out_of_range, "element bytes"},
    {kPool, 28, 4, kHighest32},
    {kPool, 32, 8, 0},
    {kPool, 32, 8, ~0ULL - 256 * 2048},
    {kPool, 32, 8, ~0ULL - 256 * 2048 + 1, Reason::wraps, "address"},
    {kPool, 32, 8, ~0ULL, Reason::wraps, "address"},
    {kPool, 40, 8, ~0ULL},
    {kPoolGet, 12, 4, 0, Reason::out_of_range, "packet bytes"},
    {kPoolGet, 12, 4, 13, Reason::out_of_range, "packet bytes"},
    {kPoolGet, 12, 4, 14},
    {kPoolGet, 12, 4, 2048},
    {kPoolGet, 12, 4, 2049, Reason::out_of_range, "packet bytes"},
    {kPoolGet, 16, 4, 0, Reason::out_of_range, "packets"},
    {kPoolGet, 16, 4, 1},
    {kPoolGet, 16, 4, 512},
    {kPoolGet, 16, 4, 513, Reason::count_over_limit, "packets"},
    {kPoolGet, 16, 4, kHighest32, Reason::count_over_limit, "packets"},
    {kUpdate, 12, 4, 1000},
    {kUpdate, 12, 4, 1001, Reason::out_of_range, "pool"},
    {kUpdate, 12, 4, 0x8000'0007, Reason::out_of_range, "pool"},
    {kUpdate, 16, 4, 506},
    {kUpdate, 16, 4, 507, Reason::wraps, "elements"},
    {kUpdate, 16, 4, 511, Reason::wraps, "elements"},
    {kUpdate, 16, 4, 512, Reason::out_of_range, "first element"},
    {kUpdate, 16, 4, kHighest32, Reason::out_of_range, "first element"},
    {kUpdate, 20, 4, 0, Reason::out_of_range, "elements"},
    {kUpdate, 20, 4, 262},
    {kUpdate, 20, 4, 263, Reason::wraps, "elements"},
    {kUpdate, 20, 4, kHighest32, Reason::wraps, "elements"},
    {kFlush, 12, 4, 1000},
    {kFlush, 12, 4, 1001, Reason::out_of_range, "pool"},
    {kFlush, 16, 4, 0x8000'03e8},
    {kFlush, 16, 4, 0x8000'03e9, Reason::out_of_range, "pool"},
    {kFlush, 16, 4, kHighest32, Reason::out_of_range, "pool"},
    {kFlushReply, 4, 8, 0},
    {kSendData, 12, 4, 0, Reason::bad_length, "bytes"},
    {kSendData, 12, 4, 13, Reason::bad_length, "bytes"},
    {kSendData, 12, 4, 15, Reason::bad_length, "bytes"},
    {kSendData, 12, 4, kHighest32, Reason::bad_length, "bytes"},
    {kIndicate, 12, 4, 1000},
    {kIndicate, 12, 4, 1001, Reason::out_of_range, "pool"},
    {kIndicate, 16, 4, 511},
    {kIndicate, 16, 4, 512, Reason::out_of_range, "element"},
    {kIndicate, 16, 4, kHighest32, Reason::out_of_range, "element"},
    {kIndicate, 20, 4, 0, Reason::out_of_range, "length"},
    {kIndicate, 20, 4, 13, Reason::out_of_range, "length"},
    {kIndicate, 20, 4, 14},
    {kIndicate, 20, 4, 2048},
    {kIndicate, 20, 4, 2049, Reason::out_of_range, "length"},
    {kIndicate, 20, 4, kHighest32, Reason::out_of_range, "length"},
    {kCfgRequest, 12, 4, 0},
    {kCfgRequest, 12, 4, kHighest32},
    {kCfgRequest, 16, 4, 3, Reason::bad_length, "data bytes"},
    {kCfgRequest, 16, 4, 5, Reason::bad_length, "data bytes"},
    {kCfgRequest, 16, 4, kHighest32, Reason::bad_length, "data bytes"},
    {kCfgRequest, 20, 4, 1, Reason::reserved_not_zero, "reserved"},
    {kCfgReply, 12, 4, 0},
    {kCfgReply, 12, 4, 7, Reason::out_of_range, "status"},
    {kCfgReply, 12, 4, kHighest32, Reason::out_of_range, "status"},
    {kCfgReply, 16, 4, 1, Reason::bad_length, "data bytes"},
    {kCfgReply, 20, 4, 0x8000'0000, Reason::reserved_not_zero, "reserved"},
    {kUnsupported, 0, 2, 0},
    {kUnsupported, 0, 2, 0xffff},
    {kUnsupported, 16, 2, 0, Reason::out_of_range, "lowest version"},
    {kUnsupported, 18, 2, 0, Reason::out_of_range, "highest version"},
    {kUnsupported, 16, 2, 2, Reason::out_of_range, "highest version"},
    {kUnsupported, 18, 2, 0xffff},
    {kUnsupported, 20, 4, 0, Reason::out_of_range, "reason"},
    {kUnsupported, 20, 4, 2},
    {kUnsupported, 20, 4, kHighest32},
};

std::optional<Reason> reason_of(const Bytes& bytes, const Limits& limits = kLimits) {
  const auto message = decode(bytes, limits);
  if (message) return std::nullopt;
  return message.error().reason;
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

}  // namespace

TEST_CASE("each field of each message is refused beyond its boundaries and accepted on them", "[messaging][wire]") {
  for (const auto& mutation : kMutations) {
    CAPTURE(mutation.base, mutation.offset, mutation.value, mutation.field);
    const auto message = decode(mutated(mutation), kLimits);
    if (!mutation.reason) {
      CHECK(message);
      continue;
    }
    REQUIRE_FALSE(message);
    CHECK(to_string(message.error().reason) == to_string(*mutation.reason));
    CHECK(message.error().field == mutation.field);
    // An unfit run of elements shows at its count, wherever the mistake was.
    if (*mutation.reason != Reason::wraps && std::string_view(mutation.field) != "highest version") {
      CHECK(message.error().offset == mutation.offset);
    }
  }
}

TEST_CASE("a fault names the field, its place and the message that it is in", "[messaging][wire]") {
  // The second of two entries: one element of 65 bytes.
  const auto bytes =
      from_hex(kPool) + from_hex("08000000 01000000 41000000 01000000 0000000000000000 0000000000000000");
  const auto message = decode(bytes, kLimits);
  REQUIRE_FALSE(message);
  CHECK(message.error().offset == 16 + 32 + 8);
  CHECK(to_string(message.error()) == "BufferRecvPool (word 0x00010001): element bytes at 56: not a multiple");
}

TEST_CASE("lists have at least one entry, whole entries, and no more than negotiated", "[messaging][wire]") {
  const struct {
    const char* base;
    std::size_t head;
    std::size_t entry;
  } lists[] = {{kPool, 16, 32}, {kUpdate, 12, 12}, {kFlush, 12, 4}, {kIndicate, 12, 12}};
  for (const auto& list : lists) {
    CAPTURE(list.base);
    const Bytes whole = from_hex(list.base);
    const Bytes head(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(list.head));
    const Bytes entry(whole.end() - static_cast<std::ptrdiff_t>(list.entry), whole.end());
    CHECK(reason_of(head) == Reason::no_entries);
    Bytes four = head;
    for (int i = 0; i < 4; ++i) four = four + entry;
    CHECK_FALSE(reason_of(four));
    CHECK(reason_of(four + entry) == Reason::count_over_limit);
    for (std::size_t extra = 1; extra < list.entry; ++extra) {
      CHECK(reason_of(four + Bytes(extra)) == Reason::not_a_multiple);
    }
  }
}

TEST_CASE("SendData carries a frame of 14 bytes up to the negotiated size", "[messaging][wire]") {
  for (const std::uint32_t bytes : {0U, 1U, 13U, 14U, 15U, 1513U, 1514U, 1515U}) {
    CAPTURE(bytes);
    Bytes message = from_hex("0100 0600 0000000000000000 00000000") + Bytes(bytes, std::byte{0x5a});
    const little_uint32_buf_t count(bytes);
    std::memcpy(message.data() + 12, &count, sizeof(count));
    const auto decoded = decode(message, kLimits);
    CHECK(decoded.has_value() == (bytes >= 14 && bytes <= 1514));
    if (!decoded) {
      CHECK(decoded.error().reason == Reason::out_of_range);
      continue;
    }
    CHECK(std::get<SendData>(*decoded).frame.size() == bytes);
    CHECK(std::get<SendData>(*decoded).frame.data() == message.data() + 16);
  }
}

TEST_CASE("a message longer than negotiated is refused before its body is looked at", "[messaging][wire]") {
  Bytes message = from_hex("0100 0800 0100000000000000 03000000 00000000 00000000") + Bytes(2048 - 24);
  const little_uint32_buf_t data_bytes(2048 - 24);
  std::memcpy(message.data() + 16, &data_bytes, sizeof(data_bytes));
  CHECK_FALSE(reason_of(message));
  CHECK(reason_of(message + Bytes(1)) == Reason::too_long);
}

TEST_CASE("no truncated or extended message is mistaken for the whole one", "[messaging][wire]") {
  for (const auto& sample : samples::every_message()) {
    CAPTURE(sample.name);
    const auto function = function_of(decode(sample.bytes, Limits{}).value());
    for (std::size_t bytes = 0; bytes < sample.bytes.size(); ++bytes) {
      // A fresh allocation of that size, so that AddressSanitizer sees any look beyond it.
      const Bytes cut(sample.bytes.begin(), sample.bytes.begin() + static_cast<std::ptrdiff_t>(bytes));
      const auto message = decode(cut, Limits{});
      if (bytes < 12) {
        REQUIRE_FALSE(message);
        CHECK(message.error().reason == Reason::too_short);
        CHECK(message.error().word == 0);
        continue;
      }
      // A list that ends at an entry's end is a shorter list; everything else is no message.
      const bool list = function == Function::buffer_recv_pool || function == Function::buffer_recv_pool_update ||
                        function == Function::buffer_pool_flush_request || function == Function::buffer_rdma_indicate;
      if (!message) continue;
      CAPTURE(bytes);
      REQUIRE(list);
      const std::size_t head = function == Function::buffer_recv_pool ? 16 : 12;
      const std::size_t entry = function == Function::buffer_recv_pool            ? 32
                                : function == Function::buffer_pool_flush_request ? 4
                                                                                  : 12;
      CHECK(bytes > head);
      CHECK((bytes - head) % entry == 0);
    }
    CHECK(reason_of(sample.bytes + Bytes(1), Limits{}));
  }
}

TEST_CASE("only unknown functions and versions are answered with Unsupported", "[messaging][wire]") {
  const auto answer_to = [](const Mutation& mutation) {
    const auto message = decode(mutated(mutation), kLimits);
    return message ? std::nullopt : unsupported_answer(message.error());
  };
  const auto function = answer_to({kFlush, 2, 2, 10});
  REQUIRE(function);
  CHECK(*function == Unsupported{0x1122334455667788, 0x000a'0001, 1, 1, 1});
  const auto version = answer_to({kFlush, 0, 2, 2});
  REQUIRE(version);
  CHECK(*version == Unsupported{0x1122334455667788, 0x0004'0002, 1, 1, 2});
  CHECK_FALSE(answer_to({kFlushReply, 0, 2, 2}));
  CHECK_FALSE(answer_to({kCfgReply, 0, 2, 2}));
  CHECK_FALSE(answer_to({kUnsupported, 20, 4, 0}));
  CHECK_FALSE(answer_to({kPool, 2, 2, 0x8001}));
  CHECK_FALSE(answer_to({kPool, 2, 2, 0xffff}));
  CHECK_FALSE(answer_to({kPool, 12, 4, 1}));
  CHECK_FALSE(unsupported_answer(MessageFault{}));
}

TEST_CASE("bit 31 of a flushed pool says whose it is", "[messaging][wire]") {
  const auto bytes = from_hex(kFlush);
  const auto message = decode(bytes, kLimits);
  REQUIRE(message);
  const auto& pools = std::get<BufferPoolFlushRequest>(*message).pools;
  REQUIRE(pools.size() == 2);
  CHECK(pools[0] == FlushedPool{PoolNumber{7}, false});
  CHECK(pools[1] == FlushedPool{PoolNumber{2}, true});
}

TEST_CASE("random bytes behind a valid header never upset the decoder", "[messaging][wire]") {
  SeededRandom random(20'240'601);
  std::size_t accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    Bytes bytes(random.below(80));
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.below(4) == 0 ? random.below(256) : 0);
    if (bytes.size() >= 4) {
      bytes[0] = std::byte{1};
      bytes[1] = std::byte{0};
      bytes[2] = static_cast<std::byte>(random.below(11));
      bytes[3] = random.below(8) == 0 ? std::byte{0x80} : std::byte{0};
    }
    const auto message = decode(bytes, kLimits);
    if (message) ++accepted;
  }
  CHECK(accepted > 0);
}

TEST_CASE("every function has a name of its own and a place in the counters", "[messaging][wire]") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kFunctions.size(); ++i) {
    CHECK(index_of(kFunctions[i]) == i);
    names.insert(to_string(kFunctions[i]));
  }
  CHECK(names.size() == kFunctions.size());
  CHECK(names.count("BufferRDMAIndicate") == 1);
  CHECK(to_string(static_cast<Function>(10)) == "unknown");
}

}  // namespace splitnic::messaging::wire::wire_messages_test
