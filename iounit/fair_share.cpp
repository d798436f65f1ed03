#include "iounit/fair_share.h"

#include <algorithm>
#include <utility>

namespace splitnic::iounit {

namespace {

constexpr Duration kSecond = std::chrono::seconds(1);

/// Rounds up: a turn that did something is never free.
Duration part_of(Duration whole, std::uint64_t amount, std::uint64_t of) {
  const auto nanoseconds = static_cast<std::uint64_t>(whole.count());
  return Duration(static_cast<Duration::rep>((nanoseconds * amount + of - 1) / of));
}

}  // namespace

void FairShare::add(std::size_t place, Time first) {
  if (place >= accounts_.size()) {
    accounts_.resize(place + 1);
    debtors_.reserve(accounts_.size());
    senders_.reserve(accounts_.size());
  }
  accounts_[place] = Account{};
  accounts_[place].credit = options_.quantum;
  accounts_[place].paid_before = paid_;
  accounts_[place].completions = options_.most_completions;
  accounts_[place].rest_until = first;
  accounts_[place].second_start = first;
}

void FairShare::remove(std::size_t place) {
  to_lan_ -= accounts_[place].to_lan;
  std::erase(debtors_, place);
  std::erase(senders_, place);
  accounts_[place] = Account{};
}

void FairShare::take_credit(std::size_t place, Duration cost) {
  Account& account = accounts_[place];
  account.credit = credit_of(account) - cost;
  account.paid_before = paid_;
  if (account.credit > Duration::zero() || account.in_debt) return;
  account.in_debt = true;
  debtors_.push_back(place);
}

bool FairShare::competes(std::size_t place, Time now) const {
  const Time other = place == last_place_ ? other_worked_ : last_worked_;
  return other != Time::min() && now - other < options_.competes_for;
}

void FairShare::note_worked(std::size_t place, Time now) {
  if (place != last_place_) other_worked_ = last_worked_;
  last_place_ = place;
  last_worked_ = now;
}

void FairShare::charge(std::size_t place, const Turn& turn, Time now) {
  Account& account = accounts_[place];
  const bool others_compete = competes(place, now);
  note_worked(place, now);
  take_credit(place, turn.cost + part_of(options_.quantum, turn.bytes, options_.quantum_bytes));
  account.spent += turn.cost;
  judge(account, now);
  if (!others_compete) {
    account.completions = options_.most_completions;
    return;
  }
  if (turn.cost > options_.long_turn) {
    const auto fitting = account.completions * static_cast<std::size_t>(options_.long_turn.count()) /
                         static_cast<std::size_t>(turn.cost.count());
    account.completions = std::max(fitting, options_.least_completions);
  } else {
    account.completions = std::min(account.completions * 2, options_.most_while_others_compete);
  }
  const Duration justified = options_.per_frame * static_cast<Duration::rep>(turn.frames);
  if (turn.cost > justified) waste(account, turn.cost - justified, now);
}

/// A turn that is all waste, and x times as long as it may be, is followed by a rest of 4 x such turns: the longer its
/// turns, the smaller the part of the time in which a session can hold up the others.
void FairShare::waste(Account& account, Duration wasted, Time now) const {
  account.wasted += wasted;
  account.second_waste += wasted;
  if (wasted <= options_.long_turn || account.second_waste <= options_.free_waste) return;
  const Duration rest = wasted >= options_.rest_max ? options_.rest_max
                                                    : part_of(4 * wasted, static_cast<std::uint64_t>(wasted.count()),
                                                              static_cast<std::uint64_t>(options_.long_turn.count()));
  account.rest_until = now + std::min(rest, options_.rest_max);
  ++account.rests;
}

/// Ends the second that is being judged, if it is over.
void FairShare::judge(Account& account, Time now) const {
  if (now - account.second_start < kSecond) return;
  const bool quiet_since = now - account.second_start >= 2 * kSecond;
  const bool wasteful = account.second_waste > options_.waste_per_second && !quiet_since;
  account.wasteful_seconds = wasteful ? account.wasteful_seconds + 1 : 0;
  account.second_waste = Duration::zero();
  account.second_start = now;
}

void FairShare::sent_to_lan(std::size_t place) {
  if (accounts_[place].to_lan++ == 0) senders_.push_back(place);
  ++to_lan_;
}

void FairShare::charge_lan(Duration cost) {
  if (to_lan_ == 0) return;
  for (const std::size_t place : senders_) {
    Account& account = accounts_[place];
    const Duration part = part_of(cost, std::exchange(account.to_lan, 0), to_lan_);
    take_credit(place, part);
    account.spent += part;
  }
  looks_ += senders_.size();
  senders_.clear();
  to_lan_ = 0;
}

bool FairShare::next_round(Time now) {
  looks_ += debtors_.size();
  std::erase_if(debtors_, [this](std::size_t place) {
    Account& account = accounts_[place];
    account.in_debt = credit_of(account) <= Duration::zero();
    return !account.in_debt;
  });
  Duration least_debt = Duration::max();
  for (const std::size_t place : debtors_) {
    if (!rests(place, now)) least_debt = std::min(least_debt, -credit_of(accounts_[place]));
  }
  if (least_debt == Duration::max()) return false;
  paid_ += (least_debt / options_.quantum + 1) * options_.quantum;
  return true;
}

}  // namespace splitnic::iounit
