#pragma once

#include <sys/uio.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#ifdef SPLITNIC_AUDIT_LOADS
#include <vector>
#endif

#include "common/check.h"
#include "common/range.h"

namespace splitnic::fabric {

template <class T>
concept Word = std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::uint16_t> ||
    std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::uint64_t>;

#ifdef SPLITNIC_AUDIT_LOADS
class PeerMemory;

/// Test builds: remembers which bytes of some peer-written memory were loaded. A second load of a byte before its range
/// belongs to another message (PeerMemory::next_message) is a double fetch, which a hostile peer can exploit. The audit
/// listens to the loads of the thread that made it, from its construction to its end, on the same thread.
class LoadAudit {
 public:
  LoadAudit();
  ~LoadAudit();
  LoadAudit(const LoadAudit&) = delete;
  LoadAudit& operator=(const LoadAudit&) = delete;

  /// Loads of this memory count from now on; loads of other memory never do. The memory outlives the audit.
  void watch(const PeerMemory& memory);
  /// Loads of at least one byte that was loaded before.
  [[nodiscard]] std::uint64_t double_loads() const { return double_loads_; }
  /// Bytes loaded, so that a test can see that the audit heard something.
  [[nodiscard]] std::uint64_t bytes_loaded() const { return bytes_loaded_; }

  /// Those that listen on this thread, for PeerMemory.
  static std::vector<LoadAudit*>& listening();
  void record(const std::byte* at, std::size_t bytes);
  void forget(const std::byte* at, std::size_t bytes);

 private:
  struct Watched {
    const std::byte* begin;
    std::vector<std::uint8_t> loaded;  // by byte; 0 or 1
  };
  Watched* find(const std::byte* at, std::size_t bytes);

  std::vector<Watched> watched_;
  std::uint64_t double_loads_ = 0;
  std::uint64_t bytes_loaded_ = 0;
};
#endif

/// From here on the compiler uses the copy at `to`. Else it may load a field from the peer's memory twice, once for its
/// check and once for its use, and the peer may change it in between.
inline void keep_copy(std::byte* to) { asm volatile("" : "+m"(*reinterpret_cast<char(*)[]>(to))); }

/// A view of local memory that a peer can write at any moment, and the only way to read such memory. The memory is
/// hostile and changing: read each field once into a local, check the local, use the local. Offsets are bytes from the
/// start of the view; words are little-endian. The bridge that made the view owns the memory. Thread: any; words are
/// read with acquire order. Source: S2 (shared memory of a storage controller); design, "The bridge".
class PeerMemory {
 public:
  PeerMemory() = default;

  /// A view of [base, base + bytes). For bridges, for tests in their role, and for private copies that take the place
  /// of such memory.
  static PeerMemory over(std::byte* base, std::size_t bytes) { return PeerMemory(base, bytes); }

  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t bytes) const {
    return within(bytes_, {offset, bytes});
  }
  [[nodiscard]] PeerMemory slice(std::size_t offset, std::size_t bytes) const {
    SPLITNIC_CHECK(contains(offset, bytes));
    return PeerMemory(base_ + offset, bytes);
  }

  /// Reads one aligned word with acquire order: later loads see what the peer published before the word.
  template <Word T>
  [[nodiscard]] T load(std::size_t offset) const {
    SPLITNIC_CHECK(contains(offset, sizeof(T)));
    audit(offset, sizeof(T));
    // A1 (acquire): pairs with R1 in PeerWindow::write_word. Without it, later loads may see old bytes where this word
    // announces new ones.
    return __atomic_load_n(reinterpret_cast<const T*>(base_ + offset), __ATOMIC_ACQUIRE);
  }

  /// Reads one aligned word that is polled by design: a counter or flag that stands alone, each value of which is
  /// checked and used by itself. Ordered as load(), not audited.
  template <Word T>
  [[nodiscard]] T watch(std::size_t offset) const {
    SPLITNIC_CHECK(contains(offset, sizeof(T)));
    return __atomic_load_n(reinterpret_cast<const T*>(base_ + offset), __ATOMIC_ACQUIRE);
  }

  /// Brings the line with this byte into the cache, which is no load: nobody sees the byte.
  void prefetch(std::size_t offset) const {
    SPLITNIC_CHECK(contains(offset, 1));
    __builtin_prefetch(base_ + offset);
  }

  /// Tells the audit that what lies here from now on is another message, so that each byte may be loaded once again.
  void next_message([[maybe_unused]] std::size_t offset, [[maybe_unused]] std::size_t bytes) const {
#ifdef SPLITNIC_AUDIT_LOADS
    for (LoadAudit* const audit : LoadAudit::listening()) audit->forget(base_ + offset, bytes);
#endif
  }
  void next_message() const { next_message(0, bytes_); }

  /// Copies bytes out and reads each byte once. The copy is stable; the source is not.
  void copy_out(std::size_t offset, std::span<std::byte> to) const {
    SPLITNIC_CHECK(contains(offset, to.size()));
    audit(offset, to.size());
    if (to.empty()) return;
    std::memcpy(to.data(), base_ + offset, to.size());
    keep_copy(to.data());
  }

