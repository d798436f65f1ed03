#include "counting.h"

#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <iterator>

namespace {

thread_local bool counting = false;
thread_local bool filtered = false;
thread_local splitnic::quiet_verbs::Counted counted;

std::atomic<std::uint64_t> in_use{0};  // bytes, with the word before each block

void* noted(void* memory) {
  if (counting) ++counted.allocations;
  if (memory != nullptr) in_use += malloc_usable_size(memory) + sizeof(std::size_t);
  return memory;
}
void note_end(void* memory) {
  if (memory != nullptr) in_use -= malloc_usable_size(memory) + sizeof(std::size_t);
}

/// A function of the C library that takes a lock, behind the one here that has its name.
template <class Lock>
class RealFunction {
 public:
  constexpr RealFunction(const char* name, std::uint64_t splitnic::quiet_verbs::Counted::*counter)
      : name_(name), counter_(counter) {}

  int operator()(Lock* lock) {
    auto* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) {
      function = reinterpret_cast<int (*)(Lock*)>(dlsym(RTLD_NEXT, name_));
      if (function == nullptr) std::abort();
      function_.store(function, std::memory_order_relaxed);
    }
    const int answer = function(lock);
    if (counting) ++(counted.*(answer == EBUSY ? &splitnic::quiet_verbs::Counted::failed_tries : counter_));
    return answer;
  }

 private:
  const char* name_;
  std::uint64_t splitnic::quiet_verbs::Counted::*counter_;
  std::atomic<int (*)(Lock*)> function_{nullptr};
};

using splitnic::quiet_verbs::Counted;
constinit RealFunction<pthread_mutex_t> mutex_lock("pthread_mutex_lock", &Counted::locks);
constinit RealFunction<pthread_mutex_t> mutex_trylock("pthread_mutex_trylock", &Counted::tried_locks);
constinit RealFunction<pthread_rwlock_t> rwlock_rdlock("pthread_rwlock_rdlock", &Counted::locks);
constinit RealFunction<pthread_rwlock_t> rwlock_wrlock("pthread_rwlock_wrlock", &Counted::locks);
constinit RealFunction<pthread_rwlock_t> rwlock_tryrdlock("pthread_rwlock_tryrdlock", &Counted::tried_locks);
constinit RealFunction<pthread_rwlock_t> rwlock_trywrlock("pthread_rwlock_trywrlock", &Counted::tried_locks);
constinit RealFunction<volatile pthread_spinlock_t> spin_lock("pthread_spin_lock", &Counted::locks);
constinit RealFunction<volatile pthread_spinlock_t> spin_trylock("pthread_spin_trylock", &Counted::tried_locks);

}  // namespace

// glibc's own names of its functions.
extern "C" {
void* __libc_malloc(std::size_t bytes);                       // NOLINT
void* __libc_calloc(std::size_t count, std::size_t bytes);    // NOLINT
void* __libc_realloc(void* old, std::size_t bytes);           // NOLINT
void* __libc_memalign(std::size_t align, std::size_t bytes);  // NOLINT
void __libc_free(void* memory);                               // NOLINT

void* malloc(std::size_t bytes) noexcept { return noted(__libc_malloc(bytes)); }
void* calloc(std::size_t count, std::size_t bytes) noexcept { return noted(__libc_calloc(count, bytes)); }
void* realloc(void* old, std::size_t bytes) noexcept {
  note_end(old);
  return noted(__libc_realloc(old, bytes));
}
void* aligned_alloc(std::size_t align, std::size_t bytes) noexcept { return noted(__libc_memalign(align, bytes)); }

void free(void* memory) noexcept {
  note_end(memory);
  __libc_free(memory);
}
int posix_memalign(void** memory, std::size_t align, std::size_t bytes) noexcept {
  *memory = noted(__libc_memalign(align, bytes));
  return *memory == nullptr ? ENOMEM : 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept { return mutex_lock(mutex); }
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept { return mutex_trylock(mutex); }
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept { return rwlock_rdlock(lock); }
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept { return rwlock_wrlock(lock); }
int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept { return rwlock_tryrdlock(lock); }
int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept { return rwlock_trywrlock(lock); }
int pthread_spin_lock(pthread_spinlock_t* lock) noexcept { return spin_lock(lock); }
int pthread_spin_trylock(pthread_spinlock_t* lock) noexcept { return spin_trylock(lock); }

/// A system call from the one place where the filter permits it.
long splitnic_permitted_call(const greg_t* registers, long number);
extern const char splitnic_permitted_end[];
}

__asm__(R"(
  .text
  .globl splitnic_permitted_call
splitnic_permitted_call:       # rdi: six arguments, rsi: the number
  movq %rsi, %rax
  movq %rdi, %r11
  movq (%r11), %rdi
  movq 8(%r11), %rsi
  movq 16(%r11), %rdx
  movq 24(%r11), %r10
  movq 32(%r11), %r8
  movq 40(%r11), %r9
  syscall
  .globl splitnic_permitted_end
splitnic_permitted_end:
  ret
)");

namespace splitnic::quiet_verbs {
namespace {

void on_system_call(int /*signal*/, siginfo_t* info, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (counting) ++counted.system_calls;
  const greg_t arguments[] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                              registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
  registers[REG_RAX] = splitnic_permitted_call(arguments, info->si_syscall);
}

void add_filter() {
  struct sigaction action {};
  action.sa_sigaction = on_system_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) std::abort();
  const auto at = reinterpret_cast<std::uintptr_t>(splitnic_permitted_end);
  constexpr std::uint32_t kNumberAt = offsetof(seccomp_data, nr);
  constexpr std::uint32_t kPlaceAt = offsetof(seccomp_data, instruction_pointer);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumberAt),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 4, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kPlaceAt),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(at), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kPlaceAt + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(at >> 32U), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) std::abort();
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) std::abort();
}

}  // namespace

void start_counting() {
  if (!filtered) add_filter();
  filtered = true;
  counted = {};
  counting = true;
}

Counted stop_counting() {
  counting = false;
  return counted;
}

std::uint64_t bytes_in_use() { return in_use; }

}  // namespace splitnic::quiet_verbs
