#include <poll.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <optional>

#include "fabric/bridge/shm_bridge.h"
#include "fabric/verbs/wait.h"
#include "verbs_fixture.h"

// Again last, as in the fixture.

namespace splitnic::verbs::test::verbs_wait_test {

namespace {

/// Two contexts over shared memory, whose descriptors are real.
struct SharedPair {
  SharedPair() {
    auto ends = fabric::shm_pair();
    REQUIRE(ends.has_value());
    first = made(Context::open());
    second = made(Context::open());
    to_second = made(first.add_path(std::move(ends->first)));
    to_first = made(second.add_path(std::move(ends->second)));
    const Time limit = monotonic_now() + std::chrono::seconds(10);
    while (!(to_second.up() && to_first.up()) && monotonic_now() < limit) settle();
    REQUIRE((to_second.up() && to_first.up()));
    settle();
  }
  /// Until nothing moves.
  void settle() {
    std::size_t moved = 0;
    do {
      const Time now = monotonic_now();
      moved = first.poll(now) + second.poll(now);
    } while (moved != 0);
  }

  Context first;
  Context second;
  Path to_second;
  Path to_first;
};

bool readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

}  // namespace

TEST_CASE("verbs: a wait ends when the peer sends, and before it when something is there already", "[fabric][verbs]") {
  SharedPair pair;
  ProtectionDomain domains[2] = {made(pair.first.allocate_domain()), made(pair.second.allocate_domain())};
  CompletionQueue queues[2] = {made(pair.first.create_completion_queue(8)),
                               made(pair.second.create_completion_queue(8))};
  QueuePairOptions shape;
  shape.send_completions = shape.receive_completions = &queues[0];
  QueuePair one = made(domains[0].create_queue_pair(shape));
  shape.send_completions = shape.receive_completions = &queues[1];
  QueuePair other = made(domains[1].create_queue_pair(shape));
  Pair::connect(one, other);
  REQUIRE(other.post_receive(receive(1, {})) == Status::ok);
  REQUIRE(other.post_receive(receive(2, {})) == Status::ok);
  const Time far = monotonic_now() + std::chrono::hours(1);

  // Asleep when the message comes: the doorbell is rung, and a wait (of an hour) would end.
  REQUIRE(pair.second.prepare_sleep());
  CHECK_FALSE(readable(pair.second.descriptor()));
  REQUIRE(one.post_send(send(1, {})) == Status::ok);
  pair.first.poll(monotonic_now());
  CHECK(readable(pair.second.descriptor()));
  pair.second.disarm();
  CHECK(pair.second.poll(monotonic_now()) > 0);
  pair.settle();

  // The message is there before: nobody goes to sleep.
  REQUIRE(one.post_send(send(1, {})) == Status::ok);
  pair.first.poll(monotonic_now());
  CHECK(wait(pair.second, monotonic_now(), far) == Status::ok);
  CHECK(pair.second.poll(monotonic_now()) > 0);
  std::array<Completion, 4> ends;
  CHECK(queues[1].poll(ends) == 2);
}

TEST_CASE("verbs: a wait ends at its time", "[fabric][verbs]") {
  SharedPair pair;
  const Time until = monotonic_now() + milliseconds(5);
  int waits = 0;
  for (Time now = monotonic_now(); now < until; now = monotonic_now()) {
    if (pair.first.poll(now) == 0) CHECK(wait(pair.first, now, until) == Status::ok);
    ++waits;
  }
  CHECK(waits < 10);
  CHECK(wait(pair.first, until, until) == Status::ok);
}

TEST_CASE("verbs: a peer that has hung up ends the waiting once, and is not waited for in circles", "[fabric][verbs]") {
  SharedPair pair;
  REQUIRE(pair.first.descriptor() >= 0);
  pair.to_first = Path();
  const Time far = monotonic_now() + std::chrono::hours(1);
  CHECK(wait(pair.first, monotonic_now(), far) == Status::ok);
  pair.first.poll(monotonic_now());
  CHECK_FALSE(pair.to_second.up());
  CHECK(pair.first.descriptor() == -1);
  const Time until = monotonic_now() + milliseconds(5);
  int waits = 0;
  for (Time now = monotonic_now(); now < until; now = monotonic_now()) {
    pair.first.poll(now);
    CHECK(wait(pair.first, now, until) == Status::ok);
    ++waits;
  }
  CHECK(waits < 10);
}

TEST_CASE("verbs: a wait for several peers takes a while although no descriptor is left to hear them by",
          "[fabric][verbs]") {
  SharedPair pair;
  auto more = fabric::shm_pair();
  REQUIRE(more.has_value());
  const Path to_third = made(pair.first.add_path(std::move(more->first)));
  rlimit descriptors{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  const rlimit none{0, descriptors.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const Time until = monotonic_now() + milliseconds(20);
  int waits = 0;
  for (Time now = monotonic_now(); now < until; now = monotonic_now()) {
    pair.first.poll(now);
    if (wait(pair.first, now, kNever) == Status::ok) ++waits;
  }
  REQUIRE(setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  CHECK(waits > 0);
  CHECK(waits <= 20);
}

TEST_CASE("verbs: where there is no descriptor nobody sleeps", "[fabric][verbs]") {
  Pair pair;
  CHECK_FALSE(pair.a.context.prepare_sleep());
  CHECK(wait(pair.a.context, Time{}, kNever) == Status::ok);
}

}  // namespace splitnic::verbs::test::verbs_wait_test
