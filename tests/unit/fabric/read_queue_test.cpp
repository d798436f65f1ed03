#include "fabric/memory/read_queue.h"

#include <string>

#include <catch2/catch.hpp>

namespace splitnic::fabric {
namespace {

std::string place(ReadQueue<std::uint32_t>& queue, std::uint32_t sequence) {
  const auto placed = queue.place(sequence, sequence);
  return placed ? "ok" : to_string(placed.error());
}

}  // namespace

TEST_CASE("read requests are answered in sequence, whatever order they came in", "[fabric][memory]") {
  ReadQueue<std::uint32_t> queue(4);
  CHECK(queue.front() == nullptr);
  CHECK(place(queue, 3) == "ok");
  CHECK(queue.front() == nullptr);
  CHECK(place(queue, 1) == "ok");
  REQUIRE(queue.front() != nullptr);
  CHECK(*queue.front() == 1);
  queue.pop();
  CHECK(queue.front() == nullptr);
  CHECK(place(queue, 2) == "ok");
  CHECK(*queue.front() == 2);
  queue.pop();
  CHECK(*queue.front() == 3);
}

TEST_CASE("an unexpected message sequence number of a read request is refused by its name", "[fabric][memory]") {
  for (std::size_t depth = 1; depth <= 8; ++depth) {
    for (const std::uint32_t first : {1U, 0xffff'fffeU, 0x7fff'ffffU}) {
      ReadQueue<std::uint32_t> queue(depth, first);
      const auto beyond = static_cast<std::uint32_t>(depth);
      CHECK(place(queue, first - 1) == "unexpected_sequence");
      CHECK(place(queue, first + beyond) == "no_read_resource");
      for (std::uint32_t i = 0; i < beyond; ++i) CHECK(place(queue, first + i) == "ok");
      for (std::uint32_t i = 0; i < beyond; ++i) CHECK(place(queue, first + i) == "unexpected_sequence");
      CHECK(place(queue, first + beyond) == "no_read_resource");
      queue.pop();
      CHECK(place(queue, first) == "unexpected_sequence");
      CHECK(place(queue, first + beyond) == "ok");
      CHECK(place(queue, first + beyond + 1) == "no_read_resource");
    }
  }
}

TEST_CASE("the queue of read requests goes on over the wrap of its numbers at any depth", "[fabric][memory]") {
  for (std::size_t depth = 1; depth <= 7; ++depth) {
    const std::uint32_t first = 0xffff'fff0;
    ReadQueue<std::uint32_t> queue(depth, first);
    for (std::uint32_t i = 0; i < 64; ++i) {
      REQUIRE(place(queue, first + i) == "ok");
      REQUIRE(queue.front() != nullptr);
      REQUIRE(*queue.front() == first + i);
      queue.pop();
    }
  }
}

}  // namespace splitnic::fabric
