#include "common/os/peer_socket.h"

#include <cerrno>
#include <optional>

#include "common/time.h"
#include "tests/unit/common/lingering_socket.h"

namespace splitnic::os::os_peer_socket_test {
namespace {

using std::chrono::seconds;

const std::vector<std::byte> kBytes(5, std::byte{7});

struct Pair {
  explicit Pair(bool refuse_descriptors, int type = SOCK_SEQPACKET) {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) == 0);
    peer = UniqueFd(ends[0]);
    own = PeerSocket(UniqueFd(ends[1]), refuse_descriptors);
  }
  [[nodiscard]] bool send(std::span<const std::byte> bytes) const {
    return ::send(peer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
  }
  UniqueFd peer;
  PeerSocket own;
};

/// What an ordinary last close would wait for, far beyond the time that a test permits.
constexpr int kLingerSeconds = 30;
constexpr seconds kAtOnce{10};

}  // namespace

TEST_CASE("nobody can attach descriptors to what is sent to a peer socket, if the kernel can refuse them", "[os]") {
  const Pair pair(true);
  if (!refuse_descriptors(pair.own.get())) {
    WARN("skipped: this kernel is older than Linux 6.16");
    return;
  }
  const LingeringSocket stranger(kLingerSeconds);
  CHECK_FALSE(stranger.attach_to(pair.peer.get(), kBytes));
  CHECK(pair.send(kBytes));
  std::vector<std::byte> bytes(10);
  CHECK(pair.own.receive(bytes).bytes == 5);
}

TEST_CASE("messages without descriptors arrive, and nothing and a hang-up are told apart", "[os]") {
  const bool refuse = GENERATE(true, false);
  CAPTURE(refuse);
  Pair pair(refuse);
  std::vector<std::byte> bytes(3);
  CHECK(pair.own.receive(bytes).bytes == -1);
  CHECK(errno == EAGAIN);
  REQUIRE(pair.send(kBytes));
  REQUIRE(pair.send(kBytes));
  const auto cut = pair.own.receive(bytes);
  CHECK(cut.bytes == 3);
  CHECK_FALSE(cut.attached);
  CHECK(pair.own.receive(bytes, MSG_TRUNC).bytes == 5);
  pair.peer.reset();
  CHECK(pair.own.receive(bytes).bytes == 0);
}

TEST_CASE("what is attached is not received, and closing the socket with it takes no time", "[os]") {
  Pair pair(false);
  LingeringSocket stranger(kLingerSeconds);
  REQUIRE(pair.send(kBytes));
  REQUIRE(stranger.attach_to(pair.peer.get(), kBytes));
  stranger.let_go();
  std::vector<std::byte> bytes(10);
  CHECK(pair.own.receive(bytes).bytes == 5);
  for (int again = 0; again < 2; ++again) {
    const auto second = pair.own.receive(bytes);
    CHECK(second.attached);
    CHECK(second.bytes == -1);
  }
  const Time start = monotonic_now();
  SECTION("reset") {
    errno = EPROTO;
    pair.own.reset();
    CHECK(errno == EPROTO);
  }
  SECTION("replaced") { pair.own = PeerSocket(); }
  SECTION("ended") { const PeerSocket ends(std::move(pair.own)); }
  CHECK(monotonic_now() - start < kAtOnce);
  CHECK_FALSE(pair.own);
  CHECK(stranger.closed_at_last());
}

TEST_CASE("a message is discarded with what is attached to it, and the next one arrives", "[os]") {
  const int type = GENERATE(SOCK_SEQPACKET, SOCK_DGRAM);
  const Pair pair(false, type);
  LingeringSocket stranger(kLingerSeconds);
  REQUIRE(stranger.attach_to(pair.peer.get(), kBytes));
  REQUIRE(pair.send(std::span(kBytes).first(2)));
  stranger.let_go();
  std::vector<std::byte> bytes(10);
  CHECK(pair.own.receive(bytes).attached);
  const Time start = monotonic_now();
  pair.own.discard();
  CHECK(monotonic_now() - start < kAtOnce);
  CHECK(stranger.closed_at_last());
  CHECK(pair.own.receive(bytes).bytes == 2);
}

TEST_CASE("connections that a listener has not accepted end with it at once, whatever they hold", "[os]") {
  UniqueFd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  address.ss_family = AF_UNIX;
  socklen_t bytes = sizeof(sa_family_t);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(made.get(), generic, bytes) == 0);  // a name that the kernel chooses
  REQUIRE(listen(made.get(), 1) == 0);
  bytes = sizeof address;
  REQUIRE(getsockname(made.get(), generic, &bytes) == 0);
  std::optional<PeerSocket> listener(PeerSocket(std::move(made), false));
  const UniqueFd caller(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  REQUIRE(connect(caller.get(), generic, bytes) == 0);
  LingeringSocket stranger(kLingerSeconds);
  REQUIRE(stranger.attach_to(caller.get(), kBytes));
  stranger.let_go();
  const Time start = monotonic_now();
  listener.reset();
  CHECK(monotonic_now() - start < kAtOnce);
  CHECK(stranger.closed_at_last());
}

}  // namespace splitnic::os::os_peer_socket_test
