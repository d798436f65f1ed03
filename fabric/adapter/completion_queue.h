#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "common/check.h"
#include "fabric/adapter/completion_channel.h"
#include "fabric/adapter/ring.h"
#include "fabric/adapter/work.h"

namespace splitnic::fabric {

/// Completions in the order in which requests ended. With CompletionRoom::reserved a posted request reserves its
/// place, so no peer can overflow the queue: if no place is left, the post is refused. (A receive of a shared queue
/// reserves its place only when a message takes it, so these receives can overrun the queue.) With unreserved, a
/// completion that finds no room is lost, and the queue fails; and flushed completions come in polls of their own.
/// Thread: the adapter's owner.
class CompletionQueue {
 public:
  /// channel: may be null; lent.
  CompletionQueue(std::size_t capacity, CqNumber number, CompletionChannel* channel, CompletionRoom room)
      : ring_(capacity),
        capacity_(capacity),
        reserves_(room == CompletionRoom::reserved),
        channel_(channel),
        number_(number) {}

  /// Places that reserve() would give.
  [[nodiscard]] std::size_t room() const {
    if (!reserves_) return std::numeric_limits<std::size_t>::max();
    return capacity_ - reserved_ - waiting();
  }
  /// Takes a place for one completion; false when the queue can't promise one.
  [[nodiscard]] bool reserve() {
    if (room() == 0) return false;
    ++reserved_;
    return true;
  }
  /// places: at most room().
  void reserve(std::size_t places) { reserved_ += places; }
  /// A request ended without a completion: its place is free again.
  void release() {
    SPLITNIC_CHECK(reserved_ > 0);
    --reserved_;
  }
  /// Uses one reserved place; make(Completion&) completes an empty completion there. False: there was no room, or has
  /// been none before.
  template <class Make>
  [[nodiscard]] bool push(Make&& make) {
    release();
    if (failed_ || waiting() == capacity_) return false;
    Completion& completion = ring_[pushed_++];
    completion = Completion{};
    make(completion);
    if (armed_ != Arm::nothing) [[unlikely]]
      notify_if_armed(completion);
    return true;
  }
  /// Several successes in a row, each in a reserved place: what they change of the queue is kept here until end().
  /// There is no room where completions call for more than that: the queue is armed or has failed.
  class Row {
   public:
    explicit Row(CompletionQueue& queue)
        : places_(queue.ring_.places()),
          reserved_(queue.reserved_),
          kept_(queue.reserves_ ? 1 : 0),
          pushed_(queue.pushed_),
          end_(queue.failed_ || queue.armed_ != Arm::nothing ? queue.pushed_ : queue.polled_ + queue.capacity_) {}

    [[nodiscard]] bool has_room() const { return pushed_ != end_ && reserved_ != 0; }
    /// Uses the next place, which the caller fills. has_room().
    [[nodiscard]] Completion& next() {
      --reserved_;
      return places_[pushed_++];
    }
    /// As reserve() and next().
    [[nodiscard]] bool has_free_place() const { return end_ - pushed_ > kept_ * reserved_; }
    [[nodiscard]] Completion& next_free() { return places_[pushed_++]; }
    /// A request ended without a completion. has_room().
    void release() { --reserved_; }
    [[nodiscard]] std::uint64_t pushed() const { return pushed_; }
    void end(CompletionQueue& queue) const {
      queue.reserved_ = reserved_;
      queue.pushed_ = pushed_;
    }

   private:
    Ring<Completion>::Places places_;
    std::size_t reserved_;
    std::size_t kept_;  // times reserved_: the places that are not free
    std::uint64_t pushed_;
    std::uint64_t end_;
  };
  /// It takes no completions any more. False: it failed before.
  bool fail() { return !std::exchange(failed_, true); }
  [[nodiscard]] bool failed() const { return failed_; }
  /// to_come: completions that posted requests will make. False: more places are taken, or will be.
  [[nodiscard]] bool resize(std::size_t capacity, std::size_t to_come) {
    if (waiting() + (reserves_ ? reserved_ : to_come) > capacity) return false;
    Ring<Completion> ring(capacity);
    for (std::uint64_t position = polled_; position != pushed_; ++position) ring[position] = ring_[position];
    ring_ = std::move(ring);
    capacity_ = capacity;
    return true;
  }
  /// Drops the completions of a queue pair that wait. The others move up, so that pushed() never goes back: each by as
  /// many places as are dropped behind it. Returns what pushed() was with those that are dropped, newest first.
  [[nodiscard]] std::vector<std::uint64_t> forget(QpNumber queue_pair) {
    std::vector<std::uint64_t> dropped;
    std::uint64_t kept = pushed_;
    for (std::uint64_t position = pushed_; position != polled_; --position) {
      const Completion& completion = ring_[position - 1];
      if (completion.queue_pair == queue_pair) {
        dropped.push_back(position);
      } else {
        ring_[--kept] = completion;
      }
    }
    polled_ = kept;
    return dropped;
  }
  /// Whether every posted request has a place here.
  [[nodiscard]] bool reserves() const { return reserves_; }
  /// How many completions were pushed so far.
  [[nodiscard]] std::uint64_t pushed() const { return pushed_; }
  /// A completion that was the pushed()-th is taken out if this is at least as many. A queue that reserves places
  /// protects itself: there all count as taken out.
  [[nodiscard]] std::uint64_t taken_out() const {
    return reserves_ ? std::numeric_limits<std::uint64_t>::max() : polled_;
  }
  /// Takes out the oldest completions, as many as there are and fit; returns how many. An unreserved queue takes out a
  /// flushed completion only if those before it in this poll were flushed, too: a program that got all that it waits
  /// for ends without looking at what its peer's end flushed. goes_on: continues a poll that took out others.
  [[nodiscard]] std::size_t poll(std::span<Completion> out, bool goes_on = false) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), pushed_ - polled_));
    if (reserves_) {
      for (std::size_t i = 0; i < count; ++i) out[i] = ring_[polled_ + i];
      polled_ += count;
      return count;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Completion& next = ring_[polled_];
      const bool flushed = next.status == CompletionStatus::flushed;
      if (flushed && goes_on) {
        if (armed_ != Arm::nothing) notify_if_armed(next);  // the caller may take this poll for the last
        return i;
      }
      goes_on = !flushed;
      out[i] = next;
      ++polled_;
    }
    return count;
  }

  /// Arming for `next` is not weakened by `solicited`. What is in the queue already does not notify: arm, then poll
  /// once more.
  void arm(Arm what) {
    if (armed_ != Arm::next) armed_ = what;
  }
  [[nodiscard]] CompletionChannel* channel() const { return channel_; }
  [[nodiscard]] CqNumber number() const { return number_; }

  std::size_t users = 0;  ///< queue pairs whose requests end here, each direction counted

 private:
  [[nodiscard]] std::size_t waiting() const { return static_cast<std::size_t>(pushed_ - polled_); }
  void notify_if_armed(const Completion& completion) {
    const bool wanted = armed_ == Arm::next || completion.solicited || completion.status != CompletionStatus::success;
    if (!wanted) return;
    armed_ = Arm::nothing;
    channel_->notify(number_);
  }

  Ring<Completion> ring_;
  std::size_t capacity_;
  bool reserves_;
  bool failed_ = false;
  std::size_t reserved_ = 0;
  std::uint64_t pushed_ = 0;
  std::uint64_t polled_ = 0;
  Arm armed_ = Arm::nothing;
  CompletionChannel* channel_;
  CqNumber number_;
};

}  // namespace splitnic::fabric
