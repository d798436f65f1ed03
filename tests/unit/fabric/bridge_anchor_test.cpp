#include "fabric/bridge/anchor.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "common/crc32c.h"
#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_bridge.h"
#include "tests/unit/fabric/link_records.h"

namespace splitnic::fabric::bridge_anchor_test {
namespace {

constexpr std::size_t kWindow = 1U << 20U;

Anchor sample() {
  Anchor anchor;
  anchor.epoch = Epoch{0x1122334455667788};
  anchor.peer_epoch = Epoch{0x99aabbccddeeff00};
  anchor.port_address = PortAddress{0x020000000001};
  anchor.memory_bytes = kWindow;
  anchor.armed = {640, 64};
  anchor.tails = {MemoryRange{704, 64}, MemoryRange{768, 64}};
  anchor.slots = {MemoryRange{832, 1024}, MemoryRange{4928, 2048}};
  anchor.payloads = {MemoryRange{1856, 2048}, MemoryRange{6976, 4096}};
  anchor.mpt = {13120, 4096};
  anchor.admissions = {17216, 128};
  anchor.buffers = {17344, kWindow - 17344 - 17344 % 64};
  return anchor;
}

void seal(AnchorBytes& bytes) {
  bytes.checksum = crc32c(std::as_bytes(std::span(&bytes, 1)).first(offsetof(AnchorBytes, checksum)));
}

struct Malformed {
  const char* what;
  const char* field;
  std::function<void(AnchorBytes&)> change;
};

// The regions of an encoded record: slots 0, payload 0, tail 0, slots 1, payload 1, tail 1, armed, mpt, buffers,
// admissions.
const Malformed kMalformed[] = {
    {"another magic", "magic", [](AnchorBytes& a) { a.magic = kAnchorMagic + 1; }},
    {"version 0", "version", [](AnchorBytes& a) { a.version = 0; }},
    {"version 1, with message FIFOs", "version", [](AnchorBytes& a) { a.version = 1; }},
    {"version 2, without a position to which slots are settled", "version", [](AnchorBytes& a) { a.version = 2; }},
    {"version 3, without admissions", "version", [](AnchorBytes& a) { a.version = 3; }},
    {"version 5", "version", [](AnchorBytes& a) { a.version = 5; }},
    {"a shorter record", "record bytes", [](AnchorBytes& a) { a.record_bytes = 639; }},
    {"a longer record", "record bytes", [](AnchorBytes& a) { a.record_bytes = 641; }},
    {"no epoch", "epoch", [](AnchorBytes& a) { a.epoch = 0; }},
    {"no epoch answered", "peer epoch", [](AnchorBytes& a) { a.peer_epoch = 0; }},
    {"a port address of 49 bits", "port address", [](AnchorBytes& a) { a.port_address = std::uint64_t{1} << 48U; }},
    {"memory smaller than the window", "memory bytes", [](AnchorBytes& a) { a.memory_bytes = kWindow - 1; }},
    {"a reserved word", "reserved", [](AnchorBytes& a) { a.reserved = 1; }},
    {"another reserved word", "reserved", [](AnchorBytes& a) { a.reserved2 = 1; }},
    {"no regions", "region missing", [](AnchorBytes& a) { a.region_count = 0; }},
    {"one region too few", "region missing", [](AnchorBytes& a) { a.region_count = 9; }},
    {"an empty region more", "region kind",
     [](AnchorBytes& a) {
       a.region_count = 11;
       a.regions[10].writer = 1;
     }},
    {"17 regions", "region count", [](AnchorBytes& a) { a.region_count = 17; }},
    {"2^32-1 regions", "region count", [](AnchorBytes& a) { a.region_count = ~std::uint32_t{0}; }},
    {"kind 0", "region kind", [](AnchorBytes& a) { a.regions[6].kind = 0; }},
    {"kind 8", "region kind", [](AnchorBytes& a) { a.regions[6].kind = 8; }},
    {"lane 2", "region lane", [](AnchorBytes& a) { a.regions[0].lane = 2; }},
    {"lane 255", "region lane", [](AnchorBytes& a) { a.regions[1].lane = 255; }},
    {"a lane where there is none", "region lane", [](AnchorBytes& a) { a.regions[7].lane = 1; }},
    {"the same lane twice", "region twice", [](AnchorBytes& a) { a.regions[3].lane = 0; }},
    {"the same kind twice", "region twice", [](AnchorBytes& a) { a.regions[8].kind = 5; }},
    {"a region that the owner writes", "region writer", [](AnchorBytes& a) { a.regions[0].writer = 0; }},
    {"a region that nobody writes", "region writer", [](AnchorBytes& a) { a.regions[0].writer = 2; }},
    {"a region's reserved word", "region reserved", [](AnchorBytes& a) { a.regions[5].reserved = 1; }},
    {"a region's other reserved word", "region reserved", [](AnchorBytes& a) { a.regions[5].reserved2 = 1; }},
    {"an offset off the line", "region offset alignment", [](AnchorBytes& a) { a.regions[6].offset = 648; }},
    {"a size off the line", "region size alignment", [](AnchorBytes& a) { a.regions[7].bytes = 4095; }},
    {"a start at the window's end", "region beyond the window", [](AnchorBytes& a) { a.regions[0].offset = kWindow; }},
    {"an end one line beyond", "region beyond the window",
     [](AnchorBytes& a) {
       a.regions[8].bytes = a.regions[8].bytes.value() + 64;
       a.regions[8].offset = a.regions[8].offset.value() + 64;
     }},
    {"a size of 2^64-64", "region beyond the window", [](AnchorBytes& a) { a.regions[8].bytes = ~std::uint64_t{63}; }},
    {"an offset of 2^64-64", "region beyond the window",
     [](AnchorBytes& a) { a.regions[8].offset = ~std::uint64_t{63}; }},
    {"offset and size that add up past 2^64", "region beyond the window",
     [](AnchorBytes& a) {
       a.regions[8].offset = ~std::uint64_t{63};
       a.regions[8].bytes = 128;
     }},
    {"a region on the record itself", "region overlap", [](AnchorBytes& a) { a.regions[6].offset = 576; }},
    {"a region one line into another", "region overlap", [](AnchorBytes& a) { a.regions[5].offset = 832; }},
    {"two tails in one place", "region overlap", [](AnchorBytes& a) { a.regions[5].offset = 704; }},
    {"a slot ring of no power of two", "slot ring size", [](AnchorBytes& a) { a.regions[0].bytes = 1024 - 64; }},
    {"a slot ring of nothing", "slot ring size", [](AnchorBytes& a) { a.regions[0].bytes = 0; }},
    {"a slot ring that is too small", "slot ring size", [](AnchorBytes& a) { a.regions[0].bytes = 256; }},
    {"a payload ring of no power of two", "payload ring size", [](AnchorBytes& a) { a.regions[1].bytes = 2048 - 64; }},
    {"a payload ring of nothing", "payload ring size", [](AnchorBytes& a) { a.regions[1].bytes = 0; }},
    {"a payload ring that is too small", "payload ring size", [](AnchorBytes& a) { a.regions[1].bytes = 256; }},
    {"a tail of two lines", "tail size",
     [](AnchorBytes& a) {
       a.regions[5].offset = 200000;
       a.regions[5].bytes = 128;
       a.regions[8].bytes = 64;
     }},
    {"a tail of nothing", "tail size", [](AnchorBytes& a) { a.regions[2].bytes = 0; }},
    {"an armed flag of nothing", "armed flag size", [](AnchorBytes& a) { a.regions[6].bytes = 0; }},
    {"a table of nothing", "protection table size", [](AnchorBytes& a) { a.regions[7].bytes = 0; }},
    {"admissions of nothing", "admissions size", [](AnchorBytes& a) { a.regions[9].bytes = 0; }},
};

}  // namespace

TEST_CASE("an anchor record says what was encoded", "[fabric][anchor]") {
  const auto decoded = decode_anchor(encode_anchor(sample()), 0, kWindow);
  REQUIRE(decoded.has_value());
  CHECK(decoded->epoch == sample().epoch);
  CHECK(decoded->peer_epoch == sample().peer_epoch);
  CHECK(decoded->port_address == sample().port_address);
  CHECK(decoded->slots[1].offset == 4928);
  CHECK(decoded->slots[1].bytes == 2048);
  CHECK(decoded->payloads[0].offset == 1856);
  CHECK(decoded->payloads[1].bytes == 4096);
  CHECK(decoded->tails[1].offset == 768);
  CHECK(decoded->armed.offset == 640);
  CHECK(decoded->mpt.bytes == 4096);
  CHECK(decoded->admissions.offset == 17216);
  CHECK(decoded->buffers.offset == 17344);
}

TEST_CASE("the bytes of an anchor record are pinned", "[fabric][anchor]") {
  const AnchorBytes record = encode_anchor(sample());
  const auto bytes = std::as_bytes(std::span(&record, 1));
  const auto hex = [&](std::size_t offset, std::size_t count) {
    std::string text;
    for (const auto byte : bytes.subspan(offset, count)) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    return text;
  };
  CHECK(hex(0, 16) ==
        "534c54414e43483104000000"
        "80020000");
  CHECK(hex(16, 16) ==
        "8877665544332211"
        "00ffeeddccbbaa99");
  CHECK(hex(32, 16) ==
        "0100000000020000"
        "0000100000000000");
  CHECK(hex(48, 16) ==
        "0a000000"
        "00000000"
        "0000000000000000");
  CHECK(hex(64, 32) ==
        "0100"
        "00"
        "01"
        "00000000"
        "4003000000000000"
        "0004000000000000"
        "0000000000000000");
  CHECK(hex(96, 32) ==
        "0200"
        "00"
        "01"
        "00000000"
        "4007000000000000"
        "0008000000000000"
        "0000000000000000");
  CHECK(hex(224, 32) ==
        "0300"
        "01"
        "01"
        "00000000"
        "0003000000000000"
        "4000000000000000"
        "0000000000000000");
  CHECK(hex(352, 32) ==
        "0700"
        "00"
        "01"
        "00000000"
        "4043000000000000"
        "8000000000000000"
        "0000000000000000");
  CHECK(hex(580, 4) == "434d4954");
  CHECK(hex(584, 56) == std::string(112, '0'));
}

TEST_CASE("every field of a malformed anchor is refused by name", "[fabric][anchor]") {
  for (const auto& row : kMalformed) {
    INFO(row.what);
    AnchorBytes bytes = encode_anchor(sample());
    row.change(bytes);
    seal(bytes);
    const auto decoded = decode_anchor(bytes, 0, kWindow);
    REQUIRE_FALSE(decoded.has_value());
    CHECK(std::string(decoded.error()) == row.field);
  }
}

TEST_CASE("an anchor without its commit word, or with any bit turned, is refused", "[fabric][anchor]") {
  AnchorBytes bytes = encode_anchor(sample());
  bytes.commit = 0;
  CHECK(std::string(decode_anchor(bytes, 0, kWindow).error()) == "commit word");
  for (std::size_t bit = 0; bit < 584 * 8; ++bit) {
    bytes = encode_anchor(sample());
    std::as_writable_bytes(std::span(&bytes, 1))[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    REQUIRE_FALSE(decode_anchor(bytes, 0, kWindow).has_value());
  }
}

TEST_CASE("CRC-32C gives the value of the standard, also in pieces", "[fabric][crc]") {
  const std::string_view text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  CHECK(crc32c(bytes) == 0xe3069283);
  CHECK(crc32c(bytes.subspan(4), crc32c(bytes.first(4))) == 0xe3069283);
  CHECK(crc32c({}) == 0);
}

namespace {

/// A link that faces a hand-played peer on the other end of the bridge.
struct HostilePeer {
  explicit HostilePeer(const LinkOptions& options = {}) {
    auto pair = shm_pair(kWindow, kWindow);
    REQUIRE(pair.has_value());
    own = std::move(pair->first);
    peer = std::move(pair->second);
    link = std::make_unique<FabricLink>(*own, options, random);
    link->restart();
  }

  void announce(std::uint32_t phase, Epoch echoed, std::uint32_t anchor_offset = 0, std::uint32_t version = 1) {
    const std::uint32_t words[] = {0x534e0000U | version,
                                   phase,
                                   static_cast<std::uint32_t>(epoch.value),
                                   static_cast<std::uint32_t>(epoch.value >> 32U),
                                   static_cast<std::uint32_t>(echoed.value),
                                   static_cast<std::uint32_t>(echoed.value >> 32U),
                                   anchor_offset};
    for (std::size_t i = 0; i < 7; ++i) peer->write_scratchpad(i, words[i]);
    peer->write_scratchpad(7, crc32c(std::as_bytes(std::span(words))));
  }
  void put_anchor(const std::function<void(AnchorBytes&)>& change, std::size_t offset = 0) {
    Anchor anchor = sample();
    anchor.epoch = epoch;
    anchor.peer_epoch = link->epoch();
    AnchorBytes bytes = encode_anchor(anchor);
    change(bytes);
    seal(bytes);
    peer->local_memory().store_bytes(offset, std::as_bytes(std::span(&bytes, 1)));
  }
  void poll() {
    now += std::chrono::milliseconds(1);
    link->poll(now);
  }
  /// Through the handshake, up to the point where the link reads the anchor.
  void shake(std::uint32_t anchor_offset = 0) {
    announce(1, Epoch{});
    poll();
    announce(1, link->epoch());
    poll();
    REQUIRE(link->phase() == LinkPhase::ready);
    announce(2, link->epoch(), anchor_offset);
    poll();
  }

  SeededRandom random{4};
  std::unique_ptr<Bridge> own;
  std::unique_ptr<Bridge> peer;
  std::unique_ptr<FabricLink> link;
  Epoch epoch{77};
  Time now{};
};

}  // namespace

TEST_CASE("a link that knows its peer's port address comes up with no other one", "[fabric][link][anchor]") {
  LinkOptions options;
  const PortAddress announced = sample().port_address;
  const bool same = GENERATE(true, false);
  options.peer_port_address = PortAddress{announced.value + (same ? 0 : 1)};
  HostilePeer peer(options);
  peer.put_anchor([](AnchorBytes&) {});
  peer.shake();
  CHECK(peer.link->up() == same);
  if (same) return;
  CHECK(peer.link->phase() == LinkPhase::faulty);
  CHECK(std::string(peer.link->fault()) == "the peer's anchor has another endnode's port address");
}

TEST_CASE("a well-played peer brings the link up, a malformed anchor makes it faulty with a reason, restart heals",
          "[fabric][link][anchor]") {
  HostilePeer good;
  good.put_anchor([](AnchorBytes&) {});
  good.shake();
  REQUIRE(good.link->up());
  for (const auto& row : kMalformed) {
    INFO(row.what);
    HostilePeer hostile;
    hostile.put_anchor(row.change);
    hostile.shake();
    REQUIRE(hostile.link->phase() == LinkPhase::faulty);
    CHECK(std::string(hostile.link->fault()) == row.field);
    hostile.poll();
    CHECK(hostile.link->phase() == LinkPhase::faulty);
    hostile.link->restart();
    hostile.epoch.value++;
    hostile.put_anchor([](AnchorBytes&) {});
    hostile.shake();
    CHECK(hostile.link->up());
  }
}

TEST_CASE("memory is laid out only once the own epoch is echoed, and by the peer's present epoch", "[fabric][link]") {
  HostilePeer peer;
  peer.own->local_memory().store<std::uint64_t>(0, 0xabcdef);
  peer.announce(1, Epoch{});
  for (int i = 0; i < 5; ++i) peer.poll();
  CHECK(peer.link->phase() == LinkPhase::init);
  peer.announce(2, Epoch{peer.link->epoch().value + 1});
  for (int i = 0; i < 5; ++i) peer.poll();
  CHECK(peer.link->phase() == LinkPhase::init);
  peer.epoch = Epoch{78};  // echoes, but has restarted: its new epoch is to be echoed first
  peer.announce(1, peer.link->epoch());
  peer.poll();
  CHECK(peer.link->phase() == LinkPhase::init);
  CHECK(peer.own->local_memory().watch<std::uint64_t>(0) == 0xabcdef);
  peer.poll();
  CHECK(peer.link->phase() == LinkPhase::ready);
  CHECK(peer.own->local_memory().watch<std::uint64_t>(0) == kAnchorMagic);
}

TEST_CASE("an anchor of other epochs than announced is refused", "[fabric][link][anchor]") {
  const bool own = GENERATE(true, false);
  HostilePeer hostile;
  hostile.put_anchor([own](AnchorBytes& a) { own ? a.epoch = 5 : a.peer_epoch = 5; });
  hostile.shake();
  CHECK(hostile.link->phase() == LinkPhase::faulty);
}

TEST_CASE("an anchor offset that is misaligned or outside the window is refused", "[fabric][link][anchor]") {
  const auto [offset, good] = GENERATE(table<std::uint32_t, bool>({{8, false},
                                                                   {63, false},
                                                                   {kWindow - 576, false},
                                                                   {kWindow, false},
                                                                   {0xffffffc0, false},
                                                                   {0xffffffff, false},
                                                                   {kWindow - 640, true}}));
  INFO("offset " << offset);
  HostilePeer hostile;
  const auto no_overlap = [](AnchorBytes& a) { a.regions[8].bytes = 64; };
  if (good) hostile.put_anchor(no_overlap, offset);
  hostile.shake(offset);
  CHECK(hostile.link->up() == good);
}

TEST_CASE("hostile scratchpads: nonsense is as if nothing were there, another version is a fault", "[fabric][link]") {
  HostilePeer hostile;
  SeededRandom random(8);
  for (int i = 0; i < 2000; ++i) {
    for (std::size_t word = 0; word < kScratchpads; ++word) {
      hostile.peer->write_scratchpad(word, random.below(2) == 0 ? random.next32() : 0xffffffff);
    }
    hostile.poll();
    REQUIRE(hostile.link->phase() == LinkPhase::init);
  }
  SECTION("a torn group is read again") {
    hostile.announce(1, Epoch{});
    hostile.peer->write_scratchpad(2, 123);
    hostile.poll();
    CHECK(hostile.link->peer_epoch() == Epoch{});
    hostile.announce(1, Epoch{});
    hostile.poll();
    CHECK(hostile.link->peer_epoch() == hostile.epoch);
  }
  SECTION("epoch 0 is nobody") {
    hostile.epoch = Epoch{};
    hostile.announce(2, hostile.link->epoch());
    hostile.poll();
    CHECK(hostile.link->phase() == LinkPhase::init);
  }
  SECTION("phases that do not exist count as not ready") {
    for (const std::uint32_t phase : {0U, 4U, 0xffffffffU}) {
      hostile.announce(phase, Epoch{});
      hostile.poll();
      hostile.announce(phase, hostile.link->epoch());
      for (int i = 0; i < 10; ++i) hostile.poll();
      CHECK(hostile.link->phase() == LinkPhase::ready);
    }
  }
  SECTION("another version") {
    hostile.announce(1, Epoch{}, 0, 2);
    hostile.poll();
    CHECK(hostile.link->phase() == LinkPhase::faulty);
  }
}

TEST_CASE("a peer that changes its epoch, takes its echo back, or says that it is faulty ends an up link",
          "[fabric][link]") {
  HostilePeer peer;
  peer.put_anchor([](AnchorBytes&) {});
  peer.shake();
  REQUIRE(peer.link->up());
  const Epoch before = peer.link->epoch();
  SECTION("a new epoch is answered under the same own epoch") {
    peer.epoch = Epoch{78};
    peer.announce(1, Epoch{});
    peer.poll();
    CHECK(peer.link->phase() == LinkPhase::init);
    CHECK(peer.link->peer_epoch() == Epoch{78});
    CHECK(peer.link->epoch() == before);
  }
  SECTION("no echo") {
    peer.announce(2, Epoch{});
    peer.poll();
    CHECK(peer.link->phase() == LinkPhase::init);
    CHECK(peer.link->epoch() != before);
  }
  SECTION("faulty") {
    peer.announce(3, before);
    peer.poll();
    CHECK(peer.link->phase() == LinkPhase::init);
    CHECK(peer.link->epoch() != before);
  }
  SECTION("an impossible tail, also in memory that a peer which has hung up discarded") {
    const bool hangs_up = GENERATE(false, true);
    const auto anchor_of_link = [&] {
      AnchorBytes bytes{};
      peer.peer->peer_window().read(0, std::as_writable_bytes(std::span(&bytes, 1)));
      return decode_anchor(bytes, 0, kWindow);
    }();
    REQUIRE(anchor_of_link.has_value());
    peer.peer->peer_window().write_word(anchor_of_link->tails[1].offset + kTailAt, std::uint64_t{2});
    REQUIRE(test::send_record(*peer.link, VirtualLane::data, std::as_bytes(std::span("a line"))));
    CHECK_FALSE(peer.link->drained(VirtualLane::data));
    if (hangs_up) peer.peer.reset();
    peer.poll();  // too early for a usual look for the hang-up
    CHECK((peer.link->phase() == LinkPhase::faulty) == !hangs_up);
    peer.poll();
    CHECK(peer.link->phase() == (hangs_up ? LinkPhase::down : LinkPhase::faulty));
  }
}

}  // namespace splitnic::fabric::bridge_anchor_test
