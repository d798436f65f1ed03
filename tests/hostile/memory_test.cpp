// Stores to all memory of the owner that the bridge gives access to: the whole local memory, word by word, at any time.
#include <sched.h>

#include <algorithm>
#include <array>
#include <boost/endian/buffers.hpp>
#include <catch2/catch.hpp>
#include <cstring>

#include "common/crc32c.h"
#include "fabric/memory/mpt.h"
#include "tests/hostile/owner.h"

namespace splitnic::fabric::hostile::memory_test {
namespace {

constexpr ProtectionDomain kHostileDomain{3};

void store(std::span<std::byte> at, std::uint64_t word) { std::memcpy(at.data(), &word, sizeof word); }

void scribble(HostileHost& host, std::span<std::byte> over) {
  for (std::size_t at = 0; at + 8 <= over.size(); at += 8) store(over.subspan(at), host.random().next());
}

/// The scratchpads by which an end announces itself, with the matching checksum.
struct Announcement {
  std::uint32_t protocol = 0x534e'0001;
  std::uint32_t phase = 2;
  Epoch epoch{};
  Epoch echoed{};
  std::uint32_t anchor = 0;
};
void announce(HostileHost& host, const Announcement& what) {
  const auto half = [](std::uint64_t value, unsigned shift) { return static_cast<std::uint32_t>(value >> shift); };
  std::array<boost::endian::little_uint32_buf_t, 8> words;
  words[0] = what.protocol;
  words[1] = what.phase;
  words[2] = half(what.epoch.value, 0);
  words[3] = half(what.epoch.value, 32);
  words[4] = half(what.echoed.value, 0);
  words[5] = half(what.echoed.value, 32);
  words[6] = what.anchor;
  words[7] = crc32c(std::as_bytes(std::span(words).first<7>()));
  std::memcpy(host.scratchpads().data(), words.data(), sizeof words);
  host.ring();
}

MptGrant true_grant(HostileHost& host) {
  MptGrant grant;
  grant.generation = 1 + host.random().next32() / 2;
  grant.tag = kHostileMemory.tag;
  grant.address = kHostileMemory.address;
  grant.length = kHostileMemory.bytes;
  grant.window_offset = host.own_layout().buffers.offset;
  grant.rights = Right::remote_write | Right::remote_read;
  grant.domain = kHostileDomain;
  return grant;
}

/// That the owner may store through the hostile initiator's queue pair.
MptPlace true_admission(HostileHost& host) {
  MptPlace place{};
  place.generation = 1 + host.random().next32() / 2;
  place.domain = kHostileDomain.value;
  place.ends = connection_ends(HostileHost::kNumber, host.owner().queue_pair);
  return place;
}

/// Changes the anchor, and then corrects its checksum.
template <class Change>
void change_anchor(std::span<std::byte> anchor, Change change) {
  AnchorBytes bytes;
  std::memcpy(&bytes, anchor.data(), sizeof bytes);
  change(bytes);
  bytes.checksum = crc32c(std::as_bytes(std::span(&bytes, 1)).first(offsetof(AnchorBytes, checksum)));
  std::memcpy(anchor.data(), &bytes, sizeof bytes);
}

/// Writes the grant and the admission into every slot and place that the owner may read, and counts that.
void publish(HostileHost& host, const MptGrant& grant, const MptPlace& place) {
  const std::uint32_t tag = epoch_tag(host.link().epoch(), host.link().peer_epoch());
  const MptSlot slot = encode_mpt_slot(grant, tag);
  const auto table = host.part(host.layout().mpt);
  for (std::size_t at = 0; at < table.size(); at += sizeof slot) std::memcpy(&table[at], &slot, sizeof slot);
  const auto admissions = host.part(host.layout().admissions);
  for (std::size_t at = kMptPlacesAt; at < admissions.size(); at += sizeof place) {
    std::memcpy(&admissions[at], &place, sizeof place);
  }
  store(admissions, host.random().next());
}
void publish(HostileHost& host, const MptGrant& grant) { publish(host, grant, true_admission(host)); }

}  // namespace

TEST_CASE("random bytes over the whole window stop there", "[hostile]") {
  const int round = GENERATE(range(0, 4));
  CAPTURE(round);
  const Outcome outcome = endure(Ending::either_way, [](HostileHost& host) {
    while (host.goes_on()) scribble(host, host.window());
  });
  const bool named = outcome.fault.empty() || outcome.fault == "the peer wrote an impossible tail";
  CHECK(named);
}

TEST_CASE("zeros, and ones, over the whole window stop there", "[hostile]") {
  const auto value = GENERATE(std::byte{0}, std::byte{0xff});
  endure(Ending::either_way, [value](HostileHost& host) {
    while (host.goes_on()) std::ranges::fill(host.window(), value);
  });
}

TEST_CASE("random words at random places stop there", "[hostile]") {
  const int round = GENERATE(range(0, 4));
  CAPTURE(round);
  endure(Ending::either_way, [](HostileHost& host) {
    while (host.goes_on()) {
      const std::size_t at = host.random().below(host.window().size() / 8) * 8;
      store(host.window().subspan(at), host.random().next());
    }
  });
}

TEST_CASE("a slot of another epoch or out of sequence is not there", "[hostile]") {
  const bool near = GENERATE(false, true);
  const Outcome outcome = endure(Ending::harmless, [near](HostileHost& host) {
    while (host.goes_on()) {
      const auto off = static_cast<std::uint32_t>(near ? 1 + host.random().below(0xffff) : host.random().next32() | 1U);
      host.slots().put_sequence(off);
      host.ring();
    }
  });
  CHECK(outcome.counters.cells_received == 0);
}

// Whether the owner looks between the true word and the false one is a matter of time.
TEST_CASE("more room than was sent makes the link faulty; room taken back does, or is not seen", "[hostile]") {
  const bool beyond = GENERATE(false, true);
  endure(beyond ? Ending::link : Ending::either_way, [beyond](HostileHost& host) {
    const auto tail = host.part(host.layout().tails[1]).subspan(kTailAt);
    for (int i = 0; i < 10; ++i) {
      host.put(host.cell(Opcode::read_request, host.owner().open, 0, 4096));
      if (!host.wait_for(Opcode::read_response_last)) return;
      store(tail, beyond ? 1'000'000 : 0);
    }
    host.ring();
  });
}

TEST_CASE("an initiator that never gives room back starves nobody but itself", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    // Each response has 16 KiB, the room is 128 KiB, and nothing is taken. The depth allows four requests.
    for (int i = 0; i < 4; ++i) host.put(host.cell(Opcode::read_request, host.owner().open, 0, 16U << 10U));
    for (int i = 0; i < 5000; ++i)
      host.put(host.cell(Opcode::write_only, host.owner().open, 0, 8), host.random_bytes(8));
  });
  CHECK(outcome.counters.access_refused == 0);
}

