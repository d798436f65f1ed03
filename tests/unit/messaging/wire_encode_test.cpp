#include "messaging/wire/encode.h"

#include <catch2/catch.hpp>

#include "common/random.h"
#include "tests/unit/messaging/wire_samples.h"

namespace splitnic::messaging::wire::wire_encode_test {

using samples::Bytes;
using samples::encoded;
using samples::from_hex;
using splitnic::SeededRandom;

namespace {

template <class Value>
std::vector<Value> values_of(const ListView<Value>& list) {
  return {list.begin(), list.end()};
}

std::uint32_t below(SeededRandom& random, std::uint32_t bound) {
  return static_cast<std::uint32_t>(random.below(bound));
}

template <class Value, class Draw>
std::vector<Value> draw_list(SeededRandom& random, Draw&& draw) {
  std::vector<Value> values(1 + random.below(64));
  for (auto& value : values) value = draw();
  return values;
}

}  // namespace

TEST_CASE("the bytes of each message are pinned", "[messaging][wire]") {
  const PoolAdvertisement pool{PoolNumber{7}, 256, 2048, 0x1234'56ab, 0x0000'7f00'0010'0000, 0xfeed'0001};
  CHECK(encoded([&](auto out) {
          return encode_buffer_recv_pool(out, 0, {&pool, 1});
        }) == from_hex("0100 0100 0000000000000000 00000000 07000000 00010000 00080000 ab563412 00001000007f0000"
                       "0100edfe00000000"));
  CHECK(encoded([](auto out) { return encode_buffer_recv_pool_get(out, 17, 1514, 512); }) ==
        from_hex("0100 0200 1100000000000000 ea050000 00020000"));
  const ElementRun run{PoolNumber{7}, 250, 6};
  CHECK(encoded([&](auto out) {
          return encode_buffer_recv_pool_update(out, 0, {&run, 1});
        }) == from_hex("0100 0300 0000000000000000 07000000 fa000000 06000000"));
  const FlushedPool pools[] = {{PoolNumber{7}, false}, {PoolNumber{2}, true}};
  CHECK(encoded([&](auto out) { return encode_buffer_pool_flush_request(out, 0x1122334455667788, pools); }) ==
        from_hex("0100 0400 8877665544332211 07000000 02000080"));
  CHECK(encoded([](auto out) { return encode_buffer_pool_flush_reply(out, 0x1122334455667788); }) ==
        from_hex("0100 0500 8877665544332211"));
  const auto frame = from_hex("ffffffffffff02005e1000010800");
  CHECK(encoded([&](auto out) { return encode_send_data(out, 0, frame); }) ==
        from_hex("0100 0600 0000000000000000 0e000000 ffffffffffff02005e1000010800"));
  const Indication indication{PoolNumber{300}, 63, 2048};
  CHECK(encoded([&](auto out) {
          return encode_buffer_rdma_indicate(out, 0, {&indication, 1});
        }) == from_hex("0100 0700 0000000000000000 2c010000 3f000000 00080000"));
  const auto data = from_hex("aabbccdd");
  CHECK(encoded([&](auto out) { return encode_cfg_util_request(out, 1, CfgRequest::set_mtu, data); }) ==
        from_hex("0100 0800 0100000000000000 03000000 04000000 00000000 aabbccdd"));
  CHECK(encoded([](auto out) { return encode_cfg_util_reply(out, 1, CfgStatus::malformed, {}); }) ==
        from_hex("0100 0900 0100000000000000 06000000 00000000 00000000"));
  CHECK(encoded([](auto out) {
          return encode_unsupported(out, Unsupported{99, 0x000a'0001, 1, 1, 1});
        }) == from_hex("0100 0080 6300000000000000 01000a00 0100 0100 01000000"));
}

TEST_CASE("lists of random values survive the wire", "[messaging][wire]") {
  SeededRandom random(7);
  for (int round = 0; round < 500; ++round) {
    const std::uint64_t transaction = random.next();
    const auto pools = draw_list<PoolAdvertisement>(random, [&] {
      return PoolAdvertisement{PoolNumber{below(random, kReceiversPoolBit)},
                               1 + below(random, 65'536),
                               kElementGrain * (1 + below(random, kMaxFrameBytes / kElementGrain)),
                               random.next32(),
                               random.next() >> 1U,
                               random.next()};
    });
    auto bytes = encoded([&](auto out) { return encode_buffer_recv_pool(out, transaction, pools); });
    CHECK(bytes.size() == list_message_bytes<PoolAdvertisement>(pools.size()));
    auto message = decode(bytes, Limits{});
    REQUIRE(message);
    CHECK(std::get<BufferRecvPool>(*message).transaction == transaction);
    CHECK(values_of(std::get<BufferRecvPool>(*message).pools) == pools);

    const auto runs = draw_list<ElementRun>(random, [&] {
      const std::uint32_t first = below(random, 65'536);
      return ElementRun{PoolNumber{below(random, kReceiversPoolBit)}, first, 1 + below(random, 65'536 - first)};
    });
    bytes = encoded([&](auto out) { return encode_buffer_recv_pool_update(out, transaction, runs); });
    message = decode(bytes, Limits{});
    REQUIRE(message);
    CHECK(values_of(std::get<BufferRecvPoolUpdate>(*message).runs) == runs);

    const auto indications = draw_list<Indication>(random, [&] {
      return Indication{PoolNumber{below(random, kReceiversPoolBit)}, below(random, 65'536),
                        kMinFrameBytes + below(random, kMaxFrameBytes - kMinFrameBytes + 1)};
    });
    bytes = encoded([&](auto out) { return encode_buffer_rdma_indicate(out, transaction, indications); });
    message = decode(bytes, Limits{});
    REQUIRE(message);
    CHECK(values_of(std::get<BufferRdmaIndicate>(*message).indications) == indications);

    const auto flushed = draw_list<FlushedPool>(random, [&] {
      return FlushedPool{PoolNumber{below(random, kReceiversPoolBit)}, random.below(2) == 0};
    });
    bytes = encoded([&](auto out) { return encode_buffer_pool_flush_request(out, transaction, flushed); });
    message = decode(bytes, Limits{});
    REQUIRE(message);
    CHECK(values_of(std::get<BufferPoolFlushRequest>(*message).pools) == flushed);
  }
}

TEST_CASE("a message decodes the same at every alignment of its buffer", "[messaging][wire]") {
  const auto sample = encoded([](auto out) {
    const ElementRun runs[] = {{PoolNumber{1}, 2, 3}, {PoolNumber{4}, 5, 6}};
    return encode_buffer_recv_pool_update(out, 0, runs);
  });
  for (std::size_t shift = 0; shift < 8; ++shift) {
    Bytes shifted(shift);
    shifted.insert(shifted.end(), sample.begin(), sample.end());
    const auto message = decode(std::span(shifted).subspan(shift), Limits{});
    REQUIRE(message);
    CHECK(std::get<BufferRecvPoolUpdate>(*message).runs[1] == ElementRun{PoolNumber{4}, 5, 6});
  }
}

TEST_CASE("the update writer merges returns that continue the last run", "[messaging][wire]") {
  Bytes buffer(256);
  UpdateWriter writer(buffer, 3);
  CHECK(writer.finish().empty());
  CHECK(writer.add({PoolNumber{1}, 254, 1}));
  CHECK(writer.add({PoolNumber{1}, 255, 1}));
  CHECK(writer.entries() == 1);
  CHECK(writer.add({PoolNumber{1}, 0, 2}));  // the ring starts over: a run of its own
  CHECK(writer.add({PoolNumber{2}, 2, 1}));  // continues by number, but in another pool
  CHECK(writer.entries() == 3);
  CHECK(writer.add({PoolNumber{2}, 3, 4}));
  CHECK_FALSE(writer.add({PoolNumber{2}, 2, 1}));
  const auto message = decode(writer.finish(), Limits{});
  REQUIRE(message);
  const std::vector<ElementRun> expected{{PoolNumber{1}, 254, 2}, {PoolNumber{1}, 0, 2}, {PoolNumber{2}, 2, 5}};
  CHECK(values_of(std::get<BufferRecvPoolUpdate>(*message).runs) == expected);

  // Finished runs are not continued by the next message.
  CHECK(writer.empty());
  CHECK(writer.add({PoolNumber{2}, 7, 1}));
  const auto next = decode(writer.finish(), Limits{});
  REQUIRE(next);
  CHECK(std::get<BufferRecvPoolUpdate>(*next).runs[0] == ElementRun{PoolNumber{2}, 7, 1});
}

TEST_CASE("the indicate writer keeps every indication, in order, up to what fits", "[messaging][wire]") {
  Bytes buffer(sizeof(MessageHeader) + 2 * sizeof(IndicateEntry) + 11);
  IndicateWriter writer(buffer, 100);
  CHECK(writer.capacity() == 2);
  CHECK(writer.add({PoolNumber{1}, 5, 100}));
  CHECK(writer.add({PoolNumber{1}, 6, 100}));
  CHECK_FALSE(writer.add({PoolNumber{1}, 7, 100}));
  const auto message = decode(writer.finish(), Limits{});
  REQUIRE(message);
  const std::vector<Indication> expected{{PoolNumber{1}, 5, 100}, {PoolNumber{1}, 6, 100}};
  CHECK(values_of(std::get<BufferRdmaIndicate>(*message).indications) == expected);
}

}  // namespace splitnic::messaging::wire::wire_encode_test
