#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "fabric/faults/fault_specification.h"

namespace splitnic::fabric::faults_specification_test {
namespace {

std::string refusal_of(std::string_view text) {
  const auto parsed = parse_faults(text);
  REQUIRE_FALSE(parsed.has_value());
  return parsed.error().message;
}

}  // namespace

TEST_CASE("a fault specification says what every fault needs, in any order", "[fabric][faults]") {
  const auto all = parse_faults(
      "42,rnr=7,cq-error=rem-access-err:9,drop=1000,delay=3:1500,kill-peer=18446744073709551615,corrupt=0,"
      "lost-ack=8,duplicate=9");
  REQUIRE(all.has_value());
  CHECK(all->seed == 42);
  CHECK(all->drop_permille == 1000);
  CHECK(all->corrupt_permille == 0);
  CHECK(all->rnr_permille == 7);
  CHECK(all->lost_ack_permille == 8);
  CHECK(all->duplicate_permille == 9);
  CHECK(all->delay_permille == 3);
  CHECK(all->delay == std::chrono::microseconds(1500));
  CHECK(all->kill_peer == 18446744073709551615U);
  CHECK(all->cq_error == 9);
  CHECK(all->cq_status == CompletionStatus::remote_access_error);
}

TEST_CASE("a fault that is not named does not happen, and a seed alone stands for a mix", "[fabric][faults]") {
  const auto one = parse_faults("1,drop=5");
  REQUIRE(one.has_value());
  CHECK(one->drop_permille == 5);
  CHECK(one->corrupt_permille + one->rnr_permille + one->delay_permille == 0);
  CHECK(one->kill_peer + one->cq_error == 0);
  const auto mix = parse_faults("18446744073709551615");
  REQUIRE(mix.has_value());
  CHECK(mix->seed == 18446744073709551615U);
  for (const unsigned rate : {mix->drop_permille, mix->corrupt_permille, mix->rnr_permille, mix->delay_permille}) {
    CHECK(rate == 5);
  }
  CHECK(mix->delay > Duration::zero());
  CHECK(mix->kill_peer + mix->cq_error == 0);
}

TEST_CASE("a wrong word of a fault specification is named, with what it should be", "[fabric][faults]") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"", "faults: '' is not a seed, which is a number and stands first"},
      {"drop=5", "faults: 'drop=5' is not a seed, which is a number and stands first"},
      {"-1,drop=5", "faults: '-1' is not a seed, which is a number and stands first"},
      {"18446744073709551616", "faults: '18446744073709551616' is not a seed, which is a number and stands first"},
      {"1,",
       "faults: '' is not one of the faults drop, corrupt, delay, rnr, kill-peer, cq-error, duplicate, "
       "lost-ack"},
      {"1,drop=5,",
       "faults: '' is not one of the faults drop, corrupt, delay, rnr, kill-peer, cq-error, duplicate, "
       "lost-ack"},
      {"1,reorder=5",
       "faults: 'reorder' is not one of the faults drop, corrupt, delay, rnr, kill-peer, cq-error, duplicate, "
       "lost-ack"},
      {"1,drop", "faults: drop: '' is not a rate of 0 to 1000 permille"},
      {"1,drop=1001", "faults: drop: '1001' is not a rate of 0 to 1000 permille"},
      {"1,corrupt=5%", "faults: corrupt: '5%' is not a rate of 0 to 1000 permille"},
      {"1,rnr=+5", "faults: rnr: '+5' is not a rate of 0 to 1000 permille"},
      {"1,drop=1,rnr=2,drop=3", "faults: 'drop' stands twice"},
      {"1,delay=5", "faults: delay: '5' is not PERMILLE:MICROSECONDS, with at most 10000000 us"},
      {"1,delay=5:10000001", "faults: delay: '5:10000001' is not PERMILLE:MICROSECONDS, with at most 10000000 us"},
      {"1,delay=x:1", "faults: delay: 'x' is not a rate of 0 to 1000 permille"},
      {"1,kill-peer=0", "faults: kill-peer: '0' is not the number of a request, from 1 on"},
      {"1,cq-error=rem-op-err", "faults: cq-error: '' is not the number of a request, from 1 on"},
      {"1,cq-error=rem-op-err:0", "faults: cq-error: '0' is not the number of a request, from 1 on"},
  }));
  CHECK(refusal_of(text) == expected);
}

TEST_CASE("an unknown status in a fault specification is answered with those that there are", "[fabric][faults]") {
  const std::string refused = refusal_of("1,cq-error=wr-flush-err:3");
  CHECK(refused.find("cq-error: 'wr-flush-err' is not one of the statuses loc-len-err, ") != std::string::npos);
  for (const char* name : {"loc-len-err", "loc-qp-op-err", "loc-prot-err", "rem-inv-req-err", "rem-access-err",
                           "rem-op-err", "retry-exc-err", "rnr-retry-exc-err"}) {
    CHECK(refused.find(name) != std::string::npos);
    const auto parsed = parse_faults(std::string("1,cq-error=") + name + ":3");
    REQUIRE(parsed.has_value());
    CHECK(name_of(parsed->cq_status) == name);
  }
}

}  // namespace splitnic::fabric::faults_specification_test
