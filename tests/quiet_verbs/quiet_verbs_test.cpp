// Once a connection is up, no post, poll or receive of a shared adapter asks the allocator or the kernel for anything.
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "counting.h"
#include "threads_fixtures.h"

namespace splitnic::quiet_verbs {
namespace {

using namespace fabric;
using fabric::test::SharedPair;

constexpr std::uint64_t kRounds = 3000;
/// How often a link asks its bridge for a hang-up, and with it for doorbells.
constexpr Duration kHangUpCheck = std::chrono::milliseconds(10);

struct Outcome {
  Counted counted;
  std::uint64_t exchanged = 0;
  Duration passed{};
};

/// Messages of some lengths one way, each with its post, its receive, and the polls that both ends need.
Outcome exchange_and_count(SharedPair& pair) {
  Outcome outcome;
  const auto round = [&pair](std::uint64_t number) {
    const std::size_t bytes = number % 3 == 0 ? 8 : number % 3 == 1 ? 300 : 9000;
    if (pair.second().receive(number, 0, 10'000) != Status::ok) return false;
    if (pair.first().send(number, bytes, 16'384) != Status::ok) return false;
    bool sent = false;
    bool received = false;
    for (int polls = 0; polls < 1'000'000 && !(sent && received); ++polls) {
      sent = pair.first().poll().has_value() || sent;
      received = pair.second().poll().has_value() || received;
    }
    return sent && received;
  };
  for (std::uint64_t i = 0; i < 100; ++i) static_cast<void>(round(i));
  // Callers drive an adapter from their 16th poll in vain on; until then its thread is rung for each message.
  for (int i = 0; i < 100; ++i) static_cast<void>(pair.first().poll().has_value() || pair.second().poll().has_value());
  const Time begin = monotonic_now();
  start_counting();
  while (outcome.exchanged < kRounds && round(outcome.exchanged)) ++outcome.exchanged;
  outcome.counted = stop_counting();
  outcome.passed = monotonic_now() - begin;
  return outcome;
}

}  // namespace

TEST_CASE("what is counted is seen: an allocation, and a system call", "[quiet]") {
  Counted counted;
  std::thread([&] {
    void* volatile memory = std::malloc(10);  // a thread's first one asks the kernel
    std::free(memory);
    start_counting();
    memory = std::malloc(10);
    std::free(memory);
    static_cast<void>(::getppid());
    counted = stop_counting();
  }).join();
  CHECK(counted.allocations == 1);
  CHECK(counted.system_calls == 1);
}

TEST_CASE("posts, polls and receives of a connection that is up allocate nothing and enter no kernel", "[quiet]") {
  const bool threaded = GENERATE(true, false);
  INFO((threaded ? "with the progress thread" : "single-threaded"));
  SharedPair pair(threaded ? fabric::test::patient_thread() : fabric::test::alone());
  Outcome outcome;
  std::thread([&] { outcome = exchange_and_count(pair); }).join();
  CHECK(outcome.exchanged == kRounds);
  CHECK(outcome.counted.allocations == 0);
  // But for a look at each of the two bridges now and then, which time alone decides.
  const auto looks = static_cast<std::uint64_t>(outcome.passed / kHangUpCheck) + 1;
  CHECK(outcome.counted.system_calls <= 2 * looks);
  CHECK(outcome.counted.system_calls < kRounds / 10);
}

TEST_CASE("idle queue pairs, paths and regions take no more memory than the documentation says", "[quiet]") {
  constexpr std::size_t kMany = 200;
  constexpr std::size_t kPaths = 10;
  std::vector<std::array<std::shared_ptr<CellLink>, 2>> links;
  for (std::size_t i = 0; i <= kPaths; ++i) links.push_back(fabric::test::linked_ends(i));
  SeededRandom random(1);
  AdapterOptions options;
  options.max_queue_pairs = options.max_regions = 3 * kMany;
  ChannelAdapter adapter(options, random);
  const ProtectionDomain domain = adapter.allocate_domain();
  QueuePairAttributes with;
  with.domain = domain;
  with.send_completions = with.receive_completions = adapter.create_completion_queue(kMany * 200);
  const auto each = [&](const char* what, auto&& make, std::size_t count) {
    make();
    const std::uint64_t before = bytes_in_use();
    for (std::size_t i = 0; i < count; ++i) make();
    const std::uint64_t bytes = (bytes_in_use() - before) / count;
    std::cout << "an idle " << what << ": " << bytes << " bytes\n";
    return bytes;
  };
  CHECK(each(
            "queue pair of 64 sends and 64 receives", [&] { REQUIRE(adapter.create_queue_pair(with)); }, kMany) <
        64U << 10U);
  with.send_depth = with.receive_depth = 1;
  CHECK(each(
            "queue pair of one each", [&] { REQUIRE(adapter.create_queue_pair(with)); }, kMany) < 8U << 10U);
  std::vector<std::byte> memory(4096);
  CHECK(each(
            "region, besides its place in the table",
            [&] { REQUIRE(adapter.register_memory(domain, memory, fabric::test::kThreadRights)); }, kMany) < 512);
  CHECK(adapter.table().memory_bytes() / options.max_regions < 512);
  std::cout << "a region's place in the table: " << adapter.table().memory_bytes() / options.max_regions << " bytes\n";
  std::size_t next = 0;
  CHECK(each(
            "path, without its link", [&] { REQUIRE(adapter.attach(*links[next++][0])); }, kPaths) < 16U << 10U);
}

}  // namespace splitnic::quiet_verbs
