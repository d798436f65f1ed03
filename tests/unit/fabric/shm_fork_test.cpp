// Bridges of the shm set-up whose processes fork children that do not execute a program.
#include <poll.h>

#include <catch2/catch.hpp>

#include "tests/unit/fabric/listener_fixtures.h"
#include "tests/unit/other_process.h"

namespace splitnic::fabric::shm_fork_test {
namespace {

using splitnic::testing::exit_code_of;
using splitnic::testing::SleepingChild;
using test::Polled;

/// Whether this end hears the hang-up of the other one without a pause.
bool is_hung_up(Bridge& bridge) {
  static_cast<void>(bridge.take_doorbells());
  return bridge.link() == LinkState::down;
}

/// Whether a doorbell of one end wakes the other one.
bool rings(Bridge& from, Bridge& to) {
  from.ring();
  pollfd wait{to.doorbell_descriptor(), POLLIN, 0};
  return ::poll(&wait, 1, 5000) == 1 && to.take_doorbells();
}

}  // namespace

TEST_CASE("an end of a bridge that is dropped has hung up although a forked child lives", "[fabric][shm]") {
  Polled unit;
  auto both = unit.connected();
  const SleepingChild child;
  SECTION("the host's") {
    both.host.reset();
    unit.poll();
    CHECK(is_hung_up(*both.unit.bridge));
    CHECK(unit.listener->hang_ups() == 1);
    both.unit.bridge.reset();
    unit.poll();
    CHECK(unit.listener->bridges() == 0);
  }
  SECTION("the unit's, with its listener") {
    unit.listener.reset();
    both.unit.bridge.reset();
    CHECK(is_hung_up(*both.host));
  }
  SECTION("the unit's, whose host stays") {
    both.unit.bridge.reset();
    unit.poll();  // tells the host
    CHECK(is_hung_up(*both.host));
    unit.now += std::chrono::seconds(1);
    unit.poll();
    CHECK(unit.listener->bridges() == 0);
  }
}

TEST_CASE("a forked child that destroys its copy of a bridge hangs up for nobody", "[fabric][shm]") {
  Polled unit;
  auto both = unit.connected();
  CHECK(exit_code_of([&] {
          both.host.reset();
          unit.listener.reset();
          both.unit.bridge.reset();
          return 0;
        }) == 0);
  unit.poll();
  CHECK(unit.listener->hang_ups() == 0);
  CHECK(rings(*both.host, *both.unit.bridge));
  CHECK(rings(*both.unit.bridge, *both.host));
  CHECK_FALSE(is_hung_up(*both.host));
  CHECK_FALSE(is_hung_up(*both.unit.bridge));
}

TEST_CASE("a process may fork and drop the end of a pair that its child uses", "[fabric][shm]") {
  auto made = shm_pair(kShmMinBytes, kShmMinBytes);
  REQUIRE(made.has_value());
  auto [own, childs] = std::move(*made);
  const int channel = own->doorbell_descriptor();
  const splitnic::testing::OtherProcess child([&, kept = childs.get()](splitnic::testing::OtherProcess::Pipe&) {
    own.reset();
    pollfd wait{kept->doorbell_descriptor(), POLLIN, 0};
    if (::poll(&wait, 1, 5000) == 1 && kept->take_doorbells()) kept->ring();
    ::pause();
  });
  childs.reset();
  own->ring();
  pollfd wait{channel, POLLIN, 0};
  REQUIRE(::poll(&wait, 1, 5000) == 1);
  CHECK(own->take_doorbells());
  CHECK_FALSE(is_hung_up(*own));
}

}  // namespace splitnic::fabric::shm_fork_test