TEST_CASE("the owner's own anchor record, once read, may be anything", "[hostile]") {
  endure(Ending::harmless, [](HostileHost& host) {
    while (host.goes_on()) scribble(host, host.window().first(kAnchorBytes));
  });
}

TEST_CASE("false armed flags cost doorbells and sleep, and nothing else", "[hostile]") {
  endure(Ending::harmless, [](HostileHost& host) {
    while (host.goes_on()) {
      store(host.part(host.layout().armed), host.random().next());
      host.put(host.cell(Opcode::write_only, host.owner().open, 0, 8), host.random_bytes(8));
      static_cast<void>(host.take());
    }
  });
}

TEST_CASE("granted direct memory may hold anything at any time, atomics on it too", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    const auto granted = host.part(host.layout().buffers).first(kHostileDirectBytes);
    // A busy machine may leave it no turn for long.
    for (; host.goes_on() || host.board().count <= 10; ++host.board().count) {
      scribble(host, granted.first(8192));
      Cell cell = host.cell(Opcode::write_only, host.owner().direct, 0, 8192);
      cell.direct = true;
      host.put(cell);
      host.put(host.cell(Opcode::fetch_add, host.owner().direct, 64, 8));
      host.put(host.cell(Opcode::read_request, host.owner().direct, 0, 8192));
      scribble(host, granted.first(8192));
      if (!host.wait_for(Opcode::read_response_last)) break;
    }
  });
  CHECK(outcome.count > 10);
  CHECK(outcome.counters.atomics == outcome.count);
}

