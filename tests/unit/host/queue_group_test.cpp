// What the threads of a host with several queues tell each other.
#include "host/queue_group.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <thread>

#include "common/os/message_io.h"

namespace splitnic::host::queue_group_test {
namespace {

bool rings(const QueueGroup& group, std::size_t queue) { return os::events_now(group.descriptor(queue), POLLIN) != 0; }

TEST_CASE("new terms reach every queue and wake it once", "[host][queues]") {
  QueueGroup group(2);
  CHECK(group.generation() == 0);
  CHECK_FALSE(rings(group, 0));
  group.set_terms(77, {.frames = true});
  for (const std::size_t queue : {0U, 1U}) {
    CHECK(rings(group, queue));
    group.heard(queue);
    CHECK_FALSE(rings(group, queue));
  }
  CHECK(group.generation() == 1);
  CHECK(group.terms().cookie == 77);
  CHECK(group.terms().offloads.frames);
}

TEST_CASE("the sum has the last report of each queue", "[host][queues]") {
  QueueGroup group(2);
  QueueGroup::Report report{.up = true, .oversized = 5, .unfinished = 1};
  report.counters.rx_frames = 3;
  report.totals.session.tx_frames = 4;
  group.report(0, report);
  group.report(1, report);
  group.report(1, report);
  const auto sum = group.sum();
  CHECK(sum.queues_up == 2);
  CHECK(sum.counters.rx_frames == 6);
  CHECK(sum.totals.session.tx_frames == 8);
  CHECK(sum.oversized == 10);
  CHECK(sum.unfinished == 2);
}

// Under ThreadSanitizer this shows that the terms need no more than what G1, G2 and the mutex give. It does not show
// that a sleep in ppoll() ends: the simulation and the integration tests do.
TEST_CASE("a thread that sleeps until it is woken finds every change", "[host][queues][stress]") {
  QueueGroup group(1);
  constexpr std::uint64_t kChanges = 2000;
  std::thread queue([&] {
    std::uint64_t seen = 0;
    while (seen != kChanges) {
      pollfd bell{group.descriptor(0), POLLIN, 0};
      static_cast<void>(::poll(&bell, 1, 10'000));
      group.heard(0);
      if (group.generation() == seen) continue;
      const auto terms = group.terms();
      CHECK(terms.cookie == terms.generation);
      seen = terms.generation;
      group.report(0, {.up = true});
    }
  });
  for (std::uint64_t change = 1; change <= kChanges; ++change) {
    group.set_terms(change, {});
    static_cast<void>(group.sum());
  }
  queue.join();
}

}  // namespace
}  // namespace splitnic::host::queue_group_test
