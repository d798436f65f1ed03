#include "fabric/bridge/link.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tests/unit/fabric/bridge_fixtures.h"
#include "tests/unit/fabric/link_records.h"

namespace splitnic::fabric::bridge_link_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::random_bytes;

LinkOptions small_options(std::uint64_t port) {
  LinkOptions options;
  options.slot_bytes = {1024, 2048};
  options.payload_bytes = {4096, 8192};
  options.port_address = PortAddress{port};
  return options;
}

/// Two links over a simulated bridge, whose programs can die, stall and come back.
class LinkPair {
 public:
  explicit LinkPair(std::uint64_t seed, SimBridgeOptions options = {}) : random_(seed), pair_(options, random_) {
    for (std::size_t i = 0; i < 2; ++i) start(i);
  }

  void start(std::size_t index) {
    links_[index] = std::make_unique<FabricLink>(pair_.end(index), small_options(0x100 + index), random_);
    links_[index]->restart();
  }
  void die(std::size_t index, bool scribble) {
    links_[index].reset();
    pair_.forget(index, scribble);
  }
  [[nodiscard]] bool alive(std::size_t index) const { return links_[index] != nullptr; }
  FabricLink& link(std::size_t index) { return *links_.at(index); }
  SimBridgePair& bridges() { return pair_; }
  SeededRandom& random() { return random_; }
  [[nodiscard]] Time now() const { return now_; }

  void advance(Duration by) {
    now_ += by;
    pair_.advance(now_);
  }
  void poll(std::size_t index) {
    if (!alive(index)) return;
    link(index).poll(now_);
    // What a session does with a link that has gone bad: begin anew.
    if (link(index).phase() == LinkPhase::faulty) link(index).restart();
  }
  [[nodiscard]] bool both_up() const {
    return alive(0) && alive(1) && links_[0]->up() && links_[1]->up() &&
           links_[0]->peer_epoch() == links_[1]->epoch() && links_[1]->peer_epoch() == links_[0]->epoch();
  }
  /// True if both come up within the time, polled every 100 us.
  bool come_up(Duration within) {
    const Time end = now_ + within;
    while (!both_up() && now_ < end) {
      advance(microseconds(100));
      poll(0);
      poll(1);
    }
    return both_up();
  }

 private:
  SeededRandom random_;
  SimBridgePair pair_;
  std::array<std::unique_ptr<FabricLink>, 2> links_;
  Time now_{};
};

/// Cells carry {sender's epoch, receiver's epoch, number, filling}: whether one is from another epoch shows.
struct Traffic {
  std::array<std::uint64_t, 2> sent{};
  std::array<std::uint64_t, 2> received{};
  std::array<std::pair<Epoch, Epoch>, 2> epochs{};

  void forget_if_new(LinkPair& pair, std::size_t index) {
    const std::pair present(pair.link(index).epoch(), pair.link(index).peer_epoch());
    if (epochs[index] == present) return;
    epochs[index] = present;
    sent[index] = received[index] = 0;
  }

  void send(LinkPair& pair, std::size_t index) {
    forget_if_new(pair, index);
    FabricLink& link = pair.link(index);
    const std::array<std::uint64_t, 3> words{link.epoch().value, link.peer_epoch().value, sent[index]};
    auto record = random_bytes(pair.random(), sizeof words + pair.random().below(900));
    std::memcpy(record.data(), words.data(), sizeof words);
    if (test::send_record(link, VirtualLane::data, record)) ++sent[index];
    link.notify();
  }

  void receive(LinkPair& pair, std::size_t index) {
    forget_if_new(pair, index);
    FabricLink& link = pair.link(index);
    while (const ReceivedCell* cell = link.front(VirtualLane::data)) {
      REQUIRE_FALSE(cell->fault.has_value());
      std::array<std::uint64_t, 3> words{};
      cell->payload.copy_out(std::as_writable_bytes(std::span(words)));
      REQUIRE(words == std::array{link.peer_epoch().value, link.epoch().value, received[index]});
      ++received[index];
      link.pop(VirtualLane::data);
    }
    link.return_room(VirtualLane::data, false);
    link.notify();
  }
};

}  // namespace

