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
  CHECK(bucket.take(rate, kNow + std::chrono::hours(10000)));
  CHECK_FALSE(bucket.take(1, kNow + std::chrono::hours(10000)));
}

TEST_CASE("an amount larger than the burst is taken from a full bucket, and the rest is owed", "[iounit][rate]") {
  TokenBucket bucket(10, 5);
  CHECK(bucket.take(1, kNow));
  CHECK_FALSE(bucket.take(25, kNow));
  CHECK(bucket.take(25, kNow + milliseconds(100)));
  // 20 are owed, for two seconds.
  CHECK_FALSE(bucket.take(1, kNow + milliseconds(2000)));
  SECTION("then it fills as before") {
    CHECK_FALSE(bucket.take(1, kNow + milliseconds(2199)));
    CHECK(taken(bucket, 10, kNow + milliseconds(2300)) == 2);
    CHECK(taken(bucket, 10, kNow + seconds(60)) == 5);
  }
  SECTION("with other limits as much is owed") {
    bucket.set_limits(100, 50);
    CHECK_FALSE(bucket.take(1, kNow + milliseconds(2019)));  // one was owed
    CHECK(taken(bucket, 10, kNow + milliseconds(2050)) == 4);
  }
  SECTION("also after a time without a limit") {
    bucket.set_limits(0, 0);
    CHECK(taken(bucket, 10, kNow + milliseconds(2150)) == 10);
    bucket.set_limits(10, 5);
    CHECK_FALSE(bucket.take(1, kNow + milliseconds(2199)));
    CHECK(bucket.take(1, kNow + milliseconds(2200)));
  }
}

TEST_CASE("what nobody can refuse is owed, up to a bound that never wraps", "[iounit][rate]") {
  TokenBucket bucket(10, 5);
  bucket.owe(4, kNow);
  CHECK(taken(bucket, 10, kNow) == 1);
  bucket.owe(10, kNow);
  CHECK(taken(bucket, 10, kNow + milliseconds(1000)) == 0);
  CHECK(taken(bucket, 10, kNow + milliseconds(1100)) == 1);
  TokenBucket fast(TokenBucket::kMaxRate, TokenBucket::kMaxRate);
  for (unsigned again = 0; again < 10; ++again) fast.owe(TokenBucket::kMaxRate, kNow);
  CHECK_FALSE(fast.take(1, kNow + milliseconds(249)));
  CHECK(fast.take(TokenBucket::kMaxRate, kNow + seconds(2)));
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
