#include <catch2/catch.hpp>

#include "common/reported_once.h"

namespace splitnic::reported_once_test {
namespace {

TEST_CASE("reasons that take turns are reported once each until the attempt succeeds", "[common][reports]") {
  ReportedOnce reported;
  int lines = 0;
  for (int turn = 0; turn < 100; ++turn) {
    for (const char* reason : {"not permitted", "hung up"}) lines += reported.first_time(reason) ? 1 : 0;
  }
  CHECK(lines == 2);
  reported.clear();
  CHECK(reported.first_time("hung up"));
}

TEST_CASE("the memory of what was reported is bounded", "[common][reports]") {
  ReportedOnce reported;
  for (std::size_t line = 0; line <= ReportedOnce::kMaxLines; ++line) {
    CHECK(reported.first_time(std::to_string(line)));
  }
  CHECK_FALSE(reported.first_time("1"));
  CHECK(reported.first_time("0"));  // the oldest has made room
}

}  // namespace
}  // namespace splitnic::reported_once_test
