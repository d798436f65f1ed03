#include "common/os/passed_descriptors.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

namespace splitnic::os::os_passed_descriptors_test {
namespace {

struct Pair {
  UniqueFd sender;
  UniqueFd receiver;
};

Pair connected_pair() {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// A pipe whose reading end a test passes on.
struct Pipe {
  UniqueFd reads;
  UniqueFd writes;
};

Pipe some_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Whether what is written to the pipe comes out of the descriptor.
bool reads_from(const UniqueFd& descriptor, const Pipe& pipe) {
  char letter = 'a';
  REQUIRE(write(pipe.writes.get(), &letter, 1) == 1);
  letter = 0;
  return read(descriptor.get(), &letter, 1) == 1 && letter == 'a';
}

const std::vector<std::byte> kBytes(5, std::byte{7});

TEST_CASE("descriptors arrive with their bytes, in their order, and are closed by exec", "[os][descriptors]") {
  const Pair pair = connected_pair();
  const std::array<Pipe, 2> pipes{some_pipe(), some_pipe()};
  const std::array sent{pipes[0].reads.get(), pipes[1].reads.get()};
  REQUIRE(send_with_descriptors(pair.sender.get(), kBytes, sent, 0) == 5);

  std::vector<std::byte> bytes(10);
  const auto received = receive_with_descriptors(pair.receiver.get(), bytes, 2, MSG_DONTWAIT);
  CHECK(received.bytes == 5);
  CHECK(bytes.front() == std::byte{7});
  CHECK_FALSE(received.more);
  REQUIRE(received.descriptors.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(received.descriptors[i].get() != sent[i]);
    CHECK((fcntl(received.descriptors[i].get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(reads_from(received.descriptors[i], pipes[i]));
  }
}

TEST_CASE("bytes may come without descriptors; an empty socket and a hang-up are told apart", "[os][descriptors]") {
  Pair pair = connected_pair();
  std::vector<std::byte> bytes(10);
  CHECK(receive_with_descriptors(pair.receiver.get(), bytes, 4, MSG_DONTWAIT).bytes == -1);
  CHECK(errno == EAGAIN);
  REQUIRE(send_with_descriptors(pair.sender.get(), kBytes, {}, 0) == 5);
  const auto received = receive_with_descriptors(pair.receiver.get(), bytes, 4, MSG_DONTWAIT);
  CHECK(received.bytes == 5);
  CHECK(received.descriptors.empty());
  pair.sender = UniqueFd();
  CHECK(receive_with_descriptors(pair.receiver.get(), bytes, 4, MSG_DONTWAIT).bytes == 0);
}

TEST_CASE("descriptors beyond the room are reported, not kept in silence", "[os][descriptors]") {
  const std::size_t room = GENERATE(0, 1, 2, 3, 252, 253);
  const Pair pair = connected_pair();
  const Pipe pipe = some_pipe();
  std::vector<std::byte> bytes(10);
  for (const std::size_t sent : {room, room + 1}) {
    if (sent > kMaxPassedDescriptors) continue;
    INFO(sent << " descriptors, room for " << room);
    REQUIRE(send_with_descriptors(pair.sender.get(), kBytes, std::vector<int>(sent, pipe.reads.get()), 0) == 5);
    const auto received = receive_with_descriptors(pair.receiver.get(), bytes, room, MSG_DONTWAIT);
    CHECK(received.bytes == 5);
    CHECK(received.more == (sent > room));
    CHECK(received.descriptors.size() >= std::min(sent, room));
  }
}

TEST_CASE("sending to an end that has gone is an error, not a signal", "[os][descriptors]") {
  Pair pair = connected_pair();
  pair.receiver = UniqueFd();
  const Pipe pipe = some_pipe();
  CHECK(send_with_descriptors(pair.sender.get(), kBytes, std::array{pipe.reads.get()}, 0) == -1);
  CHECK(errno == EPIPE);
}

}  // namespace
}  // namespace splitnic::os::os_passed_descriptors_test
