#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "fabric/adapter/path_turns.h"
#include "threads_fixtures.h"

/// With many paths, polls and sleeps do work for those where something happens.
namespace splitnic::fabric::test::adapter_turns_test {
namespace {

/// A link that is up and silent, and counts what an adapter asks of it.
class CountedLink final : public CellLink {
 public:
  std::size_t polls = 0;
  std::size_t looks = 0;
  std::size_t arms = 0;
  std::size_t rearms = 0;
  std::size_t disarms = 0;
  mutable std::size_t deadlines = 0;
  bool armed = false;
  bool doorbell = false;  // the next poll takes it
  bool waits = false;     // for prepare_sleep() and rearm(): something has come in

  [[nodiscard]] LinkProperties properties() const override { return {.lossless = true, .corrupts = false}; }
  [[nodiscard]] bool up() const override { return true; }
  [[nodiscard]] std::uint64_t incarnation() const override { return 1; }
  [[nodiscard]] PortAddress port_address() const override { return PortAddress{1}; }
  [[nodiscard]] PortAddress peer_port_address() const override { return PortAddress{2}; }
  [[nodiscard]] std::size_t max_payload(VirtualLane /*lane*/) const override { return 4096; }
  [[nodiscard]] bool claim(VirtualLane /*lane*/, const Cell& /*cell*/, std::size_t /*payload_bytes*/,
                           ClaimedPayload& /*to*/) override {
    return false;
  }
  std::uint64_t release(VirtualLane /*lane*/, const Cell& /*cell*/, std::uint32_t& /*packet_crc*/) override {
    return 0;
  }
  [[nodiscard]] bool wants_room(VirtualLane /*lane*/) const override { return false; }
  [[nodiscard]] bool drained(VirtualLane /*lane*/) override { return true; }
  [[nodiscard]] const ReceivedCell* front(VirtualLane /*lane*/) override {
    ++looks;
    return nullptr;
  }
  void pop(VirtualLane /*lane*/) override {}
  bool return_room(VirtualLane /*lane*/, bool /*all*/) override { return false; }
  void notify() override {}
  std::size_t poll(Time /*now*/) override {
    ++polls;
    if (doorbell) armed = false;
    doorbell = false;
    return 0;
  }
  [[nodiscard]] bool prepare_sleep() override {
    ++arms;
    armed = !waits;
    return armed;
  }
  [[nodiscard]] bool rearm() override {
    ++rearms;
    armed = !waits;
    return armed;
  }
  [[nodiscard]] bool stays_armed() const override { return armed; }
  void disarm() override {
    ++disarms;
    armed = false;
  }
  [[nodiscard]] Time next_deadline(Time /*now*/, bool /*outstanding*/) const override {
    ++deadlines;
    return kNever;
  }
  [[nodiscard]] int descriptor() const override { return -1; }
};

constexpr std::size_t kPaths = 1000;
constexpr std::size_t kBusy = 10;

/// An adapter with a thousand paths.
struct Thousand {
  Thousand() : links(kPaths), adapter({}, random) {
    for (CountedLink& link : links) REQUIRE(adapter.attach(link).has_value());
    for (int i = 0; i < 1000; ++i) poll();  // for longer than paths stay busy
    forget();
  }
  void poll() {
    now += step;
    if (!owner_polls_links) adapter.poll_links(now);
    adapter.poll(now);
  }
  void poll_with_busy() {
    for (std::size_t i = 0; i < kBusy; ++i) adapter.attend(PathNumber{static_cast<std::uint32_t>(100 * i + 1)});
    poll();
  }
  void forget() {
    for (CountedLink& link : links) {
      link.polls = link.looks = link.arms = link.rearms = link.disarms = link.deadlines = 0;
    }
  }
  [[nodiscard]] std::size_t sum(std::size_t CountedLink::*what) const {
    std::size_t all = 0;
    for (const CountedLink& link : links) all += link.*what;
    return all;
  }
  [[nodiscard]] std::size_t deadlines() const {
    std::size_t all = 0;
    for (const CountedLink& link : links) all += link.deadlines;
    return all;
  }

