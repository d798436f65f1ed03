#include "common/os/held_name.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <string>

namespace splitnic::os::os_held_name_test {
namespace {

std::string a_name() { return fmt::format("splitnic-test/{}", ::getpid()); }

}  // namespace

TEST_CASE("a name is held until its descriptor goes", "[os]") {
  HeldName first = hold_name(a_name());
  CHECK(first.descriptor);
  CHECK_FALSE(first.is_anothers);
  const HeldName second = hold_name(a_name());
  CHECK_FALSE(second.descriptor);
  CHECK(second.is_anothers);
  CHECK(hold_name(a_name() + "0").descriptor);  // a longer name is another one
  first.descriptor = {};
  CHECK(hold_name(a_name()).descriptor);
}

TEST_CASE("a process that is killed holds no name any more", "[os]") {
  const std::string name = a_name() + "/killed";
  int held[2];
  REQUIRE(::pipe(held) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const HeldName own = hold_name(name);
    const bool told = ::write(held[1], own.descriptor ? "y" : "n", 1) == 1;
    if (!told) ::_exit(1);
    while (true) ::pause();
  }
  char answer = 0;
  REQUIRE(::read(held[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  CHECK(hold_name(name).is_anothers);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(hold_name(name).descriptor);
  ::close(held[0]);
  ::close(held[1]);
}

}  // namespace splitnic::os::os_held_name_test