TEST_CASE("bridge memory that was not granted is the hostile initiator's to spoil, and nobody believes it",
          "[hostile]") {
  endure(Ending::harmless, [](HostileHost& host) {
    while (host.goes_on()) scribble(host, host.part(host.layout().buffers));
  });
}

// ---- grants of a hostile owner of memory

TEST_CASE("a true grant is stored through", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, Asks::direct_writes, [](HostileHost& host) {
    publish(host, true_grant(host));
    host.ring();
    while (host.goes_on()) host.ring();
  });
  CHECK(outcome.asked > 0);
}

TEST_CASE("a grant outside of its maker's buffers is not believed", "[hostile]") {
  struct Row {
    const char* name;
    void (*spoil)(MptGrant&, HostileHost&);
  };
  const auto row = GENERATE(values<Row>({
      {"at the anchor", [](MptGrant& grant, HostileHost&) { grant.window_offset = 0; }},
      {"beyond the window",
       [](MptGrant& grant, HostileHost& host) { grant.window_offset = host.own_memory().size() - 64; }},
      {"far beyond", [](MptGrant& grant, HostileHost&) { grant.window_offset = ~std::uint64_t{0} - 100; }},
      {"longer than the window", [](MptGrant& grant, HostileHost&) { grant.length = ~std::uint64_t{0}; }},
      {"that wraps", [](MptGrant& grant, HostileHost&) { grant.address = ~std::uint64_t{0} - 0x100; }},
      {"across the buffers' end",
       [](MptGrant& grant, HostileHost& host) {
         const MemoryRange& buffers = host.own_layout().buffers;
         grant.window_offset = buffers.offset + buffers.bytes - 64;
       }},
      {"without the right", [](MptGrant& grant, HostileHost&) { grant.rights = Rights{} | Right::remote_read; }},
      {"too short", [](MptGrant& grant, HostileHost&) { grant.length = kAskedBytes - 1; }},
      {"of another domain", [](MptGrant& grant, HostileHost&) { grant.domain = ProtectionDomain{4}; }},
      {"of no domain", [](MptGrant& grant, HostileHost&) { grant.domain = ProtectionDomain{}; }},
      {"for another queue pair", [](MptGrant& grant, HostileHost&) { grant.queue_pair = QpNumber{78}; }},
      {"for no number of a queue pair", [](MptGrant& grant, HostileHost&) { grant.queue_pair.value = 0x100004d; }},
  }));
  CAPTURE(row.name);
  const Outcome outcome = endure(Ending::harmless, Asks::direct_writes, [row](HostileHost& host) {
    MptGrant grant = true_grant(host);
    row.spoil(grant, host);
    publish(host, grant);
    while (host.goes_on()) host.ring();
  });
  CHECK(outcome.asked == 0);
}

