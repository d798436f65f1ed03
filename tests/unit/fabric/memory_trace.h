#pragma once

// The sanitizers add instructions of their own, and ThreadSanitizer delays signals.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define SPLITNIC_MEMORY_TRACE 1

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/check.h"
#include "fabric/memory/guarded_copy.h"

namespace splitnic::fabric::test {

/// An access to watched memory, or a fence, in the order of the program. Memory counts in words of 4 bytes.
struct MemoryEvent {
  enum class Kind : std::uint8_t { load, store, streamed_store, store_fence, full_fence };
  Kind kind = Kind::load;
  const std::byte* word = nullptr;  ///< null: a fence
  std::uint32_t value = 0;          ///< loaded or stored
  std::uint32_t before = 0;         ///< stores: what the word held
};
using MemoryEvents = std::vector<MemoryEvent>;

/// Records what the compiled code does to shared memory: every access in the order of the instructions, and every
/// fence. The processor stops after each instruction (trap flag), and the watched pages can't be accessed, so that each
/// access stops, too. So the trace is of the machine's instructions: a fence that only the compiler sees is not in it.
/// A load counts as one of each of its words, from the first on; if load_bytes() doesn't know the instruction, as one
/// of its first word. One trace at a time, of one thread; no system call may access the memory.
class MemoryTrace {
 public:
  enum class Fences : std::uint8_t {
    of_the_processor,  ///< mfence, sfence and locked instructions
    of_the_bridge      ///< the calls of fence(); fence instructions are not recorded
  };
  /// watched: whole pages.
  MemoryTrace(std::vector<std::span<std::byte>> watched, Fences fences)
      : watched_(std::move(watched)), fences_(fences) {
    events_.reserve(kMost);
  }
  ~MemoryTrace() { SPLITNIC_CHECK(recording() != this); }
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;

  template <class Work>
  [[nodiscard]] MemoryEvents of(Work&& work) {
    events_.clear();
    begin();
    work();
    end();
    return events_;
  }
  /// A bridge calls it during the work for each of its fences.
  void fence(MemoryEvent::Kind kind) {
    if (recording() == this && fences_ == Fences::of_the_bridge) add({kind});
  }

 private:
  static constexpr std::size_t kMost = 1U << 16U;
  static constexpr std::size_t kWidest = 64;  // of an instruction's store
  static constexpr std::uint64_t kTrapFlag = 0x100;
  static constexpr greg_t kWriteFault = 2;

  struct Instruction {
    bool locked = false;
    bool streams = false;
    bool full_fence = false;
    bool store_fence = false;
    std::size_t load_bytes = 0;
  };

  static MemoryTrace*& recording() {
    static MemoryTrace* trace = nullptr;
    return trace;
  }

