// What a peer attaches to the set-up of a bridge and to its doorbells, where the peer is one among many.
#include <sys/socket.h>

#include <optional>

#include "fabric/bridge/shm_doorbell.h"
#include "tests/unit/common/lingering_socket.h"
#include "tests/unit/fabric/fake_unit.h"

namespace splitnic::fabric::shm_closes_elsewhere_test {
namespace {

using test::FakeUnit;

/// What an ordinary last close would wait for, far beyond the time that a test permits.
constexpr int kLingerSeconds = 30;
constexpr std::chrono::seconds kAtOnce{10};
const std::vector<std::byte> kBell(1, std::byte{1});

/// The peers that an endnode calls.
struct Peer : FakeUnit {
  Peer() : FakeUnit({.closes_elsewhere = true}) {}
  /// From now on the host alone has what was sent.
  void let_go() {
    stranger.let_go();
    connection.reset();
  }
  os::LingeringSocket stranger{kLingerSeconds};
};

/// Both ends of a doorbell between a peer, which rings, and a host.
struct Bell {
  explicit Bell(HostDoorbell::Options options) {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    peer = os::UniqueFd(ends[0]);
    host.emplace(os::UniqueFd(ends[1]), os::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), options);
  }
  void ring() const { REQUIRE(send(peer.get(), kBell.data(), kBell.size(), 0) == 1); }
  os::UniqueFd peer;
  std::optional<HostDoorbell> host;
};

}  // namespace

TEST_CASE("a lingering socket in the reply to an endnode delays neither the verdict nor the end of the attempt",
          "[fabric][shm]") {
  struct Row {
    const char* what;
    const char* says;
    void (*send)(Peer&);
  };
  const Row rows[] = {
      {"as memory", "not a memfd",
       [](Peer& p) {
         p.send_reply({p.stranger.descriptor(), p.memory[1].get(), p.bell.get(), p.event.get()});
       }},
      {"as the other memory", "not a memfd",
       [](Peer& p) {
         p.send_reply({p.memory[0].get(), p.stranger.descriptor(), p.bell.get(), p.event.get()});
       }},
      {"as the doorbell", "not a packet socket",
       [](Peer& p) {
         p.send_reply({p.memory[0].get(), p.memory[1].get(), p.stranger.descriptor(), p.event.get()});
       }},
      {"as the doorbell to ring", "not an eventfd",
       [](Peer& p) {
         p.send_reply({p.memory[0].get(), p.memory[1].get(), p.bell.get(), p.stranger.descriptor()});
       }},
      {"as one too many", "more than 4",
       [](Peer& p) {
         auto all = p.descriptors();
         all.push_back(p.stranger.descriptor());
         p.send_reply(all);
       }},
      {"many times", "more than 4",
       [](Peer& p) { p.send_reply(std::vector<int>(os::kMaxPassedDescriptors, p.stranger.descriptor())); }},
      {"with a refusal", "does not permit",
       [](Peer& p) { p.refuse(static_cast<std::uint32_t>(ShmSetupStatus::not_permitted), {p.stranger.descriptor()}); }},
      {"with the first byte of a reply that does not come", "hung up during set-up",
       [](Peer& p) { p.send_reply({p.stranger.descriptor()}, 1); }},
  };
  for (const auto& [what, says, send] : rows) {
    CAPTURE(what);
    Peer peer;
    send(peer);
    peer.let_go();
    const Time start = monotonic_now();
    auto verdict = peer.connector->poll(Time{});
    if (!verdict) verdict = peer.connector->poll(Time{});
    REQUIRE(verdict.has_value());
    REQUIRE_FALSE(verdict->has_value());
    CHECK_THAT(verdict->error().message, Catch::Contains(says));
    peer.connector.reset();
    CHECK(monotonic_now() - start < kAtOnce);
    CHECK(peer.stranger.closed_at_last());
  }
}

TEST_CASE("what a peer sends behind its reply is closed elsewhere", "[fabric][shm]") {
  Peer peer;
  peer.send_reply(peer.descriptors());
  REQUIRE(peer.stranger.attach_to(peer.connection.get(), kBell));
  peer.let_go();
  const Time start = monotonic_now();
  CHECK(peer.verdict().empty());
  peer.connector.reset();
  CHECK(monotonic_now() - start < kAtOnce);
  CHECK(peer.stranger.closed_at_last());
}

TEST_CASE("a lingering socket that waits in a peer's doorbell is a hang-up, and the bridge ends at once",
          "[fabric][shm]") {
  Peer peer;
  REQUIRE(peer.stranger.attach_to(peer.own_bell.get(), kBell));
  peer.send_reply(peer.descriptors());
  peer.bell.reset();
  peer.let_go();
  const Time start = monotonic_now();
  auto verdict = peer.connector->poll(Time{});
  REQUIRE(verdict.has_value());
  REQUIRE(verdict->has_value());
  auto bridge = std::move(**verdict);
  CHECK_FALSE(bridge->take_doorbells());
  CHECK(bridge->link() == LinkState::down);
  bridge.reset();
  CHECK(monotonic_now() - start < kAtOnce);
  CHECK(peer.stranger.closed_at_last());
}

TEST_CASE("on a kernel that can, a peer attaches nothing to the doorbells of a bridge that is made", "[fabric][shm]") {
  Peer peer;
  peer.send_reply(peer.descriptors());
  CHECK(peer.verdict().empty());
  if (!os::refuse_descriptors(peer.bell.get())) {
    WARN("skipped: this kernel is older than Linux 6.16");
    return;
  }
  CHECK_FALSE(peer.stranger.attach_to(peer.own_bell.get(), kBell));
}

TEST_CASE("a host that looks at each doorbell first hears as many, and hang-ups", "[fabric][shm]") {
  const bool refuses = GENERATE(true, false);
  CAPTURE(refuses);
  Bell bell({.refuses = refuses, .closes_elsewhere = true});
  for (int round = 0; round < 2; ++round) {
    CHECK_FALSE(bell.host->take());
    for (int i = 0; i < 3; ++i) bell.ring();
    CHECK(bell.host->take());
    CHECK_FALSE(bell.host->take());
    CHECK_FALSE(bell.host->hung_up());
  }
  SECTION("the other end is closed") { bell.peer.reset(); }
  SECTION("an empty datagram") { REQUIRE(send(bell.peer.get(), nullptr, 0, 0) == 0); }
  CHECK_FALSE(bell.host->take());
  CHECK(bell.host->hung_up());
}

TEST_CASE("a peer that attaches a lingering socket to a later doorbell has hung up, on older kernels too",
          "[fabric][shm]") {
  Bell bell({.refuses = false, .closes_elsewhere = true});
  bell.ring();
  CHECK(bell.host->take());
  CHECK_FALSE(bell.host->take());
  os::LingeringSocket stranger(kLingerSeconds);
  bell.ring();
  REQUIRE(stranger.attach_to(bell.peer.get(), kBell));
  stranger.let_go();
  const Time start = monotonic_now();
  CHECK(bell.host->take());  // the one before it
  CHECK(bell.host->hung_up());
  bell.host.reset();
  CHECK(monotonic_now() - start < kAtOnce);
  CHECK(stranger.closed_at_last());
}

}  // namespace splitnic::fabric::shm_closes_elsewhere_test
