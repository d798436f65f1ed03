#include "common/os/close_elsewhere.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iterator>

#include "common/time.h"
#include "tests/unit/common/lingering_socket.h"

namespace splitnic::os::os_close_elsewhere_test {
namespace {

std::size_t open_descriptors() {
  namespace fs = std::filesystem;
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

TEST_CASE("closing a socket that holds a lingering one takes no time, and closes both", "[common]") {
  constexpr int kSockets = 3;
  const std::size_t before = open_descriptors();
  {
    std::vector<LingeringSocket> strangers;
    std::vector<UniqueFd> theirs;
    std::vector<UniqueFd> ours;
    for (int i = 0; i < kSockets; ++i) {
      auto [end, other] = socket_pair();
      strangers.emplace_back(20);
      REQUIRE(strangers.back().attach_to(end.get(), std::vector<std::byte>(1)));
      strangers.back().let_go();
      theirs.push_back(std::move(end));
      ours.push_back(std::move(other));
    }
    const Time start = monotonic_now();
    CHECK(close_elsewhere(std::move(ours)).empty());
    CHECK(monotonic_now() - start < std::chrono::seconds(5));
    for (const auto& stranger : strangers) CHECK(stranger.closed_at_last());
    char byte = 0;
    for (const auto& end : theirs) {
      pollfd state{end.get(), POLLIN, 0};
      CHECK(::poll(&state, 1, 5000) == 1);
      CHECK(recv(end.get(), &byte, 1, MSG_DONTWAIT) <= 0);
    }
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("closing nothing elsewhere starts no thread", "[common]") { CHECK(close_elsewhere({}).empty()); }

}  // namespace splitnic::os::os_close_elsewhere_test