  void begin() {
    SPLITNIC_CHECK(recording() == nullptr);
    enable_guarded_copy();  // its handler goes below this one
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void* context) {
      recording()->on_access(*info, *static_cast<ucontext_t*>(context));
    };
    SPLITNIC_CHECK(sigaction(SIGSEGV, &action, &segv_before_) == 0);
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
      recording()->on_step(*static_cast<ucontext_t*>(context));
    };
    SPLITNIC_CHECK(sigaction(SIGTRAP, &action, &trap_before_) == 0);
    recording() = this;
    next_ = {};
    allow(PROT_NONE);
    __writeeflags(__readeflags() | kTrapFlag);
  }
  void end() {
    __writeeflags(__readeflags() & ~kTrapFlag);
    allow(PROT_READ | PROT_WRITE);
    recording() = nullptr;
    sigaction(SIGSEGV, &segv_before_, nullptr);
    sigaction(SIGTRAP, &trap_before_, nullptr);
  }

  void add(const MemoryEvent& event) {
    SPLITNIC_CHECK(events_.size() < kMost);
    events_.push_back(event);
  }
  void allow(int protection) {
    for (const auto& pages : watched_) SPLITNIC_CHECK(mprotect(pages.data(), pages.size(), protection) == 0);
  }
  static std::uint32_t word_at(const std::byte* at) {
    std::uint32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  /// The instruction at the program counter accesses watched memory. Opens the memory for this instruction.
  void on_access(const siginfo_t& info, const ucontext_t& context) {
    const auto* at = static_cast<const std::byte*>(info.si_addr);
    const std::byte* end = nullptr;
    for (const auto& pages : watched_) {
      if (at >= pages.data() && at < pages.data() + pages.size()) end = pages.data() + pages.size();
    }
    if (end == nullptr || open_) {  // a fault of the work
      sigaction(SIGSEGV, &segv_before_, nullptr);
      return;
    }
    allow(PROT_READ | PROT_WRITE);
    open_ = true;
    writes_ = (context.uc_mcontext.gregs[REG_ERR] & kWriteFault) != 0;
    at_ = at - reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint32_t);
    words_ = std::min<std::size_t>(kWidest, static_cast<std::size_t>(end - at_)) / sizeof(std::uint32_t);
    std::memcpy(before_.data(), at_, words_ * sizeof(std::uint32_t));
    if (writes_) return;
    const auto bytes = static_cast<std::size_t>(at - at_) + next_.load_bytes;
    const std::size_t loaded = std::clamp<std::size_t>((bytes + 3) / sizeof(std::uint32_t), 1, words_);
    for (std::size_t i = 0; i < loaded; ++i) {
      add({MemoryEvent::Kind::load, at_ + i * sizeof(std::uint32_t), before_[i], 0});
    }
  }

  /// An instruction has been carried out; the next one begins.
  void on_step(const ucontext_t& context) {
    if (open_) {
      if (writes_) add_stores();
      open_ = false;
      allow(PROT_NONE);
    }
    if (fences_ == Fences::of_the_processor && next_.locked) add({MemoryEvent::Kind::full_fence});
    next_ = decode(std::bit_cast<const unsigned char*>(context.uc_mcontext.gregs[REG_RIP]));
    if (fences_ != Fences::of_the_processor) return;
    if (next_.locked || next_.full_fence) add({MemoryEvent::Kind::full_fence});
    if (next_.store_fence) add({MemoryEvent::Kind::store_fence});
  }

  void add_stores() {
    const auto kind = next_.streams ? MemoryEvent::Kind::streamed_store : MemoryEvent::Kind::store;
    for (std::size_t i = 0; i < words_; ++i) {
      const std::byte* word = at_ + i * sizeof(std::uint32_t);
      const std::uint32_t value = word_at(word);
      if (i == 0 || value != before_[i]) add({kind, word, value, before_[i]});
    }
  }

  /// What a move loads by this opcode of the two-byte map. prefix: 0, 0x66, 0xf3 or 0xf2; vector: bytes of its
  /// register; wide: of a general register, 8 bytes. 0: it is no such move.
  static std::size_t moved_bytes(unsigned char opcode, unsigned char prefix, std::size_t vector, bool wide) {
    switch (opcode) {
      case 0x10:  // movups, movss, movsd
        return prefix == 0xf3 ? 4 : prefix == 0xf2 ? 8 : vector;
      case 0x12:  // movlps
      case 0x16:  // movhps
        return 8;
      case 0x28:  // movaps
      case 0xf0:  // lddqu
        return vector;
      case 0x6f:  // movdqa, movdqu; else to a register of 8 bytes
        return prefix == 0 ? 8 : vector;
      case 0x6e:  // movd, movq
        return wide ? 8 : 4;
      case 0x7e:  // movq
        return 8;
      default:
        return 0;
    }
  }
  /// Of the instruction whose opcode, or longer prefix, is at `code`. prefix, wide: as moved_bytes(). Knows moves, and
  /// for the others what a general register has.
  static std::size_t load_bytes(const unsigned char* code, unsigned char prefix, bool wide) {
    constexpr std::array<unsigned char, 4> kPrefixes{0, 0x66, 0xf3, 0xf2};
    const auto vector = [](unsigned bits) { return std::size_t{16} << (bits & 3U); };
    const std::size_t usual = wide ? 8 : 4;
    switch (code[0]) {
      case 0x0f: {
        const std::size_t moved = moved_bytes(code[1], prefix, 16, wide);
        return moved != 0 ? moved : usual;
      }
      case 0xc5:
        return moved_bytes(code[2], kPrefixes[code[1] & 3U], vector(code[1] >> 2U & 1U), false);
      case 0xc4:
        return moved_bytes(code[3], kPrefixes[code[2] & 3U], vector(code[2] >> 2U & 1U), code[2] >= 0x80);
      case 0x62:
        return moved_bytes(code[4], kPrefixes[code[2] & 3U], vector(code[3] >> 5U), code[2] >= 0x80);
      default:
        return usual;
    }
  }

  /// Recognises mfence, sfence, locked instructions, stores past the caches, and how much is loaded.
  static Instruction decode(const unsigned char* code) {
    Instruction result;
    unsigned char prefix = 0;
    bool wide = false;
    for (;; ++code) {
      const bool legacy = *code == 0x66 || *code == 0xf2 || *code == 0xf3 || *code == 0x2e || *code == 0x3e;
      const bool rex = *code >= 0x40 && *code <= 0x4f;
      if (*code == 0xf0) result.locked = true;
      if (!legacy && !rex && *code != 0xf0) break;
      if (*code == 0x66 || *code == 0xf2 || *code == 0xf3) prefix = *code;
      wide = rex && (*code & 8U) != 0;
    }
    result.load_bytes = load_bytes(code, prefix, wide);
    const auto in_memory = [](unsigned char modrm) { return modrm < 0xc0; };
    const auto streams = [](unsigned char opcode) { return opcode == 0x2b || opcode == 0xe7; };
    if ((code[0] == 0x86 || code[0] == 0x87) && in_memory(code[1])) result.locked = true;  // xchg
    if (code[0] == 0x0f && code[1] == 0xae) {
      result.full_fence = code[2] >= 0xf0 && code[2] <= 0xf7;
      result.store_fence = code[2] >= 0xf8;
    }
    if (code[0] == 0x0f) result.streams = (streams(code[1]) || code[1] == 0xc3) && in_memory(code[2]);
    if (code[0] == 0xc5) result.streams = streams(code[2]) && in_memory(code[3]);
    if (code[0] == 0xc4) result.streams = (code[1] & 0x1fU) == 1 && streams(code[3]) && in_memory(code[4]);
    if (code[0] == 0x62) result.streams = (code[1] & 0x07U) == 1 && streams(code[4]) && in_memory(code[5]);
    return result;
  }

  std::vector<std::span<std::byte>> watched_;
  Fences fences_;
  MemoryEvents events_;
  struct sigaction segv_before_ {};
  struct sigaction trap_before_ {};
  Instruction next_;
  bool open_ = false;
  bool writes_ = false;
  const std::byte* at_ = nullptr;
  std::size_t words_ = 0;
  std::array<std::uint32_t, kWidest / sizeof(std::uint32_t)> before_{};
};

}  // namespace splitnic::fabric::test

#endif
