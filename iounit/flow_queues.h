#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace splitnic::iounit {

/// Queues of one host, the session's own among them.
inline constexpr std::size_t kMaxQueues = 8;

/// Which queue of a host the frames of each flow to it take. A flow takes the queue in which the host sends its other
/// direction, as the host's kernel expects it. A flow that the host has not sent yet takes one by its number.
///
/// Order: a flow changes its queue only when the host has worked off everything of it that is in the old queue, or when
/// the old queue is gone. So the frames of a flow never overtake each other.
/// Bounded: the table remembers 2048 flows, in sets of four, and forgets one only when nothing of it is under way.
/// Thread: the unit's.
class FlowQueues {
 public:
  FlowQueues();

  /// The queue is up, with nothing under way; or it is gone, and what was under way is lost. At least one queue is up
  /// when a frame is to be sent.
  void set_up(std::size_t queue, bool up);
  /// The host has sent a frame of the flow in this queue.
  void heard(std::uint64_t flow, std::size_t queue);
  /// The queue for the flow's next frame. is_empty(queue): whether the host has worked off all its frames.
  template <class IsEmpty>
  [[nodiscard]] std::size_t queue_for(std::uint64_t flow, IsEmpty&& is_empty) {
    Flow* const found = find(flow);
    if (found == nullptr) return current_queue_ = by_number(flow);
    if (found->wanted != found->queue || !up_[found->queue]) {
      if (found->mark > settled_[found->queue] && up_[found->queue] && is_empty(found->queue)) note_empty(found->queue);
      change(*found);
    }
    current_ = found;
    return current_queue_ = found->queue;
  }
  /// The host has worked off all frames of the queue.
  void note_empty(std::size_t queue) { settled_[queue] = sent_[queue]; }
  /// The frame that queue_for() was asked about is in its queue.
  void sent();

 private:
  struct Flow {
    std::uint64_t number = 0;
    std::uint64_t mark = 0;   // sent_ of its queue after its last frame there
    std::uint8_t queue = 0;   // of frames to the host
    std::uint8_t wanted = 0;  // the queue in which the host sends, or `queue`
    bool used = false;
  };
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kSets = 512;
  struct Set {
    std::array<Flow, kWays> flows{};
    bool crowded = false;  // frames of flows without an entry may be under way
  };

  [[nodiscard]] Flow* find(std::uint64_t flow);
  [[nodiscard]] Set& set_of(std::uint64_t flow) { return sets_[flow % kSets]; }
  [[nodiscard]] bool settled(const Flow& flow) const { return !up_[flow.queue] || flow.mark <= settled_[flow.queue]; }
  [[nodiscard]] std::size_t by_number(std::uint64_t flow) const;
  void change(Flow& flow) const;

  std::vector<Set> sets_;
  std::array<bool, kMaxQueues> up_{};
  std::array<std::uint64_t, kMaxQueues> sent_{};     // frames given to the queue
  std::array<std::uint64_t, kMaxQueues> settled_{};  // of these, those that the host has certainly worked off
  Flow* current_ = nullptr;                          // of the last queue_for(); null: it has no entry
  std::size_t current_queue_ = 0;
};

}  // namespace splitnic::iounit
