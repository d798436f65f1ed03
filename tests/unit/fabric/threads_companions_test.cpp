#include "fabric/threads/companions.h"

#include <mutex>
#include <thread>

#include "fabric/threads/biased_lock.h"
#include "threads_fixtures.h"

/// One thread that polls several adapters in turn.
namespace splitnic::fabric::test::threads_companions_test {
namespace {

struct Counting final : Companion {
  void serve_while_another_waits() override { ++served; }
  int served = 0;
};

void poll_in_vain(SharedEnd& end, int times = 1000) {
  for (int i = 0; i < times; ++i) static_cast<void>(end.poll());
}

std::uint64_t polls_of(const SharedEnd& end) { return end.adapter->counters().polls; }

bool elsewhere(BiasedLock& lock) {
  bool got = false;
  std::thread([&] {
    got = lock.try_lock();
    if (got) lock.unlock();
  }).join();
  return got;
}

}  // namespace

TEST_CASE("companions: one serves all others that are there", "[fabric][threads]") {
  Companions companions;
  std::array<Counting, 3> all;
  companions.add(all[0]);
  companions.serve_others(all[0]);
  CHECK(all[0].served == 0);
  companions.add(all[1]);
  companions.add(all[2]);
  companions.serve_others(all[1]);
  CHECK((all[0].served == 1 && all[1].served == 0 && all[2].served == 1));
  companions.remove(all[0]);
  companions.serve_others(all[1]);
  CHECK((all[0].served == 1 && all[2].served == 2));
}

TEST_CASE("companions: a caller that waits at one adapter serves the other that it polled before",
          "[fabric][threads]") {
  // The threads would look again in an hour.
  SharedPair pair(patient_thread());
  for (SharedEnd& end : pair.ends) poll_in_vain(end);
  for (std::uint64_t round = 0; round < 3; ++round) {
    REQUIRE(pair.second().receive(round) == Status::ok);
    REQUIRE(pair.first().send(round) == Status::ok);
    // It is sent when the second has taken it.
    REQUIRE(eventually([&] { return pair.first().poll().has_value(); }));
    REQUIRE(eventually([&] { return pair.second().poll().has_value(); }));
  }
}

TEST_CASE("companions: a caller leaves alone what another one polls, or its thread serves", "[fabric][threads]") {
  SharedPair pair(patient_thread());
  std::atomic<bool> done{false};
  std::atomic<bool> polled{false};
  std::thread other([&] {
    poll_in_vain(pair.second());
    polled = true;
    while (!done) std::this_thread::yield();  // its number goes to nobody else
  });
  REQUIRE(eventually([&] { return polled.load(); }));
  const std::uint64_t before = polls_of(pair.second());
  poll_in_vain(pair.first());
  CHECK(polls_of(pair.second()) == before);
  done = true;
  other.join();

  poll_in_vain(pair.second());
  const std::uint64_t own = polls_of(pair.second());
  poll_in_vain(pair.first());
  CHECK(polls_of(pair.second()) > own);
  REQUIRE(pair.second().adapter->arm(pair.second().completions, Arm::next) == Status::ok);
  const std::uint64_t asleep = polls_of(pair.second());
  poll_in_vain(pair.first());
  CHECK(polls_of(pair.second()) == asleep);
}

TEST_CASE("companions: an adapter that has ended is served no more", "[fabric][threads]") {
  SharedEnd stays(1, patient_thread());
  auto ends = std::make_unique<SharedEnd>(2, patient_thread());
  poll_in_vain(*ends);
  poll_in_vain(stays);
  ends.reset();
  const std::uint64_t before = polls_of(stays);
  poll_in_vain(stays);
  CHECK(polls_of(stays) > before);
}

TEST_CASE("companions: a caller that waits at one adapter within the use of another leaves that one alone",
          "[fabric][threads]") {
  SharedPair pair(patient_thread());
  for (SharedEnd& end : pair.ends) poll_in_vain(end);
  const std::uint64_t before = polls_of(pair.second());
  pair.second().adapter->use([&](ChannelAdapter&) { poll_in_vain(pair.first()); });
  CHECK(polls_of(pair.second()) == before);
}

TEST_CASE("biased lock: who only tries gets it unless a thread has it, or it is biased to another one",
          "[fabric][threads]") {
  BiasedLock lock(/*single_threaded=*/false, {.first_row = 4});
  CHECK(elsewhere(lock));
  REQUIRE(lock.try_lock());
  CHECK_FALSE(elsewhere(lock));
  CHECK_FALSE(lock.try_lock());
  lock.unlock();
  for (int i = 0; i < 4; ++i) const std::lock_guard guard(lock);
  REQUIRE(lock.biases() == 1);
  CHECK_FALSE(elsewhere(lock));
  REQUIRE(lock.try_lock());  // of the thread that it is biased to
  CHECK_FALSE(lock.try_lock());
  lock.unlock();
  CHECK(lock.revocations() == 0);
}

}  // namespace splitnic::fabric::test::threads_companions_test
