#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

/// The instructions that may fault, and the recovery from a fault: assembly on x86-64, sigsetjmp on other processors
/// (and where SPLITNIC_GUARDED_PORTABLE is defined, for tests). Used by guarded_copy.cpp only; see there.
namespace splitnic::fabric::routines {

struct Fetched {
  std::uint64_t done;  ///< 0: faulted
  std::uint64_t before;
};

#if defined(__x86_64__) && !defined(SPLITNIC_GUARDED_PORTABLE)
/// Copies of fewer bytes than this are short: one call of the routine that all processors have. 0 until
/// choose_widest().
extern std::atomic<std::size_t> short_below [[gnu::visibility("hidden")]];
extern "C" [[gnu::visibility("hidden")]] bool splitnic_guarded_begin(void* to, const void* from, std::size_t bytes);
extern "C" [[gnu::visibility("hidden")]] bool splitnic_guarded_parts(void* to, const void* from, std::size_t bytes,
                                                                     void* rest_to, std::size_t rest_bytes);
inline bool is_short(std::size_t bytes) { return bytes < short_below.load(std::memory_order_relaxed); }
inline bool copy_short(void* to, const void* from, std::size_t bytes) {
  return splitnic_guarded_begin(to, from, bytes);
}
inline constexpr std::size_t kShortRest = 64;
/// rest_bytes: at most kShortRest.
inline bool copy_short_parts(void* to, const void* from, std::size_t bytes, void* rest_to, std::size_t rest_bytes) {
  return splitnic_guarded_parts(to, from, bytes, rest_to, rest_bytes);
}
#else
inline bool is_short(std::size_t) { return false; }
inline bool copy_short(void*, const void*, std::size_t) { return false; }
inline constexpr std::size_t kShortRest = 0;
inline bool copy_short_parts(void*, const void*, std::size_t, void*, std::size_t) { return false; }
#endif
bool copy(void* to, const void* from, std::size_t bytes);
/// Past this processor's caches, where it can. What is stored later is visible later. bytes: at least two lines.
bool stream(void* to, const void* from, std::size_t bytes);
Fetched compare_swap(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired);
Fetched fetch_add(std::uint64_t* at, std::uint64_t addend);

/// Call in the signal handler. True: the fault was in one of the functions above, which then returns its failure. May
/// not return.
bool recover(ucontext_t& context);
/// Chooses the widest copy that the processor supports.
void choose_widest();
/// Unblocks SIGSEGV and SIGBUS in the calling thread.
void unblock_faults();

}  // namespace splitnic::fabric::routines
