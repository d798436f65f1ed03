#pragma once

/// All headers that a program of the verbs needs (docs/verbs.md).
#include "fabric/verbs/address_handle.h"  // IWYU pragma: export
#include "fabric/verbs/context.h"         // IWYU pragma: export
#include "fabric/verbs/memory.h"          // IWYU pragma: export
#include "fabric/verbs/path.h"            // IWYU pragma: export
#include "fabric/verbs/queue_pair.h"      // IWYU pragma: export
#include "fabric/verbs/queues.h"          // IWYU pragma: export
#include "fabric/verbs/remote.h"          // IWYU pragma: export
#include "fabric/verbs/requests.h"        // IWYU pragma: export
