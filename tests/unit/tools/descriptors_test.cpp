#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "tools/daemon.h"

namespace splitnic::tools::descriptors_test {
namespace {

/// This process's limit, which is restored at the end.
class Limit {
 public:
  Limit() { REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0); }
  ~Limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

  void set(rlim_t soft) {
    rlimit now = before_;
    now.rlim_cur = soft;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &now) == 0);
  }
  [[nodiscard]] static rlim_t soft() {
    rlimit now{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &now) == 0);
    return now.rlim_cur;
  }
  [[nodiscard]] rlim_t hard() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a daemon raises its limit of descriptors to what it needs, as far as it may", "[tools]") {
  Limit limit;
  REQUIRE(limit.hard() >= 200);
  limit.set(64);
  CHECK(permit_descriptors(200) == 200);
  CHECK(Limit::soft() == 200);
  CHECK(permit_descriptors(100) == 200);  // it is enough
  CHECK(Limit::soft() == 200);
  if (limit.hard() == RLIM_INFINITY) return;
  CHECK(permit_descriptors(limit.hard() + 1) == limit.hard());
  CHECK(Limit::soft() == limit.hard());
}

}  // namespace splitnic::tools::descriptors_test
