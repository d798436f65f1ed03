#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/time.h"
#include "messaging/session_types.h"

namespace splitnic::iounit {

struct ReceiverShareOptions {
  /// A sender counts as one that competes for the receiver for at most so long after its last frame, and for half of
  /// that at least.
  Duration competes_for = std::chrono::seconds(2);
  /// A sender is judged after so long: if more than a third of its frames were refused, it is restrained for as long.
  Duration judged_after = std::chrono::milliseconds(10);
  /// A host is a flooder when the periods in which it was to be restrained are so many more than the others. The
  /// difference is counted up to twice this.
  std::uint32_t floods_after = 10;
  /// A flooder is limited to few elements as long as others have sent to the receiver within this time.
  Duration others_within = std::chrono::milliseconds(100);
};

/// Divides the elements of one receiving host among those that send to it: the LAN and the other hosts. Filled elements
/// are a queue that the host works off in order, so a sender that fills them faster delays every frame behind its own.
///
/// A sender that is alone may take all elements. While others compete, a sender that holds less than its part may take
/// any free element. One that holds its part or more never takes the last quarter of the elements. If it goes on
/// sending much more than it gets, which TCP does not, it is restrained: it takes elements only while the queue is
/// short. A host that has to be restrained again and again gets an eighth of the first pool in each period while others
/// send. Otherwise the receiver would work on its frames all the time, and on a busy machine a program that works all
/// the time waits for a processor before it handles the frames of others. This holds for hosts alone: the LAN is many
/// stations.
///
/// Takes the same time for any number of senders and elements. Allocates memory for a sender's first frame and when the
/// host has more elements than before. A core without a clock. Source: design, "Trust" (fair shares).
class ReceiverShare {
 public:
  /// A sender's number: the LAN, or a host by its place.
  static constexpr std::size_t kLan = 0;
  static constexpr std::size_t of_host(std::size_t place) { return place + 1; }

  explicit ReceiverShare(ReceiverShareOptions options = {}) : options_(options) {}

  enum class Verdict : std::uint8_t {
    admitted,
    over_part,   ///< the sender has more than its part, and elements are short
    restrained,  ///< the sender has more than its part, and a queue is long enough for one that was refused so often
  };
  /// Whether a sender's frame may take elements now. offered: the host's elements as they are now; without pools every
  /// frame is admitted.
  [[nodiscard]] Verdict admit(std::size_t sender, const messaging::Credits& offered, Time now);
  /// The frame has taken elements. left: the host's elements after that.
  void took(std::size_t sender, const messaging::Credits& left);

  /// Elements that the sender's frames fill at present, as of the last call of admit() or took().
  [[nodiscard]] std::uint32_t held(std::size_t sender) const {
    return sender < senders_.size() ? senders_[sender].held : 0;
  }
  /// Senders that compete at present, as of the last call of admit().
  [[nodiscard]] std::uint32_t competing() const;

 private:
  struct Sender {
    std::uint32_t held = 0;
    std::uint64_t last_period = 0;  // in which it last sent
    Time judged_at = Time::min();
    std::uint32_t taken = 0;  // frames, since it was judged last
    std::uint32_t refused = 0;
    bool restrained = false;
    std::uint32_t elements = 0;  // taken since it was judged last
    std::uint32_t floods = 0;    // periods in which it was to be restrained, less the others
  };
  /// Filled elements of one sender, in the order of the queue.
  struct Run {
    std::uint32_t sender = 0;
    std::uint32_t elements = 0;
  };

  void note_sender(std::size_t number, Time now);
  void judge(Sender& sender, Time now) const;
  [[nodiscard]] bool is_limited(std::size_t number, std::uint32_t first_pool, Time now) const;
  void release(std::uint32_t filled);
  void make_room(std::uint32_t elements);

  ReceiverShareOptions options_;
  std::vector<Sender> senders_;  // by number
  std::vector<Run> runs_;        // a ring; every run has an element at least, so it has a place for each element
  std::size_t oldest_run_ = 0;
  std::size_t run_count_ = 0;
  std::uint32_t queued_ = 0;  // sum of the runs, and of every Sender::held
  // Senders are counted in periods of half of competes_for.
  std::uint64_t period_ = 1;
  Time period_end_ = Time::min();
  std::uint32_t in_period_ = 0;
  std::uint32_t in_last_period_ = 0;
  // The sender of the last frame, when that was, and when another one sent last.
  std::size_t newest_sender_ = kLan;
  Time newest_at_ = Time::min();
  Time others_at_ = Time::min();
};

}  // namespace splitnic::iounit
