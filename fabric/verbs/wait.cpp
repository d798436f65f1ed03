#include "fabric/verbs/wait.h"

#include <poll.h>

#include <algorithm>
#include <thread>

#include "common/os/timespec.h"
#include "fabric/verbs/objects.h"

namespace splitnic::verbs {
namespace {

constexpr Duration kUnheard = std::chrono::milliseconds(1);

}  // namespace

Status wait(Context& context, Time now, Time until) {
  if (!context) return Status::bad_argument;
  const Time deadline = std::min(until, context.next_deadline(now));
  if (deadline <= now) return Status::ok;
  if (!context.prepare_sleep()) {
    // Without descriptors nobody hears the doorbells: a caller that polls in between must not take a whole core.
    if (context.object()->doorbells.incomplete()) std::this_thread::sleep_for(std::min(kUnheard, deadline - now));
    return Status::ok;
  }
  pollfd doorbell{context.descriptor(), POLLIN, 0};  // ppoll ignores -1
  const timespec limit = os::timespec_of(deadline - now);
  // An interrupted sleep counts as rung: the caller polls and calls again.
  static_cast<void>(ppoll(&doorbell, 1, deadline == kNever ? nullptr : &limit, nullptr));
  context.disarm();
  return Status::ok;
}

}  // namespace splitnic::verbs
