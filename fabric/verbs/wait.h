#pragma once

#include "common/time.h"
#include "fabric/verbs/context.h"

namespace splitnic::verbs {

/// For programs whose only business is this context: sleeps until the peer rings, poll() has something due, or `until`.
/// Poll until nothing moves, then wait: what came in between is noticed. Others do the same in loops of their own.
/// Blocks; returns at once where the bridge has no descriptor. Errors: bad_argument.
Status wait(Context& context, Time now, Time until);

}  // namespace splitnic::verbs