  std::vector<CountedLink> links;
  SeededRandom random{5};
  ChannelAdapter adapter;
  Time now{};
  Duration step = microseconds(1);
  bool owner_polls_links = false;
};

}  // namespace

TEST_CASE("a poll looks at the busy paths, and now and then at an idle one", "[fabric][adapter][turns]") {
  Thousand of;
  std::size_t idle = 0;
  SECTION("each 100 us, where the links are armed") { idle = 2000 / 100; }
  SECTION("each 4 us, where the owner of the adapter polls the links") {
    of.owner_polls_links = true;
    idle = 2000 / 4;
  }
  for (int i = 0; i < 600; ++i) of.poll_with_busy();
  of.forget();
  for (int i = 0; i < 2000; ++i) of.poll_with_busy();
  CHECK(of.links[0].looks == 2 * 2000);  // at each of two lanes
  CHECK(of.sum(&CountedLink::looks) <= 2 * (kBusy * 2000 + idle));
  CHECK(of.sum(&CountedLink::looks) >= 2 * (kBusy * 2000 + idle - kBusy));  // the turn of a busy one is left out
  CHECK(of.sum(&CountedLink::polls) == (of.owner_polls_links ? 0 : of.sum(&CountedLink::looks) / 2));
}

TEST_CASE("every idle path has its turn", "[fabric][adapter][turns]") {
  Thousand of;
  SECTION("while others are busy: within 100 us for each path") {
    of.step = microseconds(100);
    for (std::size_t i = 0; i < kPaths + 1; ++i) of.poll_with_busy();
  }
  SECTION("while others are busy, and nobody arms links: within 4 us for each path") {
    of.step = microseconds(4);
    of.owner_polls_links = true;
    for (std::size_t i = 0; i < kPaths + 1; ++i) of.poll_with_busy();
  }
  SECTION("while none is: sixteen at each poll") {
    for (std::size_t i = 0; i < (kPaths + 15) / 16; ++i) of.poll();
    CHECK(of.sum(&CountedLink::looks) <= 2 * (kPaths + 15));
  }
  CHECK(std::ranges::none_of(of.links, [](const CountedLink& link) { return link.looks == 0; }));
}

TEST_CASE("a path is looked at from the poll after it was attended, for half a millisecond",
          "[fabric][adapter][turns]") {
  Thousand of;
  of.adapter.attend(PathNumber{500});
  for (int i = 0; i < 500; ++i) of.poll();
  CHECK(of.links[499].polls == 500);
  for (int i = 0; i < 100; ++i) of.poll();
  CHECK(of.links[499].polls < 600);
}

TEST_CASE("a sleep arms the links of busy paths alone, as others stay armed", "[fabric][adapter][turns]") {
  Thousand of;
  CHECK(std::ranges::all_of(of.links, &CountedLink::armed));  // since they are idle
  REQUIRE(of.adapter.prepare_sleep());
  CHECK(of.sum(&CountedLink::arms) == 0);
  of.adapter.disarm();
  for (int i = 0; i < 600; ++i) of.poll_with_busy();
  CHECK(of.links[0].disarms > 0);
  of.forget();

  REQUIRE(of.adapter.prepare_sleep());
  CHECK(of.sum(&CountedLink::arms) == kBusy);
  CHECK(of.adapter.next_link_deadline(of.now) == kNever);
  CHECK(of.deadlines() == kBusy);
  REQUIRE(of.adapter.rearm());
  CHECK(of.sum(&CountedLink::rearms) == kBusy);
  of.adapter.disarm();
  CHECK(of.sum(&CountedLink::disarms) == kBusy);
  CHECK(std::ranges::count_if(of.links, [](const CountedLink& link) { return link.armed; }) == kPaths - kBusy);

  REQUIRE(of.adapter.prepare_sleep());  // no poll has looked at the busy links meanwhile
  CHECK(of.sum(&CountedLink::arms) == 2 * kBusy);
  CHECK(std::ranges::all_of(of.links, &CountedLink::armed));
}

TEST_CASE("a link whose doorbell a poll has taken is armed again at the next sleep", "[fabric][adapter][turns]") {
  Thousand of;
  REQUIRE(of.adapter.prepare_sleep());
  of.adapter.disarm();
  of.links[700].doorbell = true;
  for (std::size_t i = 0; i < kPaths; ++i) of.poll();
  of.forget();
  REQUIRE(of.adapter.prepare_sleep());
  CHECK(of.sum(&CountedLink::arms) == 1);
  CHECK(of.links[700].armed);
}

TEST_CASE("a path whose link finds something when it is armed does not become idle", "[fabric][adapter][turns]") {
  Thousand of;
  of.adapter.attend(PathNumber{300});
  of.links[299].waits = true;
  for (int i = 0; i < 800; ++i) of.poll();
  CHECK(of.links[299].polls == 800);
  CHECK(of.links[299].arms == 1);
}

TEST_CASE("a link that finds something keeps the adapter awake, with no busy link armed", "[fabric][adapter][turns]") {
  Thousand of;
  REQUIRE(of.adapter.prepare_sleep());
  SECTION("when it is armed") {
    of.adapter.disarm();
    for (int i = 0; i < 600; ++i) of.poll_with_busy();
    of.links[200].waits = true;
    REQUIRE_FALSE(of.adapter.prepare_sleep());
  }
  SECTION("when it is armed again") {
    of.adapter.attend(PathNumber{201});
    of.links[200].waits = true;
    REQUIRE_FALSE(of.adapter.rearm());
    of.adapter.disarm();
  }
  for (std::size_t i = 0; i < kBusy; ++i) CHECK((!of.links[100 * i].armed || of.links[100 * i].disarms == 0));
  CHECK_FALSE(of.links[200].armed);
  of.forget();
  of.poll();
  CHECK(of.links[200].looks == 2);
}

namespace {

constexpr std::size_t kPeers = 40;

/// A program that sleeps on the doorbells of forty bridges.
struct Sleeper {
  Sleeper() : program({}, random), memory(64) {
    const ProtectionDomain domain = program.allocate_domain();
    completions = program.create_completion_queue(256);
    tag = program.register_memory(domain, memory, kThreadRights).value();
    for (auto& peer : peers) {
      peer.ends = linked_ends();
      peer.path = program.attach(*peer.ends[0]).value();
      peer.random = std::make_unique<SeededRandom>(6);
      peer.adapter = std::make_unique<ChannelAdapter>(*peer.ends[1], AdapterOptions{}, *peer.random);
    }
    for (int i = 0; i < 1000 && !std::ranges::all_of(peers, [](const Peer& peer) { return peer.ends[0]->up(); }); ++i) {
      step();
    }
    for (auto& peer : peers) connect(peer, domain);
  }
  struct Peer {
    std::array<std::shared_ptr<CellLink>, 2> ends;
    PathNumber path{};
    QpNumber programs{};
    std::unique_ptr<SeededRandom> random;
    std::unique_ptr<ChannelAdapter> adapter;
    QpNumber number{};
  };

