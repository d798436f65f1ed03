// What idle objects take of the allocator's memory is what docs/performance.md says.
#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "counting.h"
#include "threads_fixtures.h"

namespace splitnic::quiet_verbs {
namespace {

using namespace fabric;

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

}  // namespace

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