TEST_CASE("two ends shake epochs and come up with each other's addresses and places", "[fabric][link]") {
  LinkPair pair(1);
  REQUIRE(pair.come_up(milliseconds(10)));
  CHECK(pair.link(0).peer_port_address() == PortAddress{0x101});
  CHECK(pair.link(1).peer_port_address() == PortAddress{0x100});
  CHECK(pair.link(0).direct()->peer_buffers.offset == pair.link(1).buffers().offset);
  CHECK(pair.link(0).direct()->peer_mpt.bytes == pair.link(1).direct()->mpt.bytes);
  CHECK(pair.link(0).direct()->peer_admissions.offset == pair.link(1).direct()->admissions.offset);
  CHECK(pair.link(0).direct()->peer_admissions.bytes == admissions_bytes(LinkOptions{}.mpt_entries));
  CHECK(pair.link(0).incarnation() == 1);
  CHECK(pair.link(0).buffers().offset % 64 == 0);
}

TEST_CASE("a link has its incarnation at hand while it is up, and nothing else while it is not", "[fabric][link]") {
  LinkPair pair(1);
  const std::uint64_t* live = pair.link(0).live_incarnation();
  REQUIRE(live != nullptr);
  CHECK(*live == 0);
  REQUIRE(pair.come_up(milliseconds(10)));
  CHECK(*live == pair.link(0).incarnation());
  pair.bridges().cut();
  pair.poll(0);
  CHECK_FALSE(pair.link(0).up());
  CHECK(*live == 0);
  pair.bridges().restore();
  REQUIRE(pair.come_up(milliseconds(500)));
  CHECK(*live == 2);
  pair.link(0).restart();
  CHECK(*live == 0);
}

TEST_CASE("a link that takes another one's place counts on, in the same word", "[fabric][link]") {
  LinkPair pair(1);
  FabricLink& link = pair.link(0);
  std::uint64_t word = 7;
  link.keep_live_incarnation(7, &word);
  CHECK(link.live_incarnation() == &word);
  CHECK(word == 0);
  REQUIRE(pair.come_up(milliseconds(10)));
  CHECK(link.incarnation() == 8);
  CHECK(word == 8);
  link.keep_live_incarnation(8, nullptr);
  CHECK(link.live_incarnation() != &word);
  CHECK(*link.live_incarnation() == 8);
  link.restart();
  CHECK(*link.live_incarnation() == 0);
  CHECK(word == 8);
}

TEST_CASE("rings take at most a quarter of a bridge's memory, and a cell a quarter of its payload ring",
          "[fabric][link]") {
  const std::size_t bytes = GENERATE(std::size_t{64U << 10U}, std::size_t{256U << 10U}, std::size_t{1U << 20U});
  CAPTURE(bytes);
  SeededRandom random(1);
  SimBridgeOptions options;
  options.local_bytes = {bytes, bytes};
  SimBridgePair bridges(options, random);
  FabricLink first(bridges.end(0), {}, random);
  FabricLink second(bridges.end(1), {}, random);
  first.restart();
  second.restart();
  for (Time now{}; !first.up() || !second.up(); now += microseconds(100)) {
    REQUIRE(now - Time{} < std::chrono::seconds(1));
    bridges.advance(now);
    first.poll(now);
    second.poll(now);
  }
  constexpr std::size_t kRingsAt = 832;  // docs/protocol.md, "Local memory"
  constexpr std::size_t kEntries = LinkOptions{}.mpt_entries;
  const std::size_t rings = first.buffers().offset - kRingsAt - kEntries * kMptEntryBytes - admissions_bytes(kEntries);
  CHECK(rings <= bytes / 4);
  CHECK(rings > bytes / 8);
  const std::size_t longest = second.max_payload(VirtualLane::data);
  CHECK(longest >= bytes / 64);
  CHECK(4 * longest <= rings);
  REQUIRE(test::send_record(second, VirtualLane::data, random_bytes(random, longest)));
}

