#pragma once

#include <cstddef>
#include <cstdint>

namespace splitnic::fabric {

/// Access to memory that may be gone: registered once, and since unmapped, protected, or cut off by a shorter file.
/// Where a plain access would raise SIGSEGV or SIGBUS, these answer false and the process goes on.
///
/// How: the accesses are a few instructions whose place a signal handler knows; a fault there continues at a return of
/// false, any other goes to the handler that was there before, or to the default. What does not fault pays for the
/// access alone: no system call, no saved context, no lock.
///
/// What the process owes: SIGSEGV and SIGBUS stay unblocked in threads that call these (a fault under a blocked signal
/// kills), and a handler installed later passes on what it does not know, or enable_guarded_copy() is called after it.
///
/// Sanitizers: the accesses are in assembly on x86-64, so AddressSanitizer does not check them and ThreadSanitizer
/// neither sees a race nor an ordering in them; nothing needs suppressing. Their default of letting the program have
/// SIGSEGV (handle_segv=1) must stay.
///
/// Thread: any, several at once.

/// Installs the handler for SIGSEGV and SIGBUS, or puts it back on top where another has replaced it, and unblocks both
/// signals in the calling thread. The first guarded access does this too; later ones do not look again.
void enable_guarded_copy();

/// As memcpy: the ranges do not overlap. False: one of them faulted; any part of `to` may have been written.
[[nodiscard]] bool guarded_copy(void* to, const void* from, std::size_t bytes);

/// Atomically stores `desired` if *at is `expected`; `before` is what was there. False: the access faulted (the memory
/// must be writable even where nothing is stored) or `at` is no multiple of 8; nothing was changed, `before` neither.
[[nodiscard]] bool guarded_compare_swap(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired,
                                        std::uint64_t& before);

/// Atomically adds, modulo 2^64. Otherwise as above.
[[nodiscard]] bool guarded_fetch_add(std::uint64_t* at, std::uint64_t addend, std::uint64_t& before);

}  // namespace splitnic::fabric
