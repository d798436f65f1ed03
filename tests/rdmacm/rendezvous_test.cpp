// The sockets of connection management against ends that attach descriptors.
#include "fabric/rdmacm/rendezvous.h"

#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "common/os/unix_address.h"
#include "common/time.h"
#include "tests/rdmacm/manager.h"
#include "tests/unit/common/lingering_socket.h"
#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::rdmacm::testing::rendezvous_test {
namespace {

constexpr int kLingerSeconds = 30;
constexpr std::chrono::seconds kAtOnce{10};
const std::vector<std::byte> kRubbish(1);

bool kernel_refuses() {
  const os::UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (os::refuse_descriptors(probe.get())) return true;
  WARN("skipped: this kernel is older than Linux 6.16");
  return false;
}

os::UniqueFd called(const std::string& path) {
  os::UniqueFd caller(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const os::UnixAddress to(path);
  REQUIRE(::connect(caller.get(), to.get(), os::UnixAddress::size()) == 0);
  return caller;
}

TEST_CASE("neither end of a connection can attach descriptors to what it sends to the other", "[rdmacm]") {
  if (!kernel_refuses()) return;
  const os::TemporaryDirectory directory;
  SystemRandom random;
  const auto bindings = Bindings::open(directory.path());
  REQUIRE(bindings);
  Binding binding{Space::tcp, any_ip4()};
  REQUIRE((*bindings)->take(binding, random) == 0);
  const os::PeerSocket listener = listen_at((*bindings)->socket_path(binding));
  REQUIRE(listener);
  Line line;
  REQUIRE(call(**bindings, Space::tcp, binding.address, line) == Call::made);
  const os::LingeringSocket stranger(kLingerSeconds);
  CHECK_FALSE(stranger.attach_to(line.socket.get(), kRubbish));  // not accepted yet
  const auto accepted = accept_from(listener.get());
  REQUIRE(accepted);
  CHECK_FALSE(stranger.attach_to(line.socket.get(), kRubbish));
  CHECK_FALSE(stranger.attach_to(accepted->socket.get(), kRubbish));
}

TEST_CASE("a caller that attaches a lingering socket stops neither the listener nor the connection manager",
          "[rdmacm]") {
  Channel events;
  Channel client_events;
  Id listener(events);
  listener.listen();
  const auto address = address_of(rdma_get_local_addr(listener.id));
  REQUIRE(address);
  const os::UniqueFd caller = called(fabric_folder() + "/" + socket_name({Space::tcp, *address}));
  os::LingeringSocket stranger(kLingerSeconds);
  static_cast<void>(stranger.attach_to(caller.get(), kRubbish));  // a kernel that can refuses it
  stranger.let_go();
  const Time start = monotonic_now();
  Id client(client_events);
  client.call(client_events, listener.number());
  const Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  CHECK(monotonic_now() - start < kAtOnce);
  CHECK(stranger.closed_at_last());
}

TEST_CASE("a record with a lingering socket is garbage, and its line ends at once, on older kernels too", "[rdmacm]") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const os::UniqueFd other(ends[0]);
  Line line{os::PeerSocket(os::UniqueFd(ends[1]), false), {}};
  Record sent;
  sent.kind = RecordKind::ready;
  const RecordBytes bytes = encode(sent);
  os::LingeringSocket stranger(kLingerSeconds);
  REQUIRE(stranger.attach_to(other.get(), std::as_bytes(std::span(&bytes, 1))));
  stranger.let_go();
  const Time start = monotonic_now();
  Record record;
  CHECK(hear(line, record) == Heard::garbage);
  line = {};
  CHECK(monotonic_now() - start < kAtOnce);
  CHECK(stranger.closed_at_last());
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::rendezvous_test
