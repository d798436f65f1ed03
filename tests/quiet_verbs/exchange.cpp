#include "exchange.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace splitnic::quiet_verbs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// How often a link asks its bridge for a hang-up, and with it for doorbells.
constexpr Duration kHangUpCheck = milliseconds(10);
/// They make paths and grants.
constexpr int kFirstRounds = 200;
/// Callers take an adapter over after 16 polls without work; until then each message wakes its thread.
constexpr int kPollsWithoutWork = 100;

}  // namespace

bool Exchange::round() {
  sent_ = received_ = 0;
  if (!post()) return false;
  const Time limit = monotonic_now() + seconds(10);
  while (sent_ < sends_ || received_ < receives_) {
    if (!poll() || monotonic_now() > limit) return false;
  }
  return true;
}

void Exchange::poll_in_vain(int times) {
  for (int i = 0; i < times; ++i) static_cast<void>(poll());
}

std::uint64_t Outcome::permitted_calls() const { return 2 * (static_cast<std::uint64_t>(passed / kHangUpCheck) + 1); }

Outcome count_rounds(Exchange& exchange, std::uint64_t rounds, int tries,
                     const std::function<bool(const Outcome&)>& good) {
  Outcome outcome;
  const auto count = [&] {
    exchange.poll_in_vain(kPollsWithoutWork);
    outcome = {};
    const std::uint64_t verbs_before = exchange.verbs();
    const Time begin = monotonic_now();
    start_counting();
    while (outcome.rounds < rounds && exchange.round()) ++outcome.rounds;
    outcome.counted = stop_counting();
    outcome.passed = monotonic_now() - begin;
    outcome.verbs = exchange.verbs() - verbs_before;
  };
  std::thread([&] {
    for (int i = 0; i < kFirstRounds; ++i) {
      if (!exchange.round()) return;
    }
    do count();
    while (--tries > 0 && outcome.rounds == rounds && !good(outcome));
  }).join();
  return outcome;
}

void check_quiet(const std::string& what, Exchange& exchange, const Permitted& permitted) {
  const auto own_calls = [&](const Outcome& of) { return permitted.system_calls_per_round * of.rounds; };
  const auto most_tried = [&](const Outcome& of) { return permitted.others_take_the_lock ? of.verbs : 0; };
  const auto done = [&](const Outcome& of) {
    if (of.counted.allocations != 0) return true;       // nothing but a verb can be the cause
    return of.counted.system_calls >= own_calls(of) &&  // the first may take another way
           of.counted.system_calls <= own_calls(of) + of.permitted_calls() && of.counted.locks == 0 &&
           of.counted.tried_locks <= most_tried(of) && of.counted.failed_tries == 0;
  };
  INFO(what);
  const Outcome outcome = count_rounds(exchange, permitted.rounds, permitted.tries, done);
  REQUIRE(outcome.rounds == permitted.rounds);
  CHECK(outcome.counted.allocations == 0);
  CHECK(outcome.counted.system_calls >= own_calls(outcome));
  CHECK(outcome.counted.system_calls <= own_calls(outcome) + outcome.permitted_calls());
  CHECK(outcome.counted.locks == 0);
  CHECK(outcome.counted.tried_locks <= most_tried(outcome));
  CHECK(outcome.counted.failed_tries == 0);
}

}  // namespace splitnic::quiet_verbs
