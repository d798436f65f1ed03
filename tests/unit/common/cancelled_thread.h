#pragma once

#include <pthread.h>

#include <catch2/catch.hpp>
#include <thread>

namespace splitnic::test {

/// Runs calls(check) on a thread that has been told to end at its next cancellation point, and requires that the calls
/// have none: all of it runs, check(bool) is told only of what is true, and the thread ends after it.
template <class Calls>
void check_not_cancelled(Calls&& calls) {
  int failed = 0;
  bool finished = false;
  bool goes_on = false;
  std::thread victim([&] {
    static_cast<void>(pthread_cancel(pthread_self()));
    calls([&](bool good) { failed += good ? 0 : 1; });
    finished = true;
    pthread_testcancel();
    goes_on = true;
  });
  victim.join();
  CHECK(finished);
  CHECK(failed == 0);
  CHECK_FALSE(goes_on);
}

}  // namespace splitnic::test
