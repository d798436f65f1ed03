#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "fabric/verbs/types.h"

namespace splitnic::verbs {

/// Where armed completion queues report.
class CompletionChannel : public Handle<detail::ChannelObject> {
 public:
  using Handle::Handle;

  /// The oldest notification: the queue's number. Each armed queue notifies once.
  [[nodiscard]] std::optional<CqNumber> take();
};

/// Completions in the order in which requests ended.
class CompletionQueue : public Handle<detail::CompletionQueueObject> {
 public:
  using Handle::Handle;

  /// Takes out the oldest ones; returns how many.
  [[nodiscard]] std::size_t poll(std::span<Completion> out);
  /// The next completion of the kind notifies the channel, and disarms. What is in the queue already notifies nobody:
  /// arm, then poll once more. Errors: bad_argument (also: made without a channel).
  Status arm(Arm what);
  /// As notifications name it; 0 in a null handle.
  [[nodiscard]] CqNumber number() const;
};

/// Receives for several queue pairs of one domain.
class SharedReceiveQueue : public Handle<detail::SharedReceiveQueueObject> {
 public:
  using Handle::Handle;

  /// Errors: bad_argument, queue_full, bad_tag, bad_length.
  Status post_receive(const ReceiveRequest& request);
  /// One event, shared_receive_limit, when fewer than `receives` are left; 0 disarms. Errors: bad_argument (also:
  /// beyond the depth).
  Status arm_limit(std::size_t receives);
  /// As events name it; 0 in a null handle.
  [[nodiscard]] SrqNumber number() const;
};

}  // namespace splitnic::verbs