TEST_CASE("seeds tell both epochs and the direction", "[fabric][link]") {
  const Epoch a{0x0102030405060708};
  const Epoch b{0x1112131415161718};
  CHECK(epoch_tag(a, b) == 0xa3fce11e);
  CHECK(epoch_tag(a, b) != epoch_tag(b, a));
  CHECK(epoch_tag(a, b) != epoch_tag(a, Epoch{b.value + 1}));
  CHECK(epoch_tag(a, b) != epoch_tag(Epoch{a.value ^ std::uint64_t{1} << 63U}, b));
}

TEST_CASE("once the survivor has echoed a restarted peer's epoch, nothing it wrote before lands any more",
          "[fabric][link]") {
  SimBridgeOptions slow;
  slow.scratchpad_delay_max = Duration{};
  slow.write_delay_max = milliseconds(100);
  slow.doorbell_spurious_permille = 0;
  LinkPair pair(5, slow);
  REQUIRE(pair.come_up(milliseconds(500)));
  FabricLink& survivor = pair.link(0);
  for (int i = 0; i < 5; ++i) REQUIRE(test::send_record(survivor, VirtualLane::data, random_bytes(pair.random(), 100)));
  pair.die(1, true);
  pair.start(1);
  pair.advance(microseconds(1));
  pair.poll(0);
  REQUIRE(survivor.phase() == LinkPhase::init);
  REQUIRE(survivor.peer_epoch() == pair.link(1).epoch());
  const PeerMemory memory = pair.bridges().end(1).local_memory();
  std::vector<std::byte> before(memory.size());
  memory.copy_out(0, before);
  pair.advance(std::chrono::seconds(1));
  std::vector<std::byte> after(memory.size());
  memory.copy_out(0, after);
  CHECK((before == after));
}

TEST_CASE(
    "whatever dies, restarts, stalls or is cut in whatever order, both ends come up on the same epochs and no record "
    "of another epoch is ever seen",
    "[fabric][link]") {
  for (std::uint64_t seed = 1; seed <= test::seeds(800); ++seed) {
    INFO("seed " << seed);
    LinkPair pair(seed);
    Traffic traffic;
    SeededRandom& random = pair.random();
    for (int step = 0; step < 120; ++step) {
      const std::size_t index = random.below(2);
      const std::uint64_t what = random.below(100);
      if (what < 4) {
        pair.die(index, random.below(2) == 0);
      } else if (what < 12) {
        if (!pair.alive(index)) pair.start(index);
      } else if (what < 15) {
        if (pair.alive(index)) pair.link(index).restart();
      } else if (what < 17) {
        pair.bridges().cut();
      } else if (what < 24) {
        pair.bridges().restore();
      } else if (what < 55) {
        pair.poll(index);
      } else if (what < 75) {
        if (pair.alive(index) && pair.link(index).up()) traffic.send(pair, index);
      } else if (what < 90) {
        if (pair.alive(index) && pair.link(index).up()) traffic.receive(pair, index);
      } else {
        pair.advance(microseconds(random.below(100)));
      }
    }
    pair.bridges().restore();
    for (std::size_t i = 0; i < 2; ++i) {
      if (!pair.alive(i)) pair.start(i);
    }
    REQUIRE(pair.come_up(milliseconds(500)));
    for (int i = 0; i < 50; ++i) {
      traffic.send(pair, 0);
      traffic.send(pair, 1);
      pair.advance(microseconds(50));
      traffic.receive(pair, 0);
      traffic.receive(pair, 1);
    }
    REQUIRE(traffic.received[0] == traffic.sent[1]);
    REQUIRE(traffic.received[1] == traffic.sent[0]);
  }
}

