#include "fabric/memory/guarded_routines.h"

#include <setjmp.h>
#include <signal.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <cstring>

namespace splitnic::fabric::routines {

void unblock_faults() {
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

}  // namespace splitnic::fabric::routines

#if defined(__x86_64__) && !defined(SPLITNIC_GUARDED_PORTABLE)

// No instruction here touches the stack, so "return 0" is correct from every instruction between begin and end. A
// copy loads the last bytes of a block before the loop and stores them after it, overlapping the loop's stores,
// instead of copying a tail byte by byte. The first 16 bytes are loaded by words: programs have often just stored a
// header there, word by word, and a wider load would wait until these stores, and all before them, have left. The
// code from splitnic_guarded_wide to splitnic_guarded_end uses AVX and has an exit of its own, which clears the
// registers' upper halves.
asm(R"(
  .pushsection .text, "ax", @progbits
  .macro splitnic_function name
    .globl \name
    .hidden \name
    .type \name, @function
    .p2align 6
  \name:
    .cfi_startproc
  .endm
  .macro splitnic_end name
    .cfi_endproc
    .size \name, . - \name
  .endm

splitnic_function splitnic_guarded_begin       # rdi: to, rsi: from, rdx: bytes; eax: 1
    cmpq $32, %rdx
    ja 4f
    cmpq $16, %rdx
    jb 1f
    movq (%rsi), %xmm0
    movhps 8(%rsi), %xmm0
    movups -16(%rsi,%rdx), %xmm1
    movups %xmm0, (%rdi)
    movups %xmm1, -16(%rdi,%rdx)
    movl $1, %eax
    ret
1:  cmpl $8, %edx
    jb 2f
    movq (%rsi), %rax
    movq -8(%rsi,%rdx), %rcx
    movq %rax, (%rdi)
    movq %rcx, -8(%rdi,%rdx)
    movl $1, %eax
    ret
2:  cmpl $4, %edx
    jb 3f
    movl (%rsi), %eax
    movl -4(%rsi,%rdx), %ecx
    movl %eax, (%rdi)
    movl %ecx, -4(%rdi,%rdx)
    movl $1, %eax
    ret
3:  testl %edx, %edx
    jz 9f
    movq %rdx, %r9                             # the first, the middle and the last of one to three bytes
    shrq $1, %r9
    movzbl (%rsi), %eax
    movzbl (%rsi,%r9), %r8d
    movzbl -1(%rsi,%rdx), %ecx
    movb %al, (%rdi)
    movb %r8b, (%rdi,%r9)
    movb %cl, -1(%rdi,%rdx)
    movl $1, %eax
    ret
4:  cmpq $64, %rdx
    ja 5f
    movq (%rsi), %xmm0
    movhps 8(%rsi), %xmm0
    movups 16(%rsi), %xmm1
    cmpq $48, %rdx
    ja 7f
    movups -16(%rsi,%rdx), %xmm3
    movups %xmm0, (%rdi)
    movups %xmm1, 16(%rdi)
    movups %xmm3, -16(%rdi,%rdx)
    movl $1, %eax
    ret
7:  movups -32(%rsi,%rdx), %xmm2
    movups -16(%rsi,%rdx), %xmm3
    movups %xmm0, (%rdi)
    movups %xmm1, 16(%rdi)
    movups %xmm2, -32(%rdi,%rdx)
    movups %xmm3, -16(%rdi,%rdx)
    movl $1, %eax
    ret
5:  movups -64(%rsi,%rdx), %xmm4
    movups -48(%rsi,%rdx), %xmm5
    movups -32(%rsi,%rdx), %xmm6
    movups -16(%rsi,%rdx), %xmm7
    leaq -64(%rdi,%rdx), %r8
    movq (%rsi), %xmm0
    movhps 8(%rsi), %xmm0
    jmp 8f
6:  movups (%rsi), %xmm0
8:  movups 16(%rsi), %xmm1
    movups 32(%rsi), %xmm2
    movups 48(%rsi), %xmm3
    movups %xmm0, (%rdi)
    movups %xmm1, 16(%rdi)
    movups %xmm2, 32(%rdi)
    movups %xmm3, 48(%rdi)
    addq $64, %rsi
    addq $64, %rdi
    cmpq %r8, %rdi
    jb 6b
    movups %xmm4, (%r8)
    movups %xmm5, 16(%r8)
    movups %xmm6, 32(%r8)
    movups %xmm7, 48(%r8)
9:  movl $1, %eax
    ret
splitnic_end splitnic_guarded_begin

# rdi: to, rsi: from, rdx: bytes; rcx: to, r8: bytes, at most 64: of what follows, which is stored first; eax: 1
splitnic_function splitnic_guarded_parts
    leaq (%rsi,%rdx), %r9
    cmpq $32, %r8
    ja 4f
    cmpq $16, %r8
    jb 1f
    movups (%r9), %xmm0
    movups -16(%r9,%r8), %xmm1
    movups %xmm0, (%rcx)
    movups %xmm1, -16(%rcx,%r8)
    jmp splitnic_guarded_begin
1:  cmpl $8, %r8d
    jb 2f
    movq (%r9), %rax
    movq -8(%r9,%r8), %r10
    movq %rax, (%rcx)
    movq %r10, -8(%rcx,%r8)
    jmp splitnic_guarded_begin
2:  cmpl $4, %r8d
    jb 3f
    movl (%r9), %eax
    movl -4(%r9,%r8), %r10d
    movl %eax, (%rcx)
    movl %r10d, -4(%rcx,%r8)
    jmp splitnic_guarded_begin
3:  testl %r8d, %r8d
    jz splitnic_guarded_begin
    movq %r8, %r11                             # the first, the middle and the last of one to three bytes
    shrq $1, %r11
    movzbl (%r9), %eax
    movzbl (%r9,%r11), %r10d
    movzbl -1(%r9,%r8), %r9d
    movb %al, (%rcx)
    movb %r10b, (%rcx,%r11)
    movb %r9b, -1(%rcx,%r8)
    jmp splitnic_guarded_begin
4:  movups (%r9), %xmm0
    movups 16(%r9), %xmm1
    movups -32(%r9,%r8), %xmm2
    movups -16(%r9,%r8), %xmm3
    movups %xmm0, (%rcx)
    movups %xmm1, 16(%rcx)
    movups %xmm2, -32(%rcx,%r8)
    movups %xmm3, -16(%rcx,%r8)
    jmp splitnic_guarded_begin
splitnic_end splitnic_guarded_parts

splitnic_function splitnic_guarded_string      # as the first, from 64 bytes on
    movups -64(%rsi,%rdx), %xmm4
    movups -48(%rsi,%rdx), %xmm5
    movups -32(%rsi,%rdx), %xmm6
    movups -16(%rsi,%rdx), %xmm7
    leaq -64(%rdi,%rdx), %r8
    leaq -64(%rdx), %rcx
    rep movsb                                  # in any order; what is stored after it is visible after it
    movups %xmm4, (%r8)
    movups %xmm5, 16(%r8)
    movups %xmm6, 32(%r8)
    movups %xmm7, 48(%r8)
    movl $1, %eax
    ret
splitnic_end splitnic_guarded_string

splitnic_function splitnic_guarded_swap        # rdi: at, rsi: expected, rdx: desired; rax: 1, rdx: before
    movq %rsi, %rax
    lock cmpxchgq %rdx, (%rdi)
    movq %rax, %rdx
    movl $1, %eax
    ret
splitnic_end splitnic_guarded_swap

splitnic_function splitnic_guarded_add         # rdi: at, rsi: addend; rax: 1, rdx: before
    lock xaddq %rsi, (%rdi)
    movq %rsi, %rdx
    movl $1, %eax
    ret
splitnic_end splitnic_guarded_add

splitnic_function splitnic_guarded_wide        # as the first, from 160 bytes on
    vmovq (%rsi), %xmm0                        # up to a boundary of 32 in `to`, then on from there
    vmovhps 8(%rsi), %xmm0, %xmm0
    vmovdqu 16(%rsi), %xmm1
    vmovdqu -128(%rsi,%rdx), %ymm4
    vmovdqu -96(%rsi,%rdx), %ymm5
    vmovdqu -64(%rsi,%rdx), %ymm6
    vmovdqu -32(%rsi,%rdx), %ymm7
    leaq -128(%rdi,%rdx), %r8
    vmovdqu %xmm0, (%rdi)
    vmovdqu %xmm1, 16(%rdi)
    movl %edi, %eax
    andl $31, %eax
    movl $32, %ecx
    subl %eax, %ecx
    addq %rcx, %rsi
    addq %rcx, %rdi
    .p2align 5
1:  vmovdqu (%rsi), %ymm0
    vmovdqu 32(%rsi), %ymm1
    vmovdqu 64(%rsi), %ymm2
    vmovdqu 96(%rsi), %ymm3
    vmovdqu %ymm0, (%rdi)
    vmovdqu %ymm1, 32(%rdi)
    vmovdqu %ymm2, 64(%rdi)
    vmovdqu %ymm3, 96(%rdi)
    subq $-128, %rsi
    subq $-128, %rdi
    cmpq %r8, %rdi
    jb 1b
    vmovdqu %ymm4, (%r8)
    vmovdqu %ymm5, 32(%r8)
    vmovdqu %ymm6, 64(%r8)
    vmovdqu %ymm7, 96(%r8)
    vzeroupper
    movl $1, %eax
    ret
splitnic_end splitnic_guarded_wide

splitnic_function splitnic_guarded_stream      # rdi: to, rsi: from, rdx: bytes; `to` in whole lines, at least one
1:  vmovdqu (%rsi), %ymm0
    vmovdqu 32(%rsi), %ymm1
    vmovntdq %ymm0, (%rdi)
    vmovntdq %ymm1, 32(%rdi)
    addq $64, %rsi
    addq $64, %rdi
    subq $64, %rdx
    jnz 1b
    sfence                                     # such stores are ordered by nothing else
    vzeroupper
    movl $1, %eax
    ret
splitnic_end splitnic_guarded_stream

splitnic_function splitnic_guarded_end         # the ways out, which cannot fault
    xorl %eax, %eax
    ret
splitnic_end splitnic_guarded_end

splitnic_function splitnic_guarded_end_wide
    vzeroupper
    xorl %eax, %eax
    ret
splitnic_end splitnic_guarded_end_wide

  .purgem splitnic_function
  .purgem splitnic_end
  .popsection
)");

// The plain copy, splitnic_guarded_begin, is also the first of the guarded instructions.
extern "C" {
[[gnu::visibility("hidden")]] bool splitnic_guarded_string(void* to, const void* from, std::size_t bytes);
[[gnu::visibility("hidden")]] bool splitnic_guarded_wide(void* to, const void* from, std::size_t bytes);
[[gnu::visibility("hidden")]] bool splitnic_guarded_stream(void* to, const void* from, std::size_t bytes);
[[gnu::visibility("hidden")]] splitnic::fabric::routines::Fetched splitnic_guarded_swap(std::uint64_t* at,
                                                                                        std::uint64_t expected,
                                                                                        std::uint64_t desired);
[[gnu::visibility("hidden")]] splitnic::fabric::routines::Fetched splitnic_guarded_add(std::uint64_t* at,
                                                                                       std::uint64_t addend);
[[gnu::visibility("hidden")]] void splitnic_guarded_end();
[[gnu::visibility("hidden")]] void splitnic_guarded_end_wide();
}

namespace splitnic::fabric::routines {

std::atomic<std::size_t> short_below = 0;

namespace {

constexpr std::size_t kNever = ~std::size_t{0};
constexpr std::size_t kWideBytesMin = 160;     // splitnic_guarded_wide needs it, and is faster from here on
constexpr std::size_t kStringBytesMin = 4096;  // a string starts slowly
std::atomic<std::size_t> wide_from = kNever;
std::atomic<std::size_t> string_from = kNever;
constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;

template <class Function>
greg_t address_of(Function* function) {
  return reinterpret_cast<greg_t>(function);
}

/// The processor says that it moves strings of bytes by lines (ERMS).
bool has_fast_strings() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kFastStrings = 1U << 9U;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kFastStrings) != 0;
}

/// Where the destination lies 1 to 15 bytes beyond the source, modulo a page, an AMD EPYC (family 25, model 17) takes
/// 13 times as long for a string: so it is for a page that begins with a header of 8 bytes, and a ring.
bool strings_are_slow(const void* to, const void* from) {
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  return (beyond - 1) % kPage < 15;
}

}  // namespace

