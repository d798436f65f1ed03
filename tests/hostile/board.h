#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "common/check.h"
#include "fabric/ids.h"
#include "fabric/wire/cell.h"

/// The records by which the three processes of a test cooperate, beside the bridges. No test attacks them.
namespace splitnic::fabric::hostile {

inline constexpr PortAddress kOwnerPort{0x0200'0000'00a1};
inline constexpr PortAddress kHonestPort{0x0200'0000'00b2};
inline constexpr PortAddress kHostilePort{0x0200'0000'00c3};
/// The first packet sequence numbers of each initiator's queue pair.
inline constexpr std::uint32_t kPsnToOwner = 1000;
inline constexpr std::uint32_t kPsnFromOwner = 5000;

inline constexpr std::size_t kHonestBytes = 64U << 10U;
inline constexpr std::size_t kHonestDirectBytes = 16U << 10U;
inline constexpr std::size_t kHostileDirectBytes = 64U << 10U;

/// Memory of the owner, as an initiator addresses it.
struct Grant {
  Stag tag{};
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

/// What the owner tells an initiator after connecting its queue pair. The hostile initiator may use its grants `open`,
/// `readable`, `writable`, `window` and `direct` as their names say. The owner must refuse every use of the others.
struct Introduction {
  QpNumber queue_pair{};
  QpNumber idle_queue_pair{};  ///< another queue pair of the owner, not connected
  Grant open{};                ///< all rights: read, write, atomics
  Grant readable{};
  Grant writable{};
  Grant direct{};     ///< bridge memory, open to direct writes
  Grant window{};     ///< bound to a part of `windowed`
  Grant windowed{};   ///< its region, without remote rights
  Grant local{};      ///< no remote rights
  Grant foreign{};    ///< of another domain
  Grant others{};     ///< bound to another queue pair
  Grant stale{};      ///< deregistered
  Grant neighbour{};  ///< the honest initiator's, copied exactly
};

enum class Stage : std::uint32_t { forked, linked, introduced, attacking, attacked, finish };

/// One per initiator, shared between the initiator's process and the owner's.
struct Board {
  std::atomic<Stage> stage{Stage::forked};
  QpNumber number{};  ///< the initiator's queue pair; valid from `linked` on
  Introduction introduction{};
  std::atomic<std::uint64_t> operations{0};  ///< operations that the honest initiator has verified

  // The initiator's findings; valid from `attacked` or its exit on.
  TerminateReason told{};  ///< the terminate reason that the owner sent
  std::uint32_t times_told = 0;
  bool secret_seen = false;                     ///< the owner wrote the secret word to the initiator
  bool own_memory_spoilt = false;               ///< the owner wrote to the initiator's memory where it may not
  std::uint64_t count = 0;                      ///< counted by the attack
  std::array<std::byte, kHonestBytes> model{};  ///< the expected content of the honest initiator's memory
  std::array<std::byte, kHonestDirectBytes> direct_model{};
};

/// A board in memory that stays shared after fork(). Thread: one per process.
class SharedBoard {
 public:
  SharedBoard() {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SPLITNIC_CHECK(memory != MAP_FAILED);
    board_ = new (memory) Board;
  }
  ~SharedBoard() { munmap(board_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board& operator*() const { return *board_; }
  Board* operator->() const { return board_; }

 private:
  Board* board_;
};

}  // namespace splitnic::fabric::hostile