TEST_CASE("what was sent before a hang-up is received, and then the link is down", "[fabric][link]") {
  const bool restored = GENERATE(false, true);
  CAPTURE(restored);
  LinkPair pair(1);
  REQUIRE(pair.come_up(milliseconds(10)));
  FabricLink& receiver = pair.link(1);
  for (std::size_t bytes = 100; bytes <= 300; bytes += 100) {
    REQUIRE(test::send_record(pair.link(0), VirtualLane::data, std::vector<std::byte>(bytes)));
  }
  pair.link(0).notify();
  pair.advance(milliseconds(1));
  pair.bridges().cut();
  pair.poll(1);
  if (restored) {
    pair.bridges().restore();
    pair.poll(1);
  }
  for (std::size_t bytes = 100; bytes <= 300; bytes += 100) {
    REQUIRE(receiver.up());
    const auto record = test::take_record(receiver, VirtualLane::data);
    REQUIRE(record);
    CHECK(record->size() == bytes);
    pair.poll(1);
  }
  CHECK_FALSE(receiver.up());
  pair.bridges().restore();
  CHECK(pair.come_up(milliseconds(500)));
}

TEST_CASE("what a peer sent is received although it hung up before this end looked", "[fabric][link]") {
  SeededRandom random(1);
  auto bridges = shm_pair(test::kTestBytes, test::kTestBytes);
  REQUIRE(bridges.has_value());
  FabricLink receiver(*bridges->second, {}, random);
  Time now{};
  {
    FabricLink sender(*bridges->first, {}, random);
    sender.restart();
    receiver.restart();
    const auto sender_follows = [&] {
      for (int i = 0; i < 10; ++i) sender.poll(now += milliseconds(1));
    };
    // Until the sender is up; the receiver is ready, and has not seen yet that the sender is.
    for (int i = 0; i < 10 && !sender.up(); ++i) {
      sender_follows();
      if (!sender.up()) receiver.poll(now);
    }
    REQUIRE(sender.up());
    REQUIRE_FALSE(receiver.up());
    REQUIRE(test::send_record(sender, VirtualLane::data, std::vector<std::byte>(100)));
    sender.notify();
  }
  bridges->first.reset();
  receiver.poll(now);
  REQUIRE(receiver.up());
  CHECK(test::take_record(receiver, VirtualLane::data)->size() == 100);
  receiver.poll(now);
  CHECK_FALSE(receiver.up());
}

TEST_CASE("last cells are received however slowly they are taken", "[fabric][link]") {
  LinkPair pair(1);
  REQUIRE(pair.come_up(milliseconds(10)));
  for (int i = 0; i < 3; ++i) {
    REQUIRE(test::send_record(pair.link(0), VirtualLane::data, std::vector<std::byte>(100)));
  }
  pair.link(0).notify();
  pair.advance(milliseconds(1));
  pair.bridges().cut();
  pair.poll(1);
  for (int i = 0; i < 3; ++i) {
    pair.advance(milliseconds(99));
    REQUIRE(test::take_record(pair.link(1), VirtualLane::data));
    pair.poll(1);
  }
  CHECK_FALSE(pair.link(1).up());
}

TEST_CASE("cells that nobody takes do not keep a link up whose peer has hung up", "[fabric][link]") {
  LinkPair pair(1);
  REQUIRE(pair.come_up(milliseconds(10)));
  REQUIRE(test::send_record(pair.link(0), VirtualLane::data, std::vector<std::byte>(100)));
  pair.link(0).notify();
  pair.advance(milliseconds(1));
  pair.bridges().cut();
  pair.poll(1);
  CHECK(pair.link(1).up());
  pair.advance(milliseconds(99));
  pair.poll(1);
  CHECK(pair.link(1).up());
  pair.advance(milliseconds(1));
  pair.poll(1);
  CHECK_FALSE(pair.link(1).up());
}

}  // namespace splitnic::fabric::bridge_link_test
