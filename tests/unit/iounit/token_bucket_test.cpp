#include "iounit/token_bucket.h"

#include <catch2/catch.hpp>

namespace splitnic::iounit::token_bucket_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kNow{std::chrono::hours(1)};

std::uint64_t taken(TokenBucket& bucket, std::uint64_t tries, Time now) {
  std::uint64_t count = 0;
  for (; tries > 0; --tries) count += bucket.take(1, now) ? 1 : 0;
  return count;
}

TEST_CASE("without a rate everything may be taken", "[iounit][rate]") {
  TokenBucket bucket;
  CHECK(bucket.take(~std::uint64_t{0}, kNow));
  CHECK(taken(bucket, 1000, kNow) == 1000);
}

TEST_CASE("first the burst, then exactly the rate", "[iounit][rate]") {
  TokenBucket bucket(3, 5);
  CHECK(taken(bucket, 10, kNow) == 5);
  CHECK(taken(bucket, 10, kNow + milliseconds(333)) == 0);
  CHECK(taken(bucket, 10, kNow + milliseconds(334)) == 1);
  std::uint64_t more = 0;
  for (unsigned ms = 335; ms <= 10000; ++ms) more += taken(bucket, 2, kNow + milliseconds(ms));
  CHECK(more == 29);  // 30 in ten seconds, one taken before
}

TEST_CASE("a long pause fills the bucket and no more, whatever the rate", "[iounit][rate]") {
  const std::uint64_t rate = GENERATE(1U, 1000U, TokenBucket::kMaxRate);
  TokenBucket bucket(rate, rate);
  CHECK(bucket.take(rate, kNow));
  CHECK_FALSE(bucket.take(1, kNow));
  CHECK(bucket.take(rate, kNow + seconds(1)));
  CHECK_FALSE(bucket.take(1, kNow + seconds(1)));
  CHECK_FALSE(bucket.take(rate + 1, kNow + std::chrono::hours(10000)));
  CHECK(bucket.take(rate, kNow + std::chrono::hours(10000)));
}

TEST_CASE("a burst larger than a second's amount refills in its own time", "[iounit][rate]") {
  TokenBucket bucket(1000, 65536);
  CHECK(bucket.take(65536, kNow));
  CHECK_FALSE(bucket.take(65536, kNow + milliseconds(65535)));
  CHECK(bucket.take(65536, kNow + milliseconds(65536)));
}

TEST_CASE("a bucket whose limits change is filled as much as before", "[iounit][rate]") {
  TokenBucket bucket(10, 100);
  CHECK(taken(bucket, 75, kNow) == 75);
  SECTION("they stay the same") { bucket.set_limits(10, 100); }
  SECTION("more") {
    bucket.set_limits(10, 400);
    CHECK(taken(bucket, 75, kNow) == 75);
  }
  SECTION("less, then more, up to the highest rate") {
    bucket.set_limits(1, 4);
    bucket.set_limits(TokenBucket::kMaxRate, TokenBucket::kMaxRate);
    CHECK(bucket.take(TokenBucket::kMaxRate / 4 - 25, kNow));
  }
  SECTION("no limit for a time") {
    bucket.set_limits(0, 0);
    CHECK(taken(bucket, 1000, kNow) == 1000);
    bucket.set_limits(10, 100);
  }
  CHECK(taken(bucket, 200, kNow) == 25);
}

TEST_CASE("a bucket that gets its first limits is full, and so is one that was full before", "[iounit][rate]") {
  TokenBucket bucket;
  CHECK(taken(bucket, 1000, kNow) == 1000);
  bucket.set_limits(1, 5);
  bucket.set_limits(TokenBucket::kMaxRate - 1, TokenBucket::kMaxRate - 1);
  CHECK(bucket.take(TokenBucket::kMaxRate - 1, kNow));
  CHECK_FALSE(bucket.take(1, kNow));
}

}  // namespace
}  // namespace splitnic::iounit::token_bucket_test
