#include "fabric/memory/mpt.h"

#include "adapter_fixtures.h"

namespace splitnic::fabric::test::mpt_test {
namespace {

MptGrant grant_for(DirectAccess& owner, Stag tag, std::size_t at = 0, std::uint64_t bytes = 4096) {
  MptGrant grant;
  grant.tag = tag;
  grant.address = 0x7000'0000;
  grant.length = bytes;
  grant.window_offset = owner.buffers.offset + at;
  grant.rights = kAllRights;
  return grant;
}

struct Fixture {
  LinkedPair pair;
  DirectAccess& owner = *pair.link(1).direct();
  DirectAccess& initiator = *pair.link(0).direct();
  MptPublisher publisher;
  MptView view;
  Fixture() {
    publisher.start(owner);
    view.start();
  }
  std::optional<std::size_t> claim(Stag tag, std::uint64_t address, std::uint64_t bytes) {
    pair.advance(microseconds(1));
    return view.claim(initiator, tag, address, bytes);
  }
  /// What a hostile owner writes by hand.
  void forge(std::size_t slot, const MptSlot& bytes) {
    owner.bridge.peer_window().write(owner.peer_mpt.offset + slot * sizeof bytes, std::as_bytes(std::span(&bytes, 1)));
  }
};

}  // namespace

TEST_CASE("a slot's bytes are these and no others", "[fabric][memory][wire]") {
  MptGrant grant;
  grant.generation = 1;
  grant.tag = Stag{0x0a0b0c0d};
  grant.address = 0x1112131415161718;
  grant.length = 0x2122;
  grant.window_offset = 0x3132;
  grant.rights = kAllRights;
  const MptSlot slot = encode_mpt_slot(grant, 99);
  const auto bytes = std::as_bytes(std::span(&slot, 1));
  const std::array<unsigned char, 34> expected{1,    0,    0,    0,    0x0d, 0x0c, 0x0b, 0x0a, 0x18, 0x17, 0x16, 0x15,
                                               0x14, 0x13, 0x12, 0x11, 0x22, 0x21, 0,    0,    0,    0,    0,    0,
                                               0x32, 0x31, 0,    0,    0,    0,    0,    0,    11,   0};
  CHECK(std::memcmp(bytes.data(), expected.data(), expected.size()) == 0);
  std::array<std::byte, sizeof slot> copy;
  std::memcpy(copy.data(), bytes.data(), copy.size());
  CHECK(decode_mpt_slot(copy, 99).has_value());
  CHECK_FALSE(decode_mpt_slot(copy, 98).has_value());
  for (std::size_t bit = 0; bit < copy.size() * 8; ++bit) {
    auto damaged = copy;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    REQUIRE_FALSE(decode_mpt_slot(damaged, 99).has_value());
  }
}

TEST_CASE("a granted range is claimed within its bounds alone", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  CHECK_FALSE(f.claim(tag, 0x7000'0000, 1).has_value());
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag, 64)));
  const std::size_t at = f.owner.buffers.offset + 64;
  CHECK(f.claim(tag, 0x7000'0000, 4096) == at);
  CHECK(f.claim(tag, 0x7000'0000 + 4095, 1) == at + 4095);
  CHECK(f.claim(tag, 0x7000'0000 + 4096, 0) == at + 4096);
  CHECK_FALSE(f.claim(tag, 0x7000'0000, 4097).has_value());
  CHECK_FALSE(f.claim(tag, 0x7000'0000 - 1, 1).has_value());
  CHECK_FALSE(f.claim(tag, 0x7000'0000 + 4096, 1).has_value());
  CHECK_FALSE(f.claim(tag, ~std::uint64_t{0}, 2).has_value());
  CHECK_FALSE(f.claim(Stag::from(1234, 6), 0x7000'0000, 1).has_value());
}

TEST_CASE("a revoked grant is no longer claimed, from the cache neither", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag)));
  REQUIRE(f.claim(tag, 0x7000'0000, 1).has_value());
  f.publisher.revoke(f.owner, tag);
  CHECK_FALSE(f.claim(tag, 0x7000'0000, 1).has_value());
  const Stag again = Stag::from(1234, 6);
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, again, 4096)));
  CHECK_FALSE(f.claim(tag, 0x7000'0000, 1).has_value());
  CHECK(f.claim(again, 0x7000'0000, 1) == f.owner.buffers.offset + 4096);
}

TEST_CASE("a full set grants no more, and grants again after a revocation", "[fabric][memory]") {
  Fixture f;
  const auto sets = static_cast<std::uint32_t>(f.owner.peer_mpt.bytes / sizeof(MptSlot) / kMptWays);
  for (std::uint32_t way = 0; way < kMptWays; ++way) {
    REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, Stag::from(7 + way * sets, 0))));
  }
  const Stag more = Stag::from(7 + 4 * sets, 0);
  CHECK_FALSE(f.publisher.grant(f.owner, grant_for(f.owner, more)));
  f.publisher.revoke(f.owner, Stag::from(7, 0));
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, more)));
  CHECK(f.claim(more, 0x7000'0000, 1).has_value());
}

TEST_CASE("what a hostile owner grants outside its own buffers is not believed", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(0, 1);  // set 0, slot 0
  const std::uint32_t epochs = f.owner.tag_out;
  const MemoryRange buffers = f.owner.buffers;
  std::uint32_t generation = 0;
  const auto claimable = [&](auto change) {
    MptGrant grant = grant_for(f.owner, tag);
    grant.generation = ++generation;
    change(grant);
    f.forge(0, encode_mpt_slot(grant, epochs));
    return f.claim(tag, grant.address, 1).has_value();
  };
  CHECK(claimable([](MptGrant&) {}));
  CHECK_FALSE(claimable([&](MptGrant& grant) { grant.window_offset = buffers.offset - 1; }));
  CHECK_FALSE(claimable([&](MptGrant& grant) { grant.window_offset = 0; }));
  CHECK_FALSE(claimable([&](MptGrant& grant) { grant.window_offset = buffers.offset + buffers.bytes - 4095; }));
  CHECK(claimable([&](MptGrant& grant) { grant.window_offset = buffers.offset + buffers.bytes - 4096; }));
  CHECK_FALSE(claimable([](MptGrant& grant) { grant.window_offset = ~std::uint64_t{0}; }));
  CHECK_FALSE(claimable([](MptGrant& grant) { grant.length = ~std::uint64_t{0}; }));
  CHECK_FALSE(claimable([](MptGrant& grant) { grant.address = ~std::uint64_t{0} - 100; }));
  CHECK_FALSE(claimable([](MptGrant& grant) { grant.rights = kLocalRights; }));
  CHECK_FALSE(claimable([](MptGrant& grant) { grant.generation = 0; }));
}

}  // namespace splitnic::fabric::test::mpt_test
