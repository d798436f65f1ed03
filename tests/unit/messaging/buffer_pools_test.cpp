#include "messaging/buffer_pools.h"

#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "common/random.h"

namespace splitnic::messaging::buffer_pools_test {

namespace {

constexpr wire::PoolNumber kNumber{3};

struct Owned {
  explicit Owned(std::uint32_t elements, std::uint32_t element_bytes = 128, bool spans = false)
      : storage(std::size_t{elements} * element_bytes),
        pool(kNumber, elements, element_bytes, fabric::PeerMemory::over(storage.data(), storage.size()), {}, true,
             spans) {}
  std::vector<std::byte> storage;
  OwnedPool pool;
};

PeerPool peer_pool(std::uint32_t elements) {
  return PeerPool(wire::PoolAdvertisement{kNumber, elements, 128, 7, 0x1000, 9});
}

}  // namespace

TEST_CASE("an element is the peer's until indicated and ours until returned", "[messaging][pools]") {
  Owned owned(4);
  std::uint32_t lost = 0;
  for (std::uint32_t element = 0; element < 4; ++element) {
    REQUIRE(owned.pool.indicate(element, 64, lost) == PoolFault::none);
    REQUIRE(lost == 0);
  }
  REQUIRE(owned.pool.indicate(0, 64, lost) == PoolFault::element_not_with_peer);
  const auto run = owned.pool.take_return();
  REQUIRE(run == wire::ElementRun{kNumber, 0, 4});
  REQUIRE_FALSE(owned.pool.take_return());
  REQUIRE(owned.pool.indicate(0, 64, lost) == PoolFault::none);
  REQUIRE(owned.pool.indicate(0, 64, lost) == PoolFault::element_not_with_peer);
}

TEST_CASE("an indication outside its pool is refused at every boundary", "[messaging][pools]") {
  Owned owned(4);
  std::uint32_t lost = 0;
  REQUIRE(owned.pool.indicate(4, 64, lost) == PoolFault::element_out_of_range);
  REQUIRE(owned.pool.indicate(0xffffffffU, 64, lost) == PoolFault::element_out_of_range);
  REQUIRE(owned.pool.indicate(0, wire::kMinFrameBytes - 1, lost) == PoolFault::length_out_of_range);
  REQUIRE(owned.pool.indicate(0, 129, lost) == PoolFault::length_out_of_range);
  REQUIRE(owned.pool.indicate(0, 0, lost) == PoolFault::length_out_of_range);
  REQUIRE(owned.pool.indicate(0, wire::kMinFrameBytes, lost) == PoolFault::none);
  REQUIRE(owned.pool.indicate(1, 128, lost) == PoolFault::none);
}

TEST_CASE("skipped elements were lost on the way and are returned with the rest", "[messaging][pools]") {
  Owned owned(8);
  std::uint32_t lost = 0;
  REQUIRE(owned.pool.indicate(2, 64, lost) == PoolFault::none);
  REQUIRE(lost == 2);
  REQUIRE(owned.pool.unreturned() == 3);
  REQUIRE(owned.pool.take_return() == wire::ElementRun{kNumber, 0, 3});
  REQUIRE(owned.pool.indicate(1, 64, lost) == PoolFault::none);
  REQUIRE(lost == 6);
  REQUIRE(owned.pool.take_return() == wire::ElementRun{kNumber, 3, 5});
  REQUIRE(owned.pool.take_return() == wire::ElementRun{kNumber, 0, 2});
}

TEST_CASE("the bytes of an element are where its number says", "[messaging][pools]") {
  Owned owned(4);
  owned.storage[2 * 128] = std::byte{0x5a};
  REQUIRE(owned.pool.bytes_of(2, 64).first.load<std::uint8_t>(0) == 0x5a);
  REQUIRE(owned.pool.bytes_of(2, 64).first.size() == 64);
  REQUIRE(owned.pool.bytes_of(2, 64).rest.size() == 0);
}

TEST_CASE("a frame that spans elements takes all of them, round the end of the ring too", "[messaging][pools]") {
  Owned owned(4, 128, true);
  std::uint32_t lost = 0;
  REQUIRE(owned.pool.indicate(0, 129, lost) == PoolFault::none);  // 0 and 1
  REQUIRE(owned.pool.unreturned() == 2);
  REQUIRE(owned.pool.indicate(1, 64, lost) == PoolFault::element_not_with_peer);
  REQUIRE(owned.pool.take_return() == wire::ElementRun{kNumber, 0, 2});
  REQUIRE(owned.pool.indicate(2, 384, lost) == PoolFault::none);  // 2, 3 and 0
  REQUIRE(owned.pool.unreturned() == 3);
  owned.storage[2 * 128] = std::byte{1};
  owned.storage[0] = std::byte{2};
  const auto bytes = owned.pool.bytes_of(2, 384);
  REQUIRE(bytes.first.size() == 256);
  REQUIRE(bytes.first.load<std::uint8_t>(0) == 1);
  REQUIRE(bytes.rest.size() == 128);
  REQUIRE(bytes.rest.load<std::uint8_t>(0) == 2);
}

TEST_CASE("a frame never spans elements that the peer does not hold", "[messaging][pools]") {
  Owned owned(4, 128, true);
  std::uint32_t lost = 0;
  REQUIRE(owned.pool.indicate(0, 513, lost) == PoolFault::length_out_of_range);
  REQUIRE(owned.pool.indicate(0, 0xffffffffU, lost) == PoolFault::length_out_of_range);
  REQUIRE(owned.pool.indicate(0, 128, lost) == PoolFault::none);
  REQUIRE(owned.pool.indicate(1, 385, lost) == PoolFault::element_not_with_peer);
  REQUIRE(owned.pool.indicate(2, 257, lost) == PoolFault::element_not_with_peer);  // with the skipped one, four
  REQUIRE(owned.pool.indicate(2, 256, lost) == PoolFault::none);
  REQUIRE(lost == 1);
  REQUIRE(owned.pool.unreturned() == 4);
  Owned all(4, 128, true);
  REQUIRE(all.pool.indicate(0, 512, lost) == PoolFault::none);
  Owned single(4);
  REQUIRE(single.pool.indicate(0, 129, lost) == PoolFault::length_out_of_range);
}

TEST_CASE("elements of a peer's pool are used in runs, only where all are free", "[messaging][pools]") {
  auto pool = peer_pool(6);
  REQUIRE(pool.has(6));
  REQUIRE_FALSE(pool.has(7));
  pool.consume(4);
  REQUIRE(pool.next() == 4);
  REQUIRE(pool.has(2));
  REQUIRE_FALSE(pool.has(3));
  REQUIRE(pool.take_back(1, 1) == PoolFault::none);  // out of order: no run yet
  REQUIRE(pool.available() == 3);
  REQUIRE_FALSE(pool.has(3));
  REQUIRE(pool.take_back(0, 1) == PoolFault::none);
  REQUIRE(pool.has(4));
  pool.consume(3);
  REQUIRE(pool.next() == 1);
  REQUIRE(pool.has(1));
  REQUIRE_FALSE(pool.has(2));
  REQUIRE(pool.bytes_from(4) == 256);
}

TEST_CASE("a peer's pool is used in ring order and only while elements are free", "[messaging][pools]") {
  auto pool = peer_pool(3);
  for (std::uint32_t element = 0; element < 3; ++element) {
    REQUIRE(pool.next() == element);
    REQUIRE(pool.place_of(element).address == 0x1000 + element * 128);
    pool.consume();
  }
  REQUIRE_FALSE(pool.next());
  REQUIRE(pool.take_back(1, 1) == PoolFault::none);
  REQUIRE_FALSE(pool.next());  // element 0 comes first
  REQUIRE(pool.take_back(0, 1) == PoolFault::none);
  REQUIRE(pool.next() == 0U);
}

TEST_CASE("returning what was not consumed is a fault", "[messaging][pools]") {
  auto pool = peer_pool(4);
  REQUIRE(pool.take_back(0, 1) == PoolFault::element_not_consumed);
  pool.consume();
  REQUIRE(pool.take_back(0, 1) == PoolFault::none);
  REQUIRE(pool.take_back(0, 1) == PoolFault::element_not_consumed);
  pool.consume();
  REQUIRE(pool.take_back(4, 1) == PoolFault::element_out_of_range);
  REQUIRE(pool.take_back(1, 4) == PoolFault::element_out_of_range);
  REQUIRE(pool.take_back(1, 0xffffffffU) == PoolFault::element_out_of_range);
  REQUIRE(pool.take_back(0, 0) == PoolFault::element_out_of_range);
}

TEST_CASE("owner and user agree on every element over many random laps", "[messaging][pools]") {
  SeededRandom random(11);
  for (std::uint32_t elements = 1; elements < 70; ++elements) {
    Owned owned(elements);
    auto user = peer_pool(elements);
    std::deque<std::uint32_t> in_flight;
    for (int step = 0; step < 2000; ++step) {
      switch (random.below(4)) {
        case 0:
        case 1:
          if (const auto next = user.next()) {
            user.consume();
            in_flight.push_back(*next);
          }
          break;
        case 2:
          if (!in_flight.empty()) {
            if (random.below(20) == 0 && in_flight.size() > 1) in_flight.pop_front();  // lost
            std::uint32_t lost = 0;
            REQUIRE(owned.pool.indicate(in_flight.front(), 64, lost) == PoolFault::none);
            in_flight.pop_front();
          }
          break;
        default:
          if (const auto run = owned.pool.take_return()) {
            REQUIRE(user.take_back(run->first, run->elements) == PoolFault::none);
          }
      }
      REQUIRE(user.available() + in_flight.size() + owned.pool.unreturned() <= elements);
    }
  }
}

}  // namespace splitnic::messaging::buffer_pools_test
