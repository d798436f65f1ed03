#include "fabric/threads/per_process.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/other_process.h"

namespace splitnic::fabric::test::threads_per_process_test {
namespace {

using testing::exit_code_of;

struct Counted {
  std::mutex lock;
  int count = 0;
};

TEST_CASE("threads: all threads of a process share one object, also those that ask first at the same time",
          "[fabric][threads]") {
  static PerProcess<Counted> counted;
  std::atomic<bool> go{false};
  std::vector<Counted*> found(4);
  std::vector<std::thread> threads;
  for (Counted*& mine : found) {
    threads.emplace_back([&] {
      while (!go) std::this_thread::yield();
      mine = &counted.get();
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(std::set(found.begin(), found.end()) == std::set{&counted.get()});
}

TEST_CASE("threads: a forked child begins with an object of its own, and so does its child", "[fabric][threads]") {
  static PerProcess<Counted> counted;
  Counted& own = counted.get();
  own.count = 1;
  const std::lock_guard held(own.lock);  // as by a thread that the child does not have
  CHECK(exit_code_of([&] {
          Counted& childs = counted.get();
          const bool fresh = &childs != &own && childs.count == 0 && childs.lock.try_lock();
          childs.count = 2;
          const bool stays = &counted.get() == &childs;
          const int grandchild = exit_code_of([&] { return counted.get().count == 0 ? 0 : 1; });
          return fresh && stays && grandchild == 0 && counted.get().count == 2 ? 0 : 1;
        }) == 0);
  CHECK(&counted.get() == &own);
  CHECK(own.count == 1);
}

}  // namespace
}  // namespace splitnic::fabric::test::threads_per_process_test
