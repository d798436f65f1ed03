// Attacks with the descriptors that a process has received, and by the way in which it ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "tests/hostile/owner.h"

// Included last: Catch2 redefines CHECK, which common/check.h defines too.
#include <catch2/catch.hpp>

namespace splitnic::fabric::hostile {
namespace {

/// Rings with descriptors attached, which the owner might leak.
void ring_with_descriptors(int doorbell, int descriptor) {
  char bell = 1;
  iovec piece{&bell, sizeof bell};
  std::array<int, 4> gift;
  gift.fill(descriptor);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof gift)> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof gift);
  std::memcpy(CMSG_DATA(header), gift.data(), sizeof gift);
  static_cast<void>(sendmsg(doorbell, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace

TEST_CASE("doorbells as fast as they go keep nobody from being served", "[hostile]") {
  endure(Ending::harmless, [](HostileHost& host) {
    while (host.goes_on()) host.ring();
  });
}

TEST_CASE("doorbells of any size, and with descriptors, are doorbells", "[hostile]") {
  endure(Ending::harmless, [](HostileHost& host) {
    const auto bytes = host.random_bytes(100'000);
    while (host.goes_on()) {
      static_cast<void>(
          send(host.doorbell(), bytes.data(), 1 + host.random().below(bytes.size()), MSG_DONTWAIT | MSG_NOSIGNAL));
      ring_with_descriptors(host.doorbell(), host.window_descriptor());
    }
  });
}

TEST_CASE("hanging up the doorbells ends the session", "[hostile]") {
  endure(Ending::link, [](HostileHost& host) { shutdown(host.doorbell(), SHUT_RDWR); });
}

TEST_CASE("the shared memory can't be cut short, and holes in it are zeros", "[hostile]") {
  const Outcome outcome = endure(Ending::either_way, [](HostileHost& host) {
    const auto bytes = static_cast<off_t>(host.window().size() + ShmMemory::kHeaderBytes);
    host.board().count += ftruncate(host.window_descriptor(), 0) == 0 ? 1 : 0;
    host.board().count += ftruncate(host.window_descriptor(), 2 * bytes) == 0 ? 1 : 0;
    host.board().count += fcntl(host.window_descriptor(), F_ADD_SEALS, F_SEAL_WRITE) == 0 ? 1 : 0;
    while (host.goes_on()) {
      fallocate(host.window_descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes);
    }
  });
  CHECK(outcome.count == 0);
}

TEST_CASE("a hostile initiator that stops in the midst of a message keeps nobody waiting", "[hostile]") {
  endure(Ending::harmless, [](HostileHost& host) {
    host.put(host.cell(Opcode::write_first, host.owner().open, 0, 16U << 10U), host.random_bytes(256));
  });
}

TEST_CASE("a hostile initiator killed in the midst of its stores takes nobody along", "[hostile]") {
  const Outcome outcome = endure(Ending::link, [](HostileHost& host) {
    host.put(host.cell(Opcode::write_first, host.owner().open, 0, 16U << 10U), host.random_bytes(256));
    host.ring();
    host.board().stage.store(Stage::attacked);
    kill(getpid(), SIGKILL);
  });
  CHECK(outcome.counters.terminates_sent == 0);
}

}  // namespace splitnic::fabric::hostile
