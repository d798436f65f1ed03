#include "iounit/receiver_share.h"

#include <algorithm>

namespace splitnic::iounit {

ReceiverShare::Verdict ReceiverShare::admit(std::size_t number, const messaging::Credits& offered, Time now) {
  if (offered.elements == 0) return Verdict::admitted;
  release(offered.elements - offered.free);
  if (number >= senders_.size()) senders_.resize(number + 1);
  Sender& sender = senders_[number];
  note_sender(number, now);
  judge(sender, now);
  if (is_limited(number, offered.first_pool, now)) {
    ++sender.refused;
    return Verdict::restrained;
  }
  // A host returns its elements by the quarter of a pool. A shorter queue than this would leave it without work.
  const std::uint32_t long_queue = std::max(1U, offered.first_pool * 3 / 8);
  if (queued_ < long_queue) return Verdict::admitted;
  const std::uint32_t senders = competing();
  if (senders < 2 || sender.held < std::max(1U, offered.first_pool / (2 * senders))) return Verdict::admitted;
  const bool few_left = offered.free <= offered.elements / 4 || offered.few_writes;
  if (!sender.restrained && !few_left) return Verdict::admitted;
  ++sender.refused;
  return sender.restrained ? Verdict::restrained : Verdict::over_part;
}

void ReceiverShare::took(std::size_t number, const messaging::Credits& left) {
  const std::uint32_t filled = left.elements - left.free;
  if (filled <= queued_) return release(filled);
  make_room(left.elements);
  const std::uint32_t added = filled - queued_;
  const auto run = [&](std::size_t index) -> Run& { return runs_[(oldest_run_ + index) % runs_.size()]; };
  if (run_count_ != 0 && run(run_count_ - 1).sender == number) {
    run(run_count_ - 1).elements += added;
  } else {
    run(run_count_++) = {static_cast<std::uint32_t>(number), added};
  }
  senders_[number].held += added;
  senders_[number].elements += added;
  ++senders_[number].taken;
  queued_ = filled;
}

std::uint32_t ReceiverShare::competing() const { return std::max(in_period_, in_last_period_); }

void ReceiverShare::note_sender(std::size_t number, Time now) {
  if (number != newest_sender_) others_at_ = newest_at_;
  newest_sender_ = number;
  newest_at_ = now;
  Sender& sender = senders_[number];
  const Duration period = options_.competes_for / 2;
  if (now >= period_end_) {
    const bool follows = now - period < period_end_;
    in_last_period_ = follows ? in_period_ : 0;
    in_period_ = 0;
    ++period_;
    period_end_ = (follows ? period_end_ : now) + period;
  }
  if (sender.last_period == period_) return;
  sender.last_period = period_;
  ++in_period_;
}

/// Whether a flooder has had what it gets in a period.
bool ReceiverShare::is_limited(std::size_t number, std::uint32_t first_pool, Time now) const {
  const Sender& sender = senders_[number];
  return number != kLan && sender.floods >= options_.floods_after && sender.elements >= std::max(1U, first_pool / 8) &&
         others_at_ > now - options_.others_within;
}

/// A sender that has sent nothing since it was to be judged is not restrained.
void ReceiverShare::judge(Sender& sender, Time now) const {
  if (now < sender.judged_at) return;
  const bool goes_on = now - options_.judged_after < sender.judged_at;
  sender.restrained = goes_on && 2 * sender.refused > sender.taken;
  if (sender.restrained) {
    sender.floods = std::min(sender.floods + 1, 2 * options_.floods_after);
  } else if (sender.floods != 0) {
    const auto periods = 1 + (now - sender.judged_at) / options_.judged_after;
    sender.floods -= static_cast<std::uint32_t>(std::min<std::int64_t>(periods, sender.floods));
  }
  sender.taken = sender.refused = sender.elements = 0;
  sender.judged_at = now + options_.judged_after;
}

/// The host has worked off all but so many of the filled elements, the oldest first.
void ReceiverShare::release(std::uint32_t filled) {
  while (queued_ > filled) {
    Run& oldest = runs_[oldest_run_];
    const std::uint32_t done = std::min(oldest.elements, queued_ - filled);
    senders_[oldest.sender].held -= done;
    queued_ -= done;
    oldest.elements -= done;
    if (oldest.elements != 0) return;
    oldest_run_ = (oldest_run_ + 1) % runs_.size();
    --run_count_;
  }
}

void ReceiverShare::make_room(std::uint32_t elements) {
  if (elements <= runs_.size()) return;
  std::rotate(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(oldest_run_), runs_.end());
  oldest_run_ = 0;
  runs_.resize(elements);
}

}  // namespace splitnic::iounit
