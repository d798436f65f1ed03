#include "common/os/message_io.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <utility>

#include "common/os/unique_fd.h"

namespace splitnic::os::os_message_io_test {
namespace {

std::pair<UniqueFd, UniqueFd> pair_of(int type) {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST_CASE("what a peer sent before it hung up comes before the hang-up", "[common][message_io]") {
  for (const bool leaves_bytes_unread : {false, true}) {
    CAPTURE(leaves_bytes_unread);
    auto [here, there] = pair_of(SOCK_STREAM);
    if (leaves_bytes_unread) REQUIRE(send_bytes(here.get(), bytes_of("hello"), 0) == 5);
    REQUIRE(send_bytes(there.get(), bytes_of("reply"), 0) == 5);
    there.reset();
    std::array<std::byte, 16> room{};
    CHECK(receive_bytes(here.get(), room, MSG_DONTWAIT) == 5);
    CHECK(receive_bytes(here.get(), room, MSG_DONTWAIT) == 0);
  }
  auto [here, there] = pair_of(SOCK_STREAM);
  REQUIRE(send_bytes(here.get(), bytes_of("hello"), 0) == 5);
  there.reset();
  std::array<std::byte, 16> room{};
  CHECK(receive_bytes(here.get(), room, MSG_DONTWAIT) == -1);
  CHECK(errno == ECONNRESET);
}

TEST_CASE("datagrams keep their lengths, and an empty one is one", "[common][message_io]") {
  auto [here, there] = pair_of(SOCK_SEQPACKET);
  CHECK(send_bytes(here.get(), bytes_of("four"), 0) == 4);
  CHECK(send_bytes(here.get(), {}, 0) == 0);
  CHECK(events_now(there.get(), POLLIN) == POLLIN);
  std::array<std::byte, 2> room{};
  CHECK(receive_bytes(there.get(), room, MSG_TRUNC) == 4);
  CHECK(receive_bytes(there.get(), room, 0) == 0);
  CHECK(receive_bytes(there.get(), room, MSG_DONTWAIT) == -1);
  CHECK(errno == EAGAIN);
  CHECK(events_now(there.get(), POLLIN) == 0);
  there.reset();
  CHECK(send_bytes(here.get(), bytes_of("late"), 0) == -1);  // and no SIGPIPE
  CHECK(errno == EPIPE);
}

TEST_CASE("reading at an offset leaves the file's own offset", "[common][message_io]") {
  const UniqueFd file(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 4> first{};
  std::array<std::byte, 4> again{};
  REQUIRE(read_some_at(file.get(), first, 0) == 4);
  REQUIRE(read_some(file.get(), again) == 4);
  CHECK(first == again);
}

}  // namespace
}  // namespace splitnic::os::os_message_io_test
