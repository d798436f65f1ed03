#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

/// The instructions that may fault, and the way out of them: assembly on x86-64, sigsetjmp elsewhere (or where
/// SPLITNIC_GUARDED_PORTABLE is defined, so that it can be tested). For guarded_copy.cpp alone, which see.
namespace splitnic::fabric::routines {

struct Fetched {
  std::uint64_t done;  ///< 0: faulted
  std::uint64_t before;
};

bool copy(void* to, const void* from, std::size_t bytes);
Fetched compare_swap(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired);
Fetched fetch_add(std::uint64_t* at, std::uint64_t addend);

/// In the signal handler: true if the fault was in one of the above, which will return its failure. May not return.
bool recover(ucontext_t& context);
/// Looks what the processor has.
void choose_widest();
/// SIGSEGV and SIGBUS, in the calling thread.
void unblock_faults();

}  // namespace splitnic::fabric::routines
