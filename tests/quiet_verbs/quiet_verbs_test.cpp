// Once a connection is up, no post, poll or receive of a shared adapter asks the allocator or the kernel for anything.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

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

  /// The time alone decides how often the two ends look at their bridges: these calls are permitted.
  [[nodiscard]] std::uint64_t permitted_calls() const {
    return 2 * (static_cast<std::uint64_t>(passed / kHangUpCheck) + 1);
  }
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
  // Callers take the adapter over after 16 polls without work; until then each message wakes its thread.
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
    void* volatile memory = std::malloc(10);  // a thread's first allocation makes system calls
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
  // An end that is kept from its processor may find the other one asleep and ring it: two calls more, in an exchange or
  // two. A call that belongs to a message comes in each of them.
  for (int attempts = 0; attempts < 5; ++attempts) {
    std::thread([&] { outcome = exchange_and_count(pair); }).join();
    CHECK(outcome.exchanged == kRounds);
    CHECK(outcome.counted.allocations == 0);
    CHECK(outcome.counted.system_calls < kRounds / 10);
    if (outcome.counted.system_calls <= outcome.permitted_calls()) break;
  }
  CHECK(outcome.counted.system_calls <= outcome.permitted_calls());
}

/// The number in the row of docs/performance.md that begins with these words; 0: there is no such row.
std::uint64_t documented(const std::string& what) {
  std::ifstream page(SPLITNIC_DOCS "/performance.md");
  const std::string head = "| " + what + " | ";
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(head)) continue;
    std::erase(line, ' ');
    return std::stoull(line.substr(line.find('|', 1) + 1));
  }
  return 0;
}

/// Within 3%: the allocator rounds.
void check_documented(const std::string& what, std::uint64_t bytes) {
  std::cout << what << ": " << bytes << " bytes\n";
  const std::uint64_t says = documented(what);
  INFO(what << ": docs/performance.md says " << says << ", and it is " << bytes);
  CHECK(100 * bytes <= 103 * says);
  CHECK(100 * bytes >= 97 * says);
}

TEST_CASE("idle queue pairs, paths and regions take the memory that the documentation says", "[quiet]") {
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
    check_documented(what, (bytes_in_use() - before) / count);
  };
  const auto queue_pair = [&] { REQUIRE(adapter.create_queue_pair(with)); };
  each("queue pair with room for 64 sends and 64 receives", queue_pair, kMany);
  with.send_depth = with.receive_depth = 1;
  each("queue pair with room for one of each", queue_pair, kMany);
  std::vector<std::byte> memory(4096);
  const auto region = [&] { REQUIRE(adapter.register_memory(domain, memory, fabric::test::kThreadRights)); };
  each("region: its translation", region, kMany);
  std::size_t next = 0;
  const auto path = [&] { REQUIRE(adapter.attach(*links[next++][0])); };
  each("path, without its link", path, kPaths);
  const auto place = [&](std::size_t capacity) { return ProtectionTable::memory_bytes(capacity) / capacity; };
  CHECK(adapter.table().memory_bytes() == ProtectionTable::memory_bytes(options.max_regions));
  check_documented("a tag's place in a protection table of 600 tags, used or not", place(options.max_regions));
  check_documented("a tag's place in a protection table of 10^6 tags", place(1'000'000));
}

}  // namespace splitnic::quiet_verbs
