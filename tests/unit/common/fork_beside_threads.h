#pragma once

namespace splitnic::test {

/// Whether a process may fork beside a thread that allocates, and its child allocate, too. Not under AddressSanitizer,
/// whose allocator may stay locked for ever in the child: tests then fork without such a thread.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kForksBesideThreads = false;
#else
inline constexpr bool kForksBesideThreads = true;
#endif

}  // namespace splitnic::test
