#pragma once

#include <cstddef>
#include <cstdint>

namespace splitnic::fabric {

/// Access to memory that may be gone: it was registered, and later unmapped, protected, or cut off by truncating its
/// file. Where a plain access would raise SIGSEGV or SIGBUS, these functions return false and the process continues.
///
/// How: the accesses are a few instructions whose addresses a signal handler knows. After a fault in one of them,
/// execution continues with a return of false. Any other fault goes to the previous handler, or to the default action.
/// An access that does not fault costs no system call, no saved context and no lock.
///
/// Requirements on the process: threads that call these functions leave SIGSEGV and SIGBUS unblocked (a fault under a
/// blocked signal kills the process). A handler that is installed later forwards the faults that it does not know, or
/// the process calls enable_guarded_copy() after installing it. It may then forward faults to what it has found.
///
/// Sanitizers: the accesses are assembly on x86-64, so AddressSanitizer does not check them, and ThreadSanitizer sees
/// neither races nor ordering in them; no suppression is needed. Keep the sanitizers' default handle_segv=1, which
/// lets the program handle SIGSEGV.
///
/// Thread: any, several at once.

/// Installs the handler for SIGSEGV and SIGBUS, or installs it again if another handler has replaced it, and unblocks
/// both signals in the calling thread. The first guarded access does this too; later accesses do not check again.
void enable_guarded_copy();

/// Copies as memcpy does; the ranges do not overlap. False: the access faulted, and any part of `to` may be written.
/// On x86-64 the last bytes become visible last, so that who polls them finds the rest; elsewhere there is no order.
[[nodiscard]] bool guarded_copy(void* to, const void* from, std::size_t bytes);

/// The same to two places: the first bytes to one of them, and the rest_bytes behind them to the other one, which are
/// visible before.
[[nodiscard]] bool guarded_copy_parts(void* to, const void* from, std::size_t bytes, void* rest_to,
                                      std::size_t rest_bytes);

/// The same as guarded_copy(), but many bytes go past this core's caches, so that no line is fetched out of another
/// core's. What is stored after it is visible after it. When to use it: StoreHabit.
[[nodiscard]] bool guarded_stream(void* to, const void* from, std::size_t bytes);

/// Atomically stores `desired` if *at is `expected`, and sets `before` to the value that *at had. False: the access
/// faulted (the memory must be writable even if nothing is stored), or `at` is not a multiple of 8; then neither *at
/// nor `before` has changed.
[[nodiscard]] bool guarded_compare_swap(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired,
                                        std::uint64_t& before);

/// Atomically adds, modulo 2^64. `before` and errors as above.
[[nodiscard]] bool guarded_fetch_add(std::uint64_t* at, std::uint64_t addend, std::uint64_t& before);

}  // namespace splitnic::fabric