TEST_CASE("a grant is not used by a queue pair that its maker has not admitted", "[hostile]") {
  struct Row {
    const char* name;
    void (*spoil)(MptPlace&);
  };
  const auto row = GENERATE(values<Row>({
      {"an empty place", [](MptPlace& place) { place.generation = 0; }},
      {"another domain", [](MptPlace& place) { place.domain = 4; }},
      {"another queue pair of the hostile one", [](MptPlace& place) { place.ends = place.ends.value() + 1; }},
      {"another queue pair of the owner's", [](MptPlace& place) { place.ends = place.ends.value() + (1U << 24U); }},
      {"both ends in the wrong order",
       [](MptPlace& place) {
         const std::uint64_t ends = place.ends.value();
         place.ends = (ends >> 24U) | (ends & 0xff'ffffU) << 24U;
       }},
      {"a reserved bit", [](MptPlace& place) { place.ends = place.ends.value() | std::uint64_t{1} << 48U; }},
  }));
  CAPTURE(row.name);
  const Outcome outcome = endure(Ending::harmless, Asks::direct_writes, [row](HostileHost& host) {
    MptPlace place = true_admission(host);
    row.spoil(place);
    publish(host, true_grant(host), place);
    while (host.goes_on()) host.ring();
  });
  CHECK(outcome.asked == 0);
}

TEST_CASE("grants that change while they are read lead nowhere but into their maker's buffers", "[hostile]") {
  const bool whole = GENERATE(true, false);
  endure(Ending::harmless, Asks::direct_writes, [whole](HostileHost& host) {
    while (host.goes_on()) {
      MptGrant grant = true_grant(host);
      if (host.random().below(2) == 0) grant.window_offset = host.random().below(host.own_memory().size());
      if (host.random().below(4) == 0) grant.length = host.random().next();
      publish(host, grant);
      if (!whole) scribble(host, host.part(host.layout().mpt));
      if (!whole && host.random().below(4) == 0) scribble(host, host.part(host.layout().admissions));
      host.ring();
    }
  });
}

// ---- epochs and announcements

TEST_CASE("random scratchpads are torn announcements, and none", "[hostile]") {
  endure(Ending::harmless, [](HostileHost& host) {
    while (host.goes_on()) {
      scribble(host, host.scratchpads());
      host.ring();
    }
  });
}

TEST_CASE("a storm of new epochs voids the storming one's tags alone", "[hostile]") {
  endure(Ending::link, [](HostileHost& host) {
    while (host.goes_on()) {
      announce(host, {.epoch = Epoch{host.random().next()},
                      .echoed = host.random().below(2) == 0 ? host.link().peer_epoch() : Epoch{}});
    }
  });
}

TEST_CASE("an announcement that takes the echo or readiness back ends the epoch", "[hostile]") {
  const bool echo = GENERATE(false, true);
  endure(Ending::link, [echo](HostileHost& host) {
    Announcement what{.epoch = host.link().epoch(), .echoed = host.link().peer_epoch()};
    if (echo) what.echoed = Epoch{};
    if (!echo) what.phase = 1;
    announce(host, what);
  });
}

TEST_CASE("another version of the link's protocol makes it faulty", "[hostile]") {
  const Outcome outcome = endure(Ending::link, [](HostileHost& host) {
    announce(host, {.protocol = 0x534e'0007, .epoch = host.link().epoch(), .echoed = host.link().peer_epoch()});
  });
  CHECK(outcome.fault == "the peer speaks another version of the link protocol");
}

TEST_CASE("an honest restart is served anew, without the tags of before", "[hostile]") {
  const Outcome outcome = endure(Ending::link, [](HostileHost& host) {
    host.handshake_again(nullptr);
    host.board().count = host.link().up() ? 1 : 0;
  });
  CHECK(outcome.count == 1);
}

TEST_CASE("an anchor with anything false in it makes the link faulty", "[hostile]") {
  using Spoil = void (*)(std::span<std::byte>, SeededRandom&);
  struct Row {
    const char* name;
    Spoil spoil;
  };
  const auto row = GENERATE(values<Row>({
      {"random bytes",
       [](std::span<std::byte> anchor, SeededRandom& random) {
         for (auto& byte : anchor) byte = static_cast<std::byte>(random.next());
       }},
      {"a region beyond the window",
       [](std::span<std::byte> anchor, SeededRandom&) {
         change_anchor(anchor, [](AnchorBytes& bytes) { bytes.regions[0].offset = std::uint64_t{1} << 40U; });
       }},
      {"regions that overlap",
       [](std::span<std::byte> anchor, SeededRandom&) {
         change_anchor(anchor, [](AnchorBytes& bytes) { bytes.regions[2].offset = bytes.regions[0].offset.value(); });
       }},
      {"of other epochs",
       [](std::span<std::byte> anchor, SeededRandom& random) {
         change_anchor(anchor, [&](AnchorBytes& bytes) { bytes.epoch = random.next(); });
       }},
  }));
  CAPTURE(row.name);
  const Outcome outcome = endure(Ending::link, [row](HostileHost& host) { host.handshake_again(row.spoil); });
  CHECK(outcome.fault != "");
}

}  // namespace splitnic::fabric::hostile::memory_test