  /// The same by `copy(to, from, bytes)`, which reads each byte once and survives memory that is gone; what it answers.
  template <class Copy>
  [[nodiscard]] bool copy_by(std::size_t offset, std::span<std::byte> to, Copy&& copy) const {
    SPLITNIC_CHECK(contains(offset, to.size()));
    audit(offset, to.size());
    return to.empty() || copy(to.data(), base_ + offset, to.size());
  }

  /// Writes by the owner, before the peer knows of the range.
  template <Word T>
  void store(std::size_t offset, T value) const {
    SPLITNIC_CHECK(contains(offset, sizeof(T)));
    __atomic_store_n(reinterpret_cast<T*>(base_ + offset), value, __ATOMIC_RELEASE);
  }
  void store_bytes(std::size_t offset, std::span<const std::byte> from) const {
    SPLITNIC_CHECK(contains(offset, from.size()));
    if (!from.empty()) std::memcpy(base_ + offset, from.data(), from.size());
  }
  /// Copies all of `from`, which may be the same memory, and reads each byte once.
  void store_from(std::size_t offset, const PeerMemory& from) const {
    SPLITNIC_CHECK(contains(offset, from.size()));
    from.audit(0, from.size());
    if (from.size() != 0) std::memmove(base_ + offset, from.base_, from.size());
  }
  void zero(std::size_t offset, std::size_t bytes) const {
    SPLITNIC_CHECK(contains(offset, bytes));
    std::memset(base_ + offset, 0, bytes);
  }

