#include "fabric/memory/mpt.h"

#include "adapter_fixtures.h"

namespace splitnic::fabric::test::mpt_test {
namespace {

constexpr ProtectionDomain kDomain{3};
constexpr QpNumber kOwners{0x4021};  // connected to kWriter
constexpr QpNumber kWriter{0x5032};
constexpr MptAdmission kAdmission{kOwners, kWriter, kDomain};

MptGrant grant_for(DirectAccess& owner, Stag tag, std::size_t at = 0, std::uint64_t bytes = 4096) {
  MptGrant grant;
  grant.tag = tag;
  grant.address = 0x7000'0000;
  grant.length = bytes;
  grant.window_offset = owner.buffers.offset + at;
  grant.rights = kAllRights;
  grant.domain = kDomain;
  return grant;
}

struct Fixture {
  explicit Fixture(const SimBridgeOptions& bridge = LinkedPair::calm(), std::uint64_t seed = 1) : pair(bridge, seed) {
    publisher.start(owner);
    view.start();
    REQUIRE(publisher.admit(owner, kAdmission));
  }
  LinkedPair pair;
  DirectAccess& owner = *pair.link(1).direct();
  DirectAccess& initiator = *pair.link(0).direct();
  MptPublisher publisher;
  MptView view;
  WindowPlace claim(Stag tag, std::uint64_t address, std::uint64_t bytes, QpNumber writer = kWriter,
                    QpNumber of = kOwners) {
    pair.advance(microseconds(1));
    return view.claim(initiator, {writer, of}, tag, address, bytes);
  }
  /// Whether the connection may store into the granted tag.
  bool admitted(Stag tag, QpNumber writer = kWriter, QpNumber of = kOwners) {
    return claim(tag, 0x7000'0000, 1, writer, of).has_value();
  }
  /// The number that the owner raises with each change.
  std::uint64_t changes() {
    pair.advance(microseconds(1));
    return initiator.bridge.local_memory().watch<std::uint64_t>(initiator.admissions.offset);
  }
  /// What a hostile owner writes by hand.
  void forge(std::size_t slot, const MptSlot& bytes) {
    owner.bridge.peer_window().write(owner.peer_mpt.offset + slot * sizeof bytes, std::as_bytes(std::span(&bytes, 1)));
    count_change();
  }
  void count_change() {
    owner.bridge.publish();
    owner.bridge.peer_window().write_word<std::uint64_t>(owner.peer_admissions.offset, ++forged);
  }
  std::uint64_t forged = 1000;
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
  grant.domain = ProtectionDomain{0x41424344};
  grant.queue_pair = QpNumber{0x515253};
  const MptSlot slot = encode_mpt_slot(grant, 99);
  const auto bytes = std::as_bytes(std::span(&slot, 1));
  const std::array<unsigned char, 56> expected{1,    0,    0,    0,    0x0d, 0x0c, 0x0b, 0x0a, 0x18, 0x17, 0x16,
                                               0x15, 0x14, 0x13, 0x12, 0x11, 0x22, 0x21, 0,    0,    0,    0,
                                               0,    0,    0x32, 0x31, 0,    0,    0,    0,    0,    0,    11,
                                               0,    0,    0,    0x44, 0x43, 0x42, 0x41, 0x53, 0x52, 0x51};
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

TEST_CASE("an admission's bytes are these and no others", "[fabric][memory][wire]") {
  Fixture f;
  REQUIRE(f.publisher.admit(f.owner, {QpNumber{0x111213}, QpNumber{0x212223}, ProtectionDomain{0x31323334}}));
  CHECK(f.changes() == 2);
  std::array<std::byte, 64> set;
  const std::size_t sets = (f.initiator.admissions.bytes - kMptPlacesAt) / sizeof set;
  f.initiator.bridge.local_memory().copy_out(
      f.initiator.admissions.offset + kMptPlacesAt + 0x111213 % sets * sizeof set, set);
  const std::array<unsigned char, 64> expected{1, 0, 0, 0, 0x34, 0x33, 0x32, 0x31, 0x13, 0x12, 0x11, 0x23, 0x22, 0x21};
  CHECK(std::memcmp(set.data(), expected.data(), expected.size()) == 0);
}

TEST_CASE("a granted range is claimed within its bounds alone", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  CHECK_FALSE(f.claim(tag, 0x7000'0000, 1).has_value());
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag, 64)));
  const std::size_t at = f.owner.buffers.offset + 64;
  CHECK(f.claim(tag, 0x7000'0000, 4096) == WindowPlace(at));
  CHECK(f.claim(tag, 0x7000'0000 + 4095, 1) == WindowPlace(at + 4095));
  CHECK(f.claim(tag, 0x7000'0000 + 4096, 0) == WindowPlace(at + 4096));
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
  CHECK(f.claim(again, 0x7000'0000, 1) == WindowPlace(f.owner.buffers.offset + 4096));
}

TEST_CASE("a slot is readable while each queue pair that may use it lets its peer read", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  const Stag of_one = Stag::from(77, 1);
  MptGrant grant = grant_for(f.owner, tag);
  grant.rights = kAllRights | Right::remote_read;
  REQUIRE(f.publisher.grant(f.owner, grant));
  grant = grant_for(f.owner, of_one, 4096);
  grant.rights = kAllRights | Right::remote_read;
  grant.queue_pair = kOwners;
  REQUIRE(f.publisher.grant(f.owner, grant));
  const auto readable = [&](Stag which) {
    f.pair.advance(microseconds(1));
    const ReadGrant found = f.view.find_readable(f.initiator, {kWriter, kOwners}, which, 0x7000'0000, 4096);
    CHECK(f.admitted(which));  // for writing it stays
    return static_cast<bool>(found);
  };
  CHECK(readable(tag));
  CHECK(readable(of_one));
  CHECK_FALSE(f.view.find_readable(f.initiator, {kWriter, kOwners}, tag, 0x7000'0000, 4097));
  CHECK_FALSE(f.view.find_readable(f.initiator, {kWriter, QpNumber{9}}, tag, 0x7000'0000, 1));

  SECTION("another queue pair of the domain does not") {
    const MptAdmission other{QpNumber{0x111}, QpNumber{0x222}, kDomain, false};
    REQUIRE(f.publisher.admit(f.owner, other));
    CHECK_FALSE(readable(tag));
    CHECK(readable(of_one));  // which is not for it
    const Stag later = Stag::from(500, 1);
    grant = grant_for(f.owner, later, 8192);
    grant.rights = kAllRights | Right::remote_read;
    REQUIRE(f.publisher.grant(f.owner, grant));
    CHECK_FALSE(readable(later));
    static_cast<void>(f.publisher.dismiss(f.owner, other.queue_pair));
    CHECK(readable(tag));
    CHECK(readable(later));
  }
  SECTION("of several others that do not, the last one counts") {
    constexpr std::uint32_t kOthers = 3;
    for (std::uint32_t i = 0; i < kOthers; ++i) {
      REQUIRE(f.publisher.admit(f.owner, {QpNumber{0x100 + i}, QpNumber{0x200 + i}, kDomain, false}));
      REQUIRE(f.publisher.admit(f.owner, {QpNumber{0x100 + i}, QpNumber{0x200 + i}, kDomain, false}));
    }
    for (std::uint32_t i = 0; i < kOthers; ++i) {
      CHECK_FALSE(readable(tag));
      static_cast<void>(f.publisher.dismiss(f.owner, QpNumber{0x100 + i}));
      static_cast<void>(f.publisher.dismiss(f.owner, QpNumber{0x100 + i}));
    }
    CHECK(readable(tag));
  }
  SECTION("one of another domain does not") {
    REQUIRE(f.publisher.admit(f.owner, {QpNumber{0x111}, QpNumber{0x222}, ProtectionDomain{4}, false}));
    CHECK(readable(tag));
  }
  SECTION("its own does not any more, and then does again") {
    MptAdmission changed = kAdmission;
    changed.reads = false;
    REQUIRE(f.publisher.admit(f.owner, changed));
    CHECK_FALSE(readable(tag));
    CHECK_FALSE(readable(of_one));
    REQUIRE(f.publisher.admit(f.owner, kAdmission));
    CHECK(readable(tag));
    CHECK(readable(of_one));
  }
  SECTION("it is revoked") {
    f.publisher.revoke(f.owner, tag);
    f.pair.advance(microseconds(1));
    CHECK_FALSE(f.view.find_readable(f.initiator, {kWriter, kOwners}, tag, 0x7000'0000, 1));
  }
}

TEST_CASE("a grant that has ended and is made again is not found as the same", "[fabric][memory]") {
  Fixture f;
  const auto sets = static_cast<std::uint32_t>(f.owner.peer_mpt.bytes / sizeof(MptSlot) / kMptWays);
  const Stag tag = Stag::from(7, 1);
  const Stag neighbour = Stag::from(7 + sets, 1);  // of the same set
  const auto grant = [&](Stag which) {
    MptGrant made = grant_for(f.owner, which, 4096);
    made.rights = kAllRights | Right::remote_read;
    REQUIRE(f.publisher.grant(f.owner, made));
  };
  const auto found = [&] {
    f.pair.advance(microseconds(1));
    const ReadGrant now = f.view.find_readable(f.initiator, {kWriter, kOwners}, tag, 0x7000'0000, 4096);
    REQUIRE(now);
    return now;
  };
  grant(neighbour);
  grant(tag);
  f.publisher.revoke(f.owner, tag);
  grant(tag);  // its slot's second grant, and the neighbour's has had one
  const ReadGrant first = found();
  grant(Stag::from(8, 1));
  CHECK(found() == first);  // what is another's changes nothing
  SECTION("in the same slot") {
    f.publisher.revoke(f.owner, tag);
    grant(tag);
  }
  SECTION("in another slot, for which it is the second grant, too") {
    f.publisher.revoke(f.owner, neighbour);
    f.publisher.revoke(f.owner, tag);
    grant(tag);
  }
  SECTION("its queue pair was away") {
    static_cast<void>(f.publisher.dismiss(f.owner, kOwners));
    REQUIRE(f.publisher.admit(f.owner, kAdmission));
  }
  SECTION("its queue pair was not to be read through") {
    MptAdmission changed = kAdmission;
    changed.reads = false;
    REQUIRE(f.publisher.admit(f.owner, changed));
    REQUIRE(f.publisher.admit(f.owner, kAdmission));
  }
  CHECK_FALSE(found() == first);
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
  CHECK_FALSE(claimable([](MptGrant& grant) { grant.domain = ProtectionDomain{kDomain.value + 1}; }));
  CHECK_FALSE(claimable([](MptGrant& grant) { grant.queue_pair = QpNumber{0x100'0000 + kOwners.value}; }));
}

TEST_CASE("a grant is for the queue pairs of its domain, and for connections that are admitted", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag)));
  CHECK(f.admitted(tag));
  CHECK_FALSE(f.admitted(tag, QpNumber{kWriter.value + 1}));  // another queue pair of the initiator's
  CHECK_FALSE(f.admitted(tag, kWriter, QpNumber{kOwners.value + 1}));
  CHECK_FALSE(f.admitted(tag, kOwners, kWriter));
  const QpNumber foreign{0x4022};
  REQUIRE(f.publisher.admit(f.owner, {foreign, kWriter, ProtectionDomain{4}}));
  CHECK_FALSE(f.admitted(tag, kWriter, foreign));
  CHECK(f.admitted(tag));
}

TEST_CASE("a grant that names a queue pair is for this one alone", "[fabric][memory]") {
  Fixture f;
  const QpNumber other{0x4022};
  REQUIRE(f.publisher.admit(f.owner, {other, QpNumber{0x5033}, kDomain}));
  const Stag tag = Stag::from(1234, 5);
  MptGrant grant = grant_for(f.owner, tag);
  grant.queue_pair = other;
  REQUIRE(f.publisher.grant(f.owner, grant));
  CHECK(f.admitted(tag, QpNumber{0x5033}, other));
  CHECK_FALSE(f.admitted(tag));
}

TEST_CASE("a queue pair that is dismissed stores no more, from what was remembered neither", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag)));
  REQUIRE(f.admitted(tag));
  CHECK(f.publisher.dismiss(f.owner, kOwners));  // something of its domain is granted
  CHECK_FALSE(f.admitted(tag));
  CHECK_FALSE(f.publisher.dismiss(f.owner, kOwners));
  REQUIRE(f.publisher.admit(f.owner, kAdmission));
  CHECK(f.admitted(tag));
  // The same queue pairs in another domain.
  CHECK(f.publisher.dismiss(f.owner, kOwners));
  REQUIRE(f.publisher.admit(f.owner, {kOwners, kWriter, ProtectionDomain{4}}));
  CHECK_FALSE(f.admitted(tag));
  CHECK_FALSE(f.publisher.dismiss(f.owner, kOwners));  // nothing of that domain is
}

TEST_CASE("a full set admits no more, and admits again after a dismissal", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag)));
  const auto sets =
      static_cast<std::uint32_t>((f.owner.peer_admissions.bytes - kMptPlacesAt) / sizeof(MptPlace) / kMptWays);
  const auto numbered = [&](std::uint32_t way) { return QpNumber{kOwners.value + way * sets}; };
  for (std::uint32_t way = 1; way < kMptWays; ++way) {
    REQUIRE(f.publisher.admit(f.owner, {numbered(way), kWriter, kDomain}));
  }
  const QpNumber more = numbered(kMptWays);
  CHECK_FALSE(f.publisher.admit(f.owner, {more, kWriter, kDomain}));
  CHECK_FALSE(f.admitted(tag, kWriter, more));
  CHECK(f.admitted(tag, kWriter, numbered(3)));
  REQUIRE(f.publisher.dismiss(f.owner, kOwners));
  REQUIRE(f.publisher.admit(f.owner, {more, kWriter, kDomain}));
  CHECK(f.admitted(tag, kWriter, more));
}

TEST_CASE("an admission again changes nothing, and every true change is counted", "[fabric][memory]") {
  Fixture f;
  CHECK(f.changes() == 1);
  REQUIRE(f.publisher.admit(f.owner, kAdmission));
  CHECK(f.changes() == 1);
  const Stag tag = Stag::from(1234, 5);
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag)));
  CHECK(f.changes() == 2);
  f.publisher.revoke(f.owner, tag);
  CHECK(f.changes() == 3);
  f.publisher.revoke(f.owner, tag);
  CHECK(f.changes() == 3);
  static_cast<void>(f.publisher.dismiss(f.owner, kOwners));
  CHECK(f.changes() == 4);
}

TEST_CASE("a miss is remembered until the owner's table changes: it reads one word, as a hit does",
          "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  CHECK_FALSE(f.admitted(tag));
  // What is written without a change of the number is not looked at.
  MptGrant grant = grant_for(f.owner, tag);
  grant.generation = 1;
  const std::size_t sets = f.owner.peer_mpt.bytes / sizeof(MptSlot) / kMptWays;
  const MptSlot slot = encode_mpt_slot(grant, f.owner.tag_out);
  f.owner.bridge.peer_window().write(f.owner.peer_mpt.offset + 1234 % sets * kMptWays * sizeof slot,
                                     std::as_bytes(std::span(&slot, 1)));
  CHECK_FALSE(f.admitted(tag));
  f.count_change();
  CHECK(f.admitted(tag));
  f.owner.bridge.peer_window().write_word<std::uint32_t>(f.owner.peer_mpt.offset + 1234 % sets * kMptWays * sizeof slot,
                                                         0);
  CHECK(f.admitted(tag));
  f.count_change();
  CHECK_FALSE(f.admitted(tag));
}

TEST_CASE("a miss is forgotten with the grant, and with the admission, that it lacked", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  const bool grant_first = GENERATE(true, false);
  static_cast<void>(f.publisher.dismiss(f.owner, kOwners));
  const auto grant = [&] { REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag))); };
  const auto admit = [&] { REQUIRE(f.publisher.admit(f.owner, kAdmission)); };
  CHECK_FALSE(f.admitted(tag));
  grant_first ? grant() : admit();
  CHECK_FALSE(f.admitted(tag));
  grant_first ? admit() : grant();
  CHECK(f.admitted(tag));
}

TEST_CASE("over a bridge whose writes arrive late, what is claimed in the end is what the owner's table says",
          "[fabric][memory][sim]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{21}));
  INFO("seed " << seed);
  Fixture f(LinkedPair::rough(), seed);
  SeededRandom random(seed);
  const Stag tag = Stag::from(1234, 5);
  bool granted = false;
  bool is_admitted = true;
  for (int round = 0; round < 50; ++round) {
    if (random.below(2) == 0) {
      if (granted) f.publisher.revoke(f.owner, tag);
      if (!granted) REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag)));
      granted = !granted;
    } else {
      if (is_admitted) static_cast<void>(f.publisher.dismiss(f.owner, kOwners));
      if (!is_admitted) REQUIRE(f.publisher.admit(f.owner, kAdmission));
      is_admitted = !is_admitted;
    }
    for (std::uint64_t claims = random.below(40); claims != 0; --claims) static_cast<void>(f.admitted(tag));
    if (random.below(3) != 0) continue;
    f.pair.advance(milliseconds(1));
    REQUIRE(f.admitted(tag) == (granted && is_admitted));
  }
}

TEST_CASE("no table and no places let nobody store", "[fabric][memory]") {
  Fixture f;
  const Stag tag = Stag::from(1234, 5);
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag)));
  REQUIRE(f.admitted(tag));
  f.owner.peer_admissions.bytes = f.initiator.admissions.bytes = kMptPlacesAt;  // the count alone
  f.publisher.start(f.owner);
  f.view.start();
  REQUIRE(f.publisher.grant(f.owner, grant_for(f.owner, tag)));
  CHECK_FALSE(f.publisher.admit(f.owner, kAdmission));
  CHECK_FALSE(f.admitted(tag));
}

}  // namespace splitnic::fabric::test::mpt_test
