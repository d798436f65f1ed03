#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "fabric/verbs/types.h"

namespace splitnic::verbs {

/// Gets the notifications of armed completion queues.
class CompletionChannel : public Handle<detail::ChannelObject> {
 public:
  using Handle::Handle;

  /// Takes the oldest notification: the number of a queue. Each armed queue notifies once.
  [[nodiscard]] std::optional<CqNumber> take();
};

/// Completions, in the order in which the requests ended.
class CompletionQueue : public Handle<detail::CompletionQueueObject> {
 public:
  using Handle::Handle;

  /// Takes the oldest completions; returns how many.
  [[nodiscard]] std::size_t poll(std::span<Completion> out);
  /// Makes the next completion of the kind notify the channel and disarm the queue. A completion that is already in the
  /// queue does not notify: arm, then poll once more. Errors: bad_argument (also: the queue has no channel).
  Status arm(Arm what);
  /// Makes room for more completions, or for fewer; what is in the queue stays. Errors: bad_argument, bad_length (0,
  /// beyond the limit), in_use (more completions than that wait, or are promised to posted requests).
  Status resize(std::size_t capacity);
  /// The number in notifications; 0 in a null handle.
  [[nodiscard]] CqNumber number() const;
};

/// A queue of receives for several queue pairs of one domain.
class SharedReceiveQueue : public Handle<detail::SharedReceiveQueueObject> {
 public:
  using Handle::Handle;

  /// Errors: bad_argument, queue_full, bad_tag, bad_length.
  Status post_receive(const ReceiveRequest& request);
  /// Posts a list, in order, up to the first request that is refused; its status is returned. posted: how many requests
  /// were taken.
  Status post_receive(std::span<const ReceiveRequest> requests, std::size_t& posted);
  /// What is posted stays. Errors: bad_argument, bad_length (0, beyond the limit), in_use (more is posted).
  Status resize(std::size_t depth);
  /// Arms one event, shared_receive_limit, for when fewer than `receives` are left; 0 disarms. Errors: bad_argument
  /// (also: more than the depth).
  Status arm_limit(std::size_t receives);
  /// The number in events; 0 in a null handle.
  [[nodiscard]] SrqNumber number() const;
};

}  // namespace splitnic::verbs