  /// Atomics on an aligned 64-bit word, which the owner carries out for its peers; they return the old value. Atomic
  /// only with respect to this end: a peer's direct stores may interleave.
  [[nodiscard]] std::uint64_t compare_swap(std::size_t offset, std::uint64_t compare, std::uint64_t swap) const {
    SPLITNIC_CHECK(contains(offset, sizeof(swap)));
    __atomic_compare_exchange_n(reinterpret_cast<std::uint64_t*>(base_ + offset), &compare, swap, false,
                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return compare;
  }
  [[nodiscard]] std::uint64_t fetch_add(std::size_t offset, std::uint64_t add) const {
    SPLITNIC_CHECK(contains(offset, sizeof(add)));
    return __atomic_fetch_add(reinterpret_cast<std::uint64_t*>(base_ + offset), add, __ATOMIC_ACQ_REL);
  }
  /// Whether a 64-bit word at offset is aligned in memory.
  [[nodiscard]] bool aligned(std::size_t offset) const {
    return (reinterpret_cast<std::uintptr_t>(base_) + offset) % sizeof(std::uint64_t) == 0;
  }

  /// Only for a gathering system call (writev to a TAP): the kernel reads the bytes once; this process never does.
  [[nodiscard]] iovec for_kernel(std::size_t offset, std::size_t bytes) const {
    SPLITNIC_CHECK(contains(offset, bytes));
    audit(offset, bytes);
    return iovec{base_ + offset, bytes};
  }

 private:
#ifdef SPLITNIC_AUDIT_LOADS
  friend class LoadAudit;
#endif
  friend class PeerLines;
  PeerMemory(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}

  void audit([[maybe_unused]] std::size_t offset, [[maybe_unused]] std::size_t bytes) const {
#ifdef SPLITNIC_AUDIT_LOADS
    for (LoadAudit* const audit : LoadAudit::listening()) audit->record(base_ + offset, bytes);
#endif
  }

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Local memory as PeerMemory, in lines of 64 bytes that a peer fills one after the other, over and over. Lines are
/// counted since they were first used and wrap by themselves, so that no access lies outside. Thread: any.
class PeerLines {
 public:
  static constexpr std::size_t kLine = 64;

  PeerLines() = default;
  /// memory: a power of two of lines.
  explicit PeerLines(const PeerMemory& memory) : memory_(memory), mask_(memory.bytes_ - 1) {
    SPLITNIC_CHECK(std::has_single_bit(memory.bytes_) && memory.bytes_ >= kLine);
  }

  /// The line's first word, as PeerMemory::watch() and load().
  template <Word T>
  [[nodiscard]] T watch(std::uint64_t line) const {
    return __atomic_load_n(reinterpret_cast<const T*>(memory_.base_ + at(line)), __ATOMIC_ACQUIRE);
  }
  template <Word T>
  [[nodiscard]] T load(std::uint64_t line) const {
    memory_.audit(at(line), sizeof(T));
    return watch<T>(line);
  }
  /// Another word of the line, in any order and at any place, likewise once.
  template <Word T>
  [[nodiscard]] T load_any(std::uint64_t line, std::size_t skipped) const {
    memory_.audit(at(line) + skipped, sizeof(T));
    struct [[gnu::packed, gnu::may_alias]] Unaligned {
      T word;
    };
    // volatile: as keep_copy().
    return reinterpret_cast<const volatile Unaligned*>(memory_.base_ + at(line) + skipped)->word;
  }
  void prefetch(std::uint64_t line) const { __builtin_prefetch(memory_.base_ + at(line)); }
  void next_message(std::uint64_t line) const { memory_.next_message(at(line), kLine); }
  /// The line's bytes from `skipped` on.
  void copy_out(std::uint64_t line, std::size_t skipped, std::span<std::byte> to) const {
    SPLITNIC_CHECK(within(kLine, {skipped, to.size()}));
    memory_.audit(at(line) + skipped, to.size());
    std::memcpy(to.data(), memory_.base_ + at(line) + skipped, to.size());
    keep_copy(to.data());
  }
  /// The same as PeerMemory::copy_by().
  template <class Copy>
  [[nodiscard]] bool copy_by(std::uint64_t line, std::size_t skipped, std::span<std::byte> to, Copy&& copy) const {
    SPLITNIC_CHECK(within(kLine, {skipped, to.size()}));
    memory_.audit(at(line) + skipped, to.size());
    return to.empty() || copy(to.data(), memory_.base_ + at(line) + skipped, to.size());
  }

 private:
  [[nodiscard]] std::size_t at(std::uint64_t line) const { return static_cast<std::size_t>(line * kLine & mask_); }

  PeerMemory memory_;
  std::size_t mask_ = 0;
};

/// The sink for writes of a bridge on which writes arrive later: a PCIe device, or the simulated bridge of the tests.
class PostedWrites {
 public:
  virtual ~PostedWrites() = default;
  /// Writes the bytes at offset of the peer's memory, later; copies them before it returns.
  virtual void post(std::size_t offset, std::span<const std::byte> bytes) = 0;
  /// Write-only staging memory for claim(); valid until the commit of the same range.
  virtual std::span<std::byte> stage(std::size_t offset, std::size_t bytes) = 0;
  /// Reads the peer's memory as it is now. Slow on real bridges.
  virtual void read(std::size_t offset, std::span<std::byte> to) = 0;
};

/// This end's window onto the peer's local memory. It is for writing; reading is possible but slow where the window is
/// no memory (set-up, and pulls that the user has asked for). Only Bridge::publish() orders writes for the peer.
/// Thread: the bridge's owner.
class PeerWindow {
 public:
  PeerWindow() = default;
  static PeerWindow mapped(std::byte* base, std::size_t bytes) { return PeerWindow(base, bytes, nullptr); }
  static PeerWindow posted(PostedWrites* sink, std::size_t bytes) { return PeerWindow(nullptr, bytes, sink); }

  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t bytes) const {
    return within(bytes_, {offset, bytes});
  }

  /// Writes land at once, and claim() gives the window itself.
  [[nodiscard]] bool is_memory() const { return posted_ == nullptr; }

  void write(std::size_t offset, std::span<const std::byte> from) {
    SPLITNIC_CHECK(contains(offset, from.size()));
    if (posted_ != nullptr) {
      posted_->post(offset, from);
    } else if (!from.empty()) {
      std::memcpy(base_ + offset, from.data(), from.size());
    }
  }

  /// Writes one aligned word atomically.
  template <Word T>
  void write_word(std::size_t offset, T value) {
    SPLITNIC_CHECK(contains(offset, sizeof(T)));
    if (posted_ != nullptr) {
      posted_->post(offset, std::as_bytes(std::span(&value, 1)));
    } else {
      // R1 (release): a reader that sees this word also sees everything written before; pairs with A1 in
      // PeerMemory::load.
      __atomic_store_n(reinterpret_cast<T*>(base_ + offset), value, __ATOMIC_RELEASE);
    }
  }

  /// Write-only memory that becomes [offset, offset + bytes) of the peer at commit(): the window itself if it is cached
  /// memory, else a staging buffer. Never read it. At most one claim at a time.
  [[nodiscard]] std::span<std::byte> claim(std::size_t offset, std::size_t bytes) {
    SPLITNIC_CHECK(contains(offset, bytes));
    return posted_ != nullptr ? posted_->stage(offset, bytes) : std::span(base_ + offset, bytes);
  }
  /// Gives the peer the first claimed.size() bytes of the claim at offset.
  void commit(std::size_t offset, std::span<const std::byte> claimed) {
    if (posted_ != nullptr) posted_->post(offset, claimed);
  }

  /// Reads the peer's memory. For set-up, and for providers that pull (DmaPuller).
  void read(std::size_t offset, std::span<std::byte> to) const {
    SPLITNIC_CHECK(contains(offset, to.size()));
    if (posted_ != nullptr) {
      posted_->read(offset, to);
    } else if (!to.empty()) {
      std::memcpy(to.data(), base_ + offset, to.size());
      keep_copy(to.data());
    }
  }
  /// The same without a copy: a view for reading alone. Only if is_memory().
  [[nodiscard]] PeerMemory view(std::size_t offset, std::size_t bytes) const {
    SPLITNIC_CHECK(is_memory() && contains(offset, bytes));
    return PeerMemory::over(base_ + offset, bytes);
  }

 private:
  PeerWindow(std::byte* base, std::size_t bytes, PostedWrites* posted) : base_(base), bytes_(bytes), posted_(posted) {}

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  PostedWrites* posted_ = nullptr;
};

}  // namespace splitnic::fabric
