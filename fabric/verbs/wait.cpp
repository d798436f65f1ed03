#include "fabric/verbs/wait.h"

#include <poll.h>

#include <algorithm>
#include <ctime>

namespace splitnic::verbs {
namespace {

/// Converts for ppoll. Duration::max() would be 292 years.
timespec timespec_of(Duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((time - seconds).count())};
}

}  // namespace

Status wait(Context& context, Time now, Time until) {
  if (!context) return Status::bad_argument;
  const Time deadline = std::min(until, context.next_deadline(now));
  if (deadline <= now || !context.prepare_sleep()) return Status::ok;
  pollfd doorbell{context.descriptor(), POLLIN, 0};  // ppoll ignores -1
  const timespec limit = timespec_of(deadline - now);
  // An interrupted sleep counts as rung: the caller polls and calls again.
  static_cast<void>(ppoll(&doorbell, 1, deadline == kNever ? nullptr : &limit, nullptr));
  context.disarm();
  return Status::ok;
}

}  // namespace splitnic::verbs
