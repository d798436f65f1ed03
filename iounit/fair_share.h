#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/time.h"

namespace splitnic::iounit {

struct FairShareOptions {
  /// What a session may spend in one round.
  Duration quantum = std::chrono::microseconds(100);
  /// How many bytes count as a quantum, in addition to the measured time: they use memory and the LAN after the turn.
  std::uint64_t quantum_bytes = 512 * 1024;
  /// Processor time that a valid frame justifies. What a session costs beyond that is waste.
  Duration per_frame = std::chrono::microseconds(100);
  /// A turn beyond this is shortened next time, and if so much was waste, the session rests.
  Duration long_turn = std::chrono::microseconds(250);
  Duration rest_max = std::chrono::milliseconds(200);
  /// In each second, so much waste costs no rest: to set up a session takes long turns without frames.
  Duration free_waste = std::chrono::milliseconds(5);
  /// A session that wastes more than this in each of so many seconds in succession is to be ejected.
  Duration waste_per_second = std::chrono::milliseconds(50);
  unsigned wasteful_seconds = 3;
  /// For so long after its last turn with work, a session counts as one that others compete with.
  Duration competes_for = std::chrono::milliseconds(100);
  /// Completions that a turn handles at most, alone and while others compete; and at least, however much it costs.
  /// Everybody else waits for a turn, and for its frames' way to the LAN. Fewer than a poll of the fabric brings (64)
  /// would let them pile up until the session finds no room for more.
  std::size_t most_completions = 128;
  std::size_t most_while_others_compete = 64;
  std::size_t least_completions = 4;
};

/// What one turn of a session did.
struct Turn {
  Duration cost{};           ///< measured
  std::uint64_t bytes = 0;   ///< of frames
  std::uint64_t frames = 0;  ///< valid ones from this host, and those delivered to it
};

/// Divides the unit's work among the sessions of its hosts, by deficit round robin. In each round a session may spend a
/// quantum of processor time and bytes. A turn is never interrupted, so a session may spend more; then it waits until
/// later rounds have paid for it. A round ends when no session with credit has work, so the unit never waits while a
/// session has something to do. Credit never exceeds one quantum: nobody saves it up by idling. While others compete, a
/// session that wastes processor time also rests after long turns, and is to be ejected in the end.
/// A core without a clock. Source: design, "Trust"; Shreedhar and Varghese, Efficient Fair Queuing Using Deficit Round
/// Robin, 1995.
class FairShare {
 public:
  explicit FairShare(FairShareOptions options = {}) : options_(options) {}

  /// Opens the account of a session, which has its first turn at `first` or later. place: free.
  void add(std::size_t place, Time first);
  void remove(std::size_t place);

  /// Whether the session rests, whatever its credit.
  [[nodiscard]] bool rests(std::size_t place, Time now) const { return now < accounts_[place].rest_until; }
  [[nodiscard]] Time rest_until(std::size_t place) const { return accounts_[place].rest_until; }
  [[nodiscard]] bool has_credit(std::size_t place) const { return credit_of(accounts_[place]) > Duration::zero(); }
  /// How many completions its next turn may handle.
  [[nodiscard]] std::size_t completions(std::size_t place) const { return accounts_[place].completions; }

  /// The session's turn had work and has ended.
  void charge(std::size_t place, const Turn& turn, Time now);
  /// It has given a frame to the LAN.
  void sent_to_lan(std::size_t place);
  /// Divides the cost of sending to the LAN among those that have sent, by frames.
  void charge_lan(Duration cost);
  /// No session with credit had work: starts as many rounds as it takes until a session has credit that had none.
  /// False: all that do not rest have credit.
  bool next_round(Time now);

  [[nodiscard]] bool is_wasteful(std::size_t place) const {
    return accounts_[place].wasteful_seconds >= options_.wasteful_seconds;
  }
  /// Processor time of its turns so far.
  [[nodiscard]] Duration spent(std::size_t place) const { return accounts_[place].spent; }
  /// Of that, what it wasted while others competed.
  [[nodiscard]] Duration wasted(std::size_t place) const { return accounts_[place].wasted; }
  /// Turns after which it had to rest.
  [[nodiscard]] std::uint64_t rests_taken(std::size_t place) const { return accounts_[place].rests; }
  /// Accounts that next_round() and charge_lan() have looked at: those in debt and those that have sent, never the idle
  /// ones.
  [[nodiscard]] std::uint64_t looks() const { return looks_; }

 private:
  struct Account {
    Duration credit{};       // without what rounds have paid since `paid_before`
    Duration paid_before{};  // paid_ when credit was last settled
    bool in_debt = false;    // listed in debtors_
    std::size_t completions = 0;
    Time rest_until{};
    Time second_start{};  // of the second that is being judged
    Duration second_waste{};
    unsigned wasteful_seconds = 0;  // in succession, up to second_start
    std::uint64_t to_lan = 0;       // frames that charge_lan() has not charged yet
    Duration spent{};
    Duration wasted{};
    std::uint64_t rests = 0;
  };
  /// The account's credit with all rounds so far. A round pays every session, but touches no account.
  [[nodiscard]] Duration credit_of(const Account& account) const {
    return std::min(account.credit + (paid_ - account.paid_before), options_.quantum);
  }
  void take_credit(std::size_t place, Duration cost);
  /// Whether another session had work lately. Call before note_worked().
  [[nodiscard]] bool competes(std::size_t place, Time now) const;
  void note_worked(std::size_t place, Time now);
  void judge(Account& account, Time now) const;
  void waste(Account& account, Duration wasted, Time now) const;

  FairShareOptions options_;
  std::vector<Account> accounts_;  // by place
  Duration paid_{};                // to each session, by all rounds
  // These lists never grow beyond what add() has reserved.
  std::vector<std::size_t> debtors_;  // places whose credit was used up when they were last charged
  std::vector<std::size_t> senders_;  // places with to_lan
  std::uint64_t to_lan_ = 0;          // sum of Account::to_lan
  std::uint64_t looks_ = 0;
  // The session that worked last, and the last one that worked among the others.
  std::size_t last_place_ = ~std::size_t{0};
  Time last_worked_ = Time::min();
  Time other_worked_ = Time::min();
};

}  // namespace splitnic::iounit
