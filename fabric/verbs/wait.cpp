#include "fabric/verbs/wait.h"

#include <poll.h>

#include <algorithm>

#include "common/os/timespec.h"

namespace splitnic::verbs {
Status wait(Context& context, Time now, Time until) {
  if (!context) return Status::bad_argument;
  const Time deadline = std::min(until, context.next_deadline(now));
  if (deadline <= now || !context.prepare_sleep()) return Status::ok;
  pollfd doorbell{context.descriptor(), POLLIN, 0};  // ppoll ignores -1
  const timespec limit = os::timespec_of(deadline - now);
  // An interrupted sleep counts as rung: the caller polls and calls again.
  static_cast<void>(ppoll(&doorbell, 1, deadline == kNever ? nullptr : &limit, nullptr));
  context.disarm();
  return Status::ok;
}

}  // namespace splitnic::verbs
