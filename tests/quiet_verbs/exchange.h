#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "common/time.h"
#include "counting.h"

namespace splitnic::quiet_verbs {

/// What two connected ends do again and again: they post receives and requests, and poll until all of it is complete.
class Exchange {
 public:
  /// completions of a round, at the end that sends and at the one that receives.
  Exchange(std::size_t sends, std::size_t receives) : sends_(sends), receives_(receives) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// False: a post was refused, a request failed, or ten seconds were not enough.
  [[nodiscard]] bool round();
  void poll_in_vain(int times);
  /// How many verbs were called so far.
  [[nodiscard]] std::uint64_t verbs() const { return verbs_; }

 protected:
  [[nodiscard]] virtual bool post() = 0;
  /// Polls both ends; false: a request has failed.
  [[nodiscard]] virtual bool poll() = 0;

  void count_verb() { ++verbs_; }
  void count_completion(bool of_receive) { ++(of_receive ? received_ : sent_); }

 private:
  std::size_t sends_;
  std::size_t receives_;
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
  std::uint64_t verbs_ = 0;
};

struct Outcome {
  Counted counted{};
  std::uint64_t rounds = 0;
  std::uint64_t verbs = 0;
  Duration passed{};

  /// The time alone decides how often the two ends look at their bridges: these calls are permitted.
  [[nodiscard]] std::uint64_t permitted_calls() const;
};

/// So many rounds, after some that are not counted, in a thread of its own; again and again, until there is nothing to
/// object to them, or they were tried so often. Returns the last ones.
[[nodiscard]] Outcome count_rounds(Exchange& exchange, std::uint64_t rounds, int tries = 1,
                                   const std::function<bool(const Outcome&)>& good = {});

/// What a layer may ask for, and how often that is counted.
struct Permitted {
  std::uint64_t system_calls_per_round = 0;  ///< that move the bytes
  std::uint64_t rounds = 2000;
  /// The adapter's lock may have ceased to be biased to the thread that is counted. Then each verb tries it once.
  bool others_take_the_lock = false;
  /// Until nothing has disturbed the rounds: an end that is kept from its processor may find the other one asleep, and
  /// ring it; or the progress thread has had the adapter's lock, which is biased to nobody then. A call that belongs to
  /// a verb comes in each of them.
  int tries = 20;
};

/// Counts rounds, and fails the test that calls it if they ask for anything else. what: the exchange's name.
void check_quiet(const std::string& what, Exchange& exchange, const Permitted& permitted = {});

}  // namespace splitnic::quiet_verbs
