// Which queue each flow takes, and that no frame of a flow can overtake another one.
#include "iounit/flow_queues.h"

#include <catch2/catch.hpp>

#include <deque>
#include <map>

#include "common/bit_mix.h"
#include "common/random.h"

namespace splitnic::iounit::flow_queues_test {
namespace {

/// A host with queues that it works off at its own pace.
struct Host {
  FlowQueues table;
  std::array<std::deque<std::uint64_t>, kMaxQueues> under_way;

  std::size_t send(std::uint64_t flow) {
    const std::size_t queue = table.queue_for(flow, [&](std::size_t at) { return under_way[at].empty(); });
    under_way[queue].push_back(flow);
    table.sent();
    return queue;
  }
};

TEST_CASE("a flow takes the queue in which the host sends it", "[iounit][queues]") {
  Host host;
  for (std::size_t queue = 0; queue < 4; ++queue) host.table.set_up(queue, true);
  for (std::uint64_t flow = 1; flow < 100; ++flow) {
    host.table.heard(mix(flow), flow % 4);
    CHECK(host.send(mix(flow)) == flow % 4);
  }
}

TEST_CASE("a flow that the host has not sent takes a queue by its number, and only one that is up",
          "[iounit][queues]") {
  Host host;
  for (const std::size_t queue : {0U, 2U, 5U}) host.table.set_up(queue, true);
  std::map<std::size_t, unsigned> used;
  SeededRandom random(1);
  for (unsigned flow = 0; flow < 300; ++flow) ++used[host.send(random.next())];
  CHECK(used.size() == 3);
  for (const std::size_t queue : {0U, 2U, 5U}) CHECK(used[queue] > 50);
}

TEST_CASE("a flow changes its queue only when nothing of it is under way", "[iounit][queues]") {
  Host host;
  for (std::size_t queue = 0; queue < 2; ++queue) host.table.set_up(queue, true);
  constexpr std::uint64_t kFlow = 7;
  const std::size_t first = host.send(kFlow);
  const std::size_t other = 1 - first;
  host.table.heard(kFlow, other);
  CHECK(host.send(kFlow) == first);
  host.under_way[first].clear();
  CHECK(host.send(kFlow) == other);
}

TEST_CASE("a flow leaves a queue that is gone at once", "[iounit][queues]") {
  Host host;
  for (std::size_t queue = 0; queue < 2; ++queue) host.table.set_up(queue, true);
  host.table.heard(7, 1);
  CHECK(host.send(7) == 1);
  host.table.set_up(1, false);
  CHECK(host.send(7) == 0);
  host.table.set_up(1, true);
  host.table.heard(7, 1);
  host.under_way[0].clear();
  CHECK(host.send(7) == 1);
}

TEST_CASE("a flow that found no entry has frames under way all the same", "[iounit][queues]") {
  Host host;
  for (std::size_t queue = 0; queue < 2; ++queue) host.table.set_up(queue, true);
  for (std::uint64_t flow = 0; flow < 4; ++flow) REQUIRE(host.send(flow * 512) == 0);  // all entries of one set
  constexpr std::uint64_t kFlow = std::uint64_t{1} << 63U;                             // in that set, too
  REQUIRE(host.send(kFlow) == 1);
  host.under_way[0].clear();
  host.table.note_empty(0);
  host.table.heard(kFlow, 0);  // now it has an entry
  CHECK(host.send(kFlow) == 1);
  host.under_way[1].clear();
  CHECK(host.send(kFlow) == 0);
}

TEST_CASE("with any number of flows, no frame overtakes another one of its flow", "[iounit][queues]") {
  Host host;
  SeededRandom random(5);
  for (std::size_t queue = 0; queue < 4; ++queue) host.table.set_up(queue, true);
  std::map<std::uint64_t, std::map<std::size_t, unsigned>> waiting;  // by flow: frames in each queue
  for (unsigned step = 0; step < 100'000; ++step) {
    const std::uint64_t flow = mix(random.below(6000));  // three times as many as the table remembers
    switch (random.below(4)) {
      case 0:
        host.table.heard(flow, random.below(4));
        break;
      case 1: {
        auto& queue = host.under_way[step / 4000 % 4];  // for a while the host works off this queue alone
        for (std::uint64_t frames = random.below(40); frames > 0 && !queue.empty(); --frames) {
          auto& of_flow = waiting[queue.front()];
          if (--of_flow[static_cast<std::size_t>(&queue - host.under_way.data())] == 0) {
            of_flow.erase(static_cast<std::size_t>(&queue - host.under_way.data()));
          }
          queue.pop_front();
        }
        break;
      }
      default: {
        const std::size_t queue = host.send(flow);
        ++waiting[flow][queue];
        REQUIRE(waiting[flow].size() == 1);
      }
    }
  }
}

}  // namespace
}  // namespace splitnic::iounit::flow_queues_test
