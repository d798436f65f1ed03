#pragma once

#include <cstdint>

#include "fabric/adapter/context.h"

namespace splitnic::fabric {

/// Whether the queue pair can take the request: its shape, its lengths, its tags. bytes: of its message.
[[nodiscard]] Status check_request(const AdapterContext& context, const QueuePair& queue_pair,
                                   const WorkRequest& request, std::uint32_t& bytes);

/// Whether the queue pair may post requests that the peer answers: reads and atomics.
[[nodiscard]] inline bool takes_answers(const QueuePair& queue_pair) {
  return queue_pair.options.acknowledged && queue_pair.send.max_unanswered != 0;
}

/// The longest delay that a request may ask for.
inline constexpr Duration kLongestDelay = std::chrono::seconds(60);
inline constexpr std::size_t kMaxInlineBytes = 1024;

}  // namespace splitnic::fabric