  void connect(Peer& peer, ProtectionDomain domain) {
    QueuePairAttributes with;
    with.domain = domain;
    with.send_completions = with.receive_completions = completions;
    peer.programs = program.create_queue_pair(with).value();
    with.domain = peer.adapter->allocate_domain();
    with.send_completions = with.receive_completions = peer.adapter->create_completion_queue(64);
    peer.number = peer.adapter->create_queue_pair(with).value();
    QueuePairPeer to{peer.number, 1, 1};
    to.path = peer.path;
    REQUIRE(program.connect(peer.programs, to) == Status::ok);
    REQUIRE(peer.adapter->connect(peer.number, {peer.programs, 1, 1}) == Status::ok);
  }
  void step() {
    now += microseconds(10);
    for (auto& peer : peers) poll(peer);
    program.poll_links(now);
    program.poll(now);
  }
  void poll(Peer& peer) {
    peer.ends[1]->poll(now);
    peer.adapter->poll(now);
  }
  /// A message without bytes.
  void send(Peer& peer) {
    REQUIRE(program.post_receive(peer.programs, {}) == Status::ok);
    WorkRequest request;
    REQUIRE(peer.adapter->post_send(peer.number, request) == Status::ok);
    poll(peer);
  }
  [[nodiscard]] bool sleeps() {
    for (int i = 0; i < 1000; ++i) {
      step();
      if (program.prepare_sleep()) return true;
    }
    return false;
  }
  std::size_t take() {
    std::array<Completion, 64> done;
    return program.poll_completions(completions, done);
  }

  SeededRandom random{7};
  std::array<Peer, kPeers> peers;
  ChannelAdapter program;
  std::vector<std::byte> memory;
  CqNumber completions{};
  Stag tag{};
  Time now{};
};

}  // namespace

TEST_CASE("a program that sleeps on many bridges is rung by every peer, however long that was idle",
          "[fabric][adapter][turns][sleep]") {
  Sleeper sleeper;
  REQUIRE(sleeper.sleeps());
  SeededRandom draws(8);
  for (int round = 0; round < 500; ++round) {
    INFO("round " << round);
    auto& peer = sleeper.peers[static_cast<std::size_t>(draws.below(kPeers))];
    const bool awake = draws.below(3) == 0;
    if (awake) sleeper.program.disarm();
    if (draws.below(2) == 0) {  // awake, it may find the message in turn or only when it would sleep again
      sleeper.now += microseconds(draws.below(1000));
    }
    sleeper.send(peer);
    if (!awake) {
      REQUIRE(is_readable(peer.ends[0]->descriptor()));
      sleeper.program.disarm();
      sleeper.program.attend(peer.path);
      sleeper.program.poll_links(sleeper.now);
      sleeper.program.poll(sleeper.now);
      CHECK(sleeper.take() == 1);
      REQUIRE(sleeper.sleeps());
      continue;
    }
    std::size_t taken = 0;
    for (int i = 0; i < 100 && taken == 0; ++i) {
      sleeper.program.poll_links(sleeper.now);
      sleeper.program.poll(sleeper.now);
      taken = sleeper.take();
      // The doorbell of a link that stayed armed would end the sleep; a link that did not finds the message.
      if (taken == 0 && sleeper.program.prepare_sleep()) {
        REQUIRE(is_readable(peer.ends[0]->descriptor()));
        sleeper.program.disarm();
        sleeper.program.attend(peer.path);
      }
    }
    CHECK(taken == 1);
    REQUIRE(sleeper.sleeps());
  }
}

}  // namespace splitnic::fabric::test::adapter_turns_test
