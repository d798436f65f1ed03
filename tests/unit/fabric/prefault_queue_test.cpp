// When the memory of new bridges is prefaulted.
#include "fabric/bridge/prefault_queue.h"

#include <catch2/catch.hpp>

#include "tests/unit/fabric/bridge_mappings.h"
#include "tests/unit/fabric/listener_fixtures.h"

namespace splitnic::fabric::prefault_queue_test {
namespace {

using test::bridge_mappings;

constexpr std::size_t kBytes = 3 * PrefaultQueue::kSliceBytes;  // and a header page, so four slices
constexpr Time kStart{std::chrono::seconds(1)};
constexpr Time kDue = kStart + PrefaultQueue::kDelay;

std::shared_ptr<const ShmMemory> new_memory() {
  auto made = ShmMemory::create(kBytes);
  REQUIRE(made.has_value());
  return std::move(*made);
}

TEST_CASE("a new memory waits for its time, and is then prefaulted slice by slice", "[fabric][shm]") {
  PrefaultQueue queue;
  CHECK(queue.next_deadline() == kNever);
  const std::size_t before = bridge_mappings().present;
  const auto memory = new_memory();
  queue.add(memory, kStart);
  CHECK(queue.next_deadline() == kDue);
  queue.poll(kDue - Duration(1));
  CHECK(bridge_mappings().present == before);
  for (std::size_t slice = 1; slice <= 4; ++slice) {
    REQUIRE(queue.next_deadline() == kDue);
    queue.poll(kDue);
    CHECK(bridge_mappings().present - before ==
          std::min(slice * PrefaultQueue::kSliceBytes, kBytes + ShmMemory::kHeaderBytes));
  }
  CHECK(queue.next_deadline() == kNever);
}

TEST_CASE("a memory that has ended is left out, and the next one has its turn", "[fabric][shm]") {
  PrefaultQueue queue;
  const std::size_t before = bridge_mappings().present;
  auto ended = new_memory();
  const auto memory = new_memory();
  queue.add(ended, kStart);
  queue.add(memory, kStart + Duration(1));
  queue.poll(kDue);
  CHECK(bridge_mappings().present - before == PrefaultQueue::kSliceBytes);
  ended.reset();
  CHECK(bridge_mappings().present == before);
  CHECK(queue.next_deadline() == kDue + Duration(1));
  queue.poll(kDue);
  CHECK(bridge_mappings().present == before);
  while (queue.next_deadline() != kNever) queue.poll(queue.next_deadline());
  CHECK(bridge_mappings().present - before == kBytes + ShmMemory::kHeaderBytes);
}

TEST_CASE("of a memory that asks for less, only the slices at its start are prefaulted", "[fabric][shm]") {
  PrefaultQueue queue;
  const std::size_t before = bridge_mappings().present;
  const auto memory = new_memory();
  queue.add(memory, kStart, PrefaultQueue::kSliceBytes + 1);
  while (queue.next_deadline() != kNever) queue.poll(queue.next_deadline());
  CHECK(bridge_mappings().present - before == 2 * PrefaultQueue::kSliceBytes);
}

TEST_CASE("prefaulting changes nothing that the memory holds", "[fabric][shm]") {
  const auto memory = new_memory();
  memory->local().store<std::uint64_t>(0, 0x0123456789abcdef);
  memory->local().store<std::uint64_t>(kBytes - 8, 42);
  memory->prefault(0, memory->mapped_bytes());
  CHECK(memory->local().load<std::uint64_t>(0) == 0x0123456789abcdef);
  CHECK(memory->local().load<std::uint64_t>(kBytes - 8) == 42);
  memory->prefault(memory->mapped_bytes(), PrefaultQueue::kSliceBytes);  // beyond the end: nothing to do
}

TEST_CASE("a listener hands a bridge over before its memory is prefaulted, and serves callers before it goes on",
          "[fabric][shm]") {
  test::Polled unit;
  const auto first = unit.connected();
  const std::size_t bytes = 2 * (kShmMinBytes + ShmMemory::kHeaderBytes);
  CHECK(bridge_mappings().present < bytes / 10);
  unit.now += PrefaultQueue::kDelay;
  CHECK(unit.listener->next_deadline() <= unit.now);
  const auto second = unit.start();
  CHECK(unit.listener->poll(unit.now) > 0);
  CHECK(unit.listener->take().has_value());
  CHECK(bridge_mappings().present < bytes / 10);
  while (unit.listener->next_deadline() <= unit.now) unit.listener->poll(unit.now);
  const std::size_t of_first = bridge_mappings().present;
  CHECK(of_first >= bytes);
  CHECK(of_first < bytes + bytes / 10);
}

}  // namespace
}  // namespace splitnic::fabric::prefault_queue_test
