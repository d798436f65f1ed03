// Attacks with the descriptors that a process has received, and by the way in which it ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <span>

#include "common/os/passed_descriptors.h"
#include "tests/hostile/owner.h"

namespace splitnic::fabric::hostile::process_test {
TEST_CASE("doorbells as fast as they go keep nobody from being served", "[hostile]") {
  endure(Ending::harmless, [](HostileHost& host) {
    while (host.goes_on()) host.ring();
  });
}

TEST_CASE("doorbells of any count, and an eventfd that is full, are doorbells", "[hostile]") {
  constexpr std::uint64_t kFull = std::numeric_limits<std::uint64_t>::max() - 1;
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    fcntl(host.event(), F_SETFL, fcntl(host.event(), F_GETFL) | O_NONBLOCK);
    while (host.goes_on()) {
      const std::uint64_t count = host.random().below(2) == 0 ? kFull : 1 + host.random().below(1000);
      host.board().count += write(host.event(), &count, sizeof count) == sizeof count ? 1 : 0;
    }
  });
  CHECK(outcome.count > 0);
}

TEST_CASE("nothing can be sent to the owner's end of the doorbells, with or without descriptors", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    const auto bytes = host.random_bytes(100'000);
    const std::array<int, 4> gift{host.window_descriptor(), host.window_descriptor(), host.window_descriptor(),
                                  host.window_descriptor()};
    while (host.goes_on()) {
      const auto some = std::span(bytes).first(1 + host.random().below(bytes.size()));
      host.board().count += os::send_with_descriptors(host.doorbell(), some, {}, MSG_DONTWAIT) >= 0 ? 1 : 0;
      host.board().count += os::send_with_descriptors(host.doorbell(), some.first(1), gift, MSG_DONTWAIT) >= 0 ? 1 : 0;
    }
  });
  CHECK(outcome.count == 0);
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

}  // namespace splitnic::fabric::hostile::process_test
