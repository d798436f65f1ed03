#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/bridge/shm_listener.h"
#include "fabric/bridge/shm_source.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/fabric/bridge_fixtures.h"

namespace splitnic::fabric::shm_refusals_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::kTestBytes;

TEST_CASE("a host that the unit's rules refuse tries less and less often, until there is another unit",
          "[fabric][shm]") {
  test::TemporaryDirectory directory;
  struct Ignored final : Notices {
    void notice(const std::string&) override {}
  } ignored;
  ShmListenOptions strict;
  strict.path = directory.path("socket");
  strict.window_bytes = kTestBytes / 2;
  auto listener = ShmListener::listen(strict);
  REQUIRE(listener.has_value());
  ShmConnectSource source({.path = strict.path, .local_bytes = kTestBytes, .window_bytes = kTestBytes}, ignored);
  Time now{};
  std::vector<Time> refused_at;
  while (refused_at.size() != 14) {
    const std::uint64_t before = (*listener)->counters().refused_sizes;
    for (int turn = 0; turn < 100 && (*listener)->counters().refused_sizes == before; ++turn) {
      REQUIRE(source.poll(now) == nullptr);
      (*listener)->poll(now);
    }
    REQUIRE((*listener)->counters().refused_sizes == before + 1);
    refused_at.push_back(now);
    REQUIRE(source.poll(now) == nullptr);  // takes the refusal
    now = source.next_deadline();
  }
  CHECK(refused_at[1] - refused_at[0] <= milliseconds(100));
  CHECK(refused_at[13] - refused_at[12] == seconds(2));
  // Halfway through a pause.
  now = refused_at[13] + seconds(1);
  listener->reset();
  ShmListenOptions generous;
  generous.path = strict.path;
  auto another = ShmListener::listen(generous);
  REQUIRE(another.has_value());
  std::shared_ptr<Bridge> bridge;
  for (int turn = 0; turn < 100 && !bridge; ++turn) {
    bridge = source.poll(now);
    (*another)->poll(now);
  }
  CHECK(bridge != nullptr);
}

}  // namespace splitnic::fabric::shm_refusals_test
