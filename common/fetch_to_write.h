#pragma once

namespace splitnic {

/// A hint: this thread is about to write the line at `address`, which another core may have. The address may be any.
inline void fetch_to_write(const void* address) {
#if defined(__x86_64__)
  // GCC's __builtin_prefetch() makes this only if told that every processor has it. One that has not ignores it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace splitnic
