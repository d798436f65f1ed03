#pragma once

#include "common/time.h"
#include "fabric/verbs/context.h"

namespace splitnic::verbs {

/// Sleeps until the peer rings, poll() has something due, or `until`. Call it when poll() returns 0; work that arrives
/// in between ends the sleep. For programs that serve only this context; others do the same in loops of their own.
/// Blocks; returns at once if the bridge has no descriptor, and after a millisecond if the process has none left to
/// hear several peers by. Errors: bad_argument.
Status wait(Context& context, Time now, Time until);

}  // namespace splitnic::verbs