void choose_widest() {
  if (__builtin_cpu_supports("avx")) wide_from.store(kWideBytesMin, std::memory_order_relaxed);
  if (has_fast_strings()) string_from.store(kStringBytesMin, std::memory_order_relaxed);
  short_below.store(kWideBytesMin, std::memory_order_relaxed);
}

bool copy(void* to, const void* from, std::size_t bytes) {
  if (bytes < wide_from.load(std::memory_order_relaxed)) return splitnic_guarded_begin(to, from, bytes);
  const bool short_one = bytes < string_from.load(std::memory_order_relaxed);
  if (short_one || strings_are_slow(to, from)) return splitnic_guarded_wide(to, from, bytes);
  return splitnic_guarded_string(to, from, bytes);
}

bool stream(void* to, const void* from, std::size_t bytes) {
  if (wide_from.load(std::memory_order_relaxed) == kNever) return copy(to, from, bytes);
  auto* const into = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  const std::size_t lines = (bytes - head) / kLine * kLine;
  const std::size_t rest = bytes - head - lines;
  return copy(into, source, head) && splitnic_guarded_stream(into + head, source + head, lines) &&
         copy(into + head + lines, source + head + lines, rest);
}

Fetched compare_swap(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired) {
  return splitnic_guarded_swap(at, expected, desired);
}

