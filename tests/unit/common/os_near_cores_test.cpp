// Which cores share a cache, and how a thread moves to one of them.
#include "common/os/near_cores.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <thread>

#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::os::os_near_cores_test {
namespace {

namespace fs = std::filesystem;

/// A folder like /sys/devices/system/cpu.
class Processors {
 public:
  void add_core(int core) const { fs::create_directories(fs::path(folder_.path()) / ("cpu" + std::to_string(core))); }
  /// The next cache of a core, from the first level on.
  void add_cache(int core, int index, const std::string& shared_by) const {
    const auto cache =
        fs::path(folder_.path()) / ("cpu" + std::to_string(core)) / "cache" / ("index" + std::to_string(index));
    fs::create_directories(cache);
    std::ofstream(cache / "shared_cpu_list") << shared_by << '\n';
  }
  [[nodiscard]] NearCores read() const { return NearCores(folder_.path()); }

 private:
  TemporaryDirectory folder_;
};

cpu_set_t cores(std::initializer_list<std::size_t> numbers) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::size_t core : numbers) CPU_SET(core, &set);
  return set;
}

bool equal(const cpu_set_t& one, const cpu_set_t& other) { return CPU_EQUAL(&one, &other) != 0; }

TEST_CASE("near cores share the last cache, and may be used", "[common][cores]") {
  const Processors processors;
  for (const int core : {0, 1, 2, 3, 8}) {
    processors.add_core(core);
    processors.add_cache(core, 0, std::to_string(core));
    processors.add_cache(core, 1, core < 2 || core == 8 ? "0-1,8" : "2-3");
  }
  const auto near = processors.read();
  CHECK(equal(near.near_to(0, cores({0, 1, 2, 3, 8})), cores({1, 8})));
  CHECK(equal(near.near_to(0, cores({0, 1, 2, 3})), cores({1})));
  CHECK(equal(near.near_to(3, cores({0, 1, 2, 3, 8})), cores({2})));
  CHECK(equal(near.near_to(2, cores({0, 1, 2})), cores({})));
}

TEST_CASE("a core that the kernel does not describe, or not understandably, is near to all", "[common][cores]") {
  const Processors processors;
  for (const int core : {0, 1, 2, 3}) processors.add_core(core);  // no caches of 0
  processors.add_cache(1, 0, "");
  processors.add_cache(2, 0, "1-,x");
  processors.add_cache(3, 0, "3-99999");
  const auto near = processors.read();
  const auto all = cores({0, 1, 2, 3, 700});
  CHECK(equal(near.near_to(0, all), cores({1, 2, 3, 700})));
  CHECK(equal(near.near_to(1, all), cores({0, 2, 3, 700})));
  CHECK(equal(near.near_to(2, all), cores({0, 1, 3, 700})));
  CHECK(equal(near.near_to(3, all), cores({0, 1, 2, 700})));
  CHECK(equal(near.near_to(700, all), cores({0, 1, 2, 3})));
  CHECK(equal(NearCores("/nonexistent").near_to(0, all), cores({1, 2, 3, 700})));
}

TEST_CASE("a thread leaves its core, may use the same cores afterwards, and no core that was forbidden",
          "[common][cores]") {
  std::thread([] {
    cpu_set_t before;
    REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
    const NearCores everywhere("/nonexistent");
    const CoreLeaver leaver(everywhere);

    const int core = ::sched_getcpu();
    const bool several = CPU_COUNT(&before) > 1;
    CHECK(leaver.leave() == several);
    cpu_set_t after;
    REQUIRE(::sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(equal(before, after));
    // The scheduler may move it at any time, but not back at once every time.
    bool left = false;
    for (int attempt = 0; several && !left && attempt < 100; ++attempt) {
      const int here = ::sched_getcpu();
      left = leaver.leave() && ::sched_getcpu() != here;
    }
    CHECK(left == several);

    const auto alone = cores({static_cast<std::size_t>(core)});
    REQUIRE(::sched_setaffinity(0, sizeof alone, &alone) == 0);
    CHECK_FALSE(leaver.leave());
    CHECK(::sched_getcpu() == core);
  }).join();
}

}  // namespace
}  // namespace splitnic::os::os_near_cores_test