Fetched fetch_add(std::uint64_t* at, std::uint64_t addend) { return splitnic_guarded_add(at, addend); }

bool recover(ucontext_t& context) {
  greg_t& at = context.uc_mcontext.gregs[REG_RIP];
  if (at < address_of(splitnic_guarded_begin) || at >= address_of(splitnic_guarded_end)) return false;
  at =
      at < address_of(splitnic_guarded_wide) ? address_of(splitnic_guarded_end) : address_of(splitnic_guarded_end_wide);
  return true;
}

}  // namespace splitnic::fabric::routines

#else

namespace splitnic::fabric::routines {
namespace {

/// Where this thread continues after a fault. Initial-exec: the handler must not make the dynamic linker allocate it.
[[gnu::tls_model("initial-exec")]] thread_local sigjmp_buf* landing = nullptr;

template <class Work>
[[gnu::noinline]] bool guarded(Work work) {
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    landing = nullptr;
    return false;
  }
  landing = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  work();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  landing = nullptr;
  return true;
}

}  // namespace

void choose_widest() {}

bool copy(void* to, const void* from, std::size_t bytes) {
  return guarded([=] {
    if (bytes != 0) std::memcpy(to, from, bytes);
  });
}

bool stream(void* to, const void* from, std::size_t bytes) { return copy(to, from, bytes); }

Fetched compare_swap(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired) {
  volatile std::uint64_t before = expected;
  const bool done = guarded([&] {
    std::uint64_t found = expected;
    std::atomic_ref(*at).compare_exchange_strong(found, desired);
    before = found;
  });
  return {done ? 1U : 0U, before};
}

Fetched fetch_add(std::uint64_t* at, std::uint64_t addend) {
  volatile std::uint64_t before = 0;
  const bool done = guarded([&] { before = std::atomic_ref(*at).fetch_add(addend); });
  return {done ? 1U : 0U, before};
}

bool recover(ucontext_t& context) {
  if (landing == nullptr) return false;
  // siglongjmp() leaves the handler without the kernel's return, which would restore the signals that the handler
  // blocks: its own, and all that the previous handler asked for. The mask of the interrupted instruction is restored
  // here, because sigsetjmp() would need a system call for each access to save it.
  pthread_sigmask(SIG_SETMASK, &context.uc_sigmask, nullptr);
  siglongjmp(*landing, 1);
}

}  // namespace splitnic::fabric::routines

#endif
