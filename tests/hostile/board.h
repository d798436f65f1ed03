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

/// What the three processes of a test tell each other beside the bridges: the stage directions. Nothing here is
/// attacked.
namespace splitnic::fabric::hostile {

inline constexpr PortAddress kOwnerPort{0x0200'0000'00a1};
inline constexpr PortAddress kHonestPort{0x0200'0000'00b2};
inline constexpr PortAddress kHostilePort{0x0200'0000'00c3};
/// Packet sequence numbers to begin with, of either initiator's queue pair.
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

/// What an initiator is told, once its queue pair is connected. Of the hostile one's grants, `open`, `readable`,
/// `writable`, `window` and `direct` are good for what their names say; the others must be refused whatever it does.
struct Introduction {
  QpNumber queue_pair{};
  QpNumber idle_queue_pair{};  ///< the owner's too, and connected to nobody
  Grant open{};                ///< everything: read, write, atomics
  Grant readable{};
  Grant writable{};
  Grant direct{};     ///< bridge memory, open to direct writes
  Grant window{};     ///< bound to a part of `windowed`
  Grant windowed{};   ///< its region, without remote rights
  Grant local{};      ///< no remote rights
  Grant foreign{};    ///< of another domain
  Grant others{};     ///< bound to another queue pair
  Grant stale{};      ///< deregistered
  Grant neighbour{};  ///< the honest initiator's, in every detail
};

enum class Stage : std::uint32_t { forked, linked, introduced, attacking, attacked, finish };

/// One for each initiator, shared between its process and the owner's.
struct Board {
  std::atomic<Stage> stage{Stage::forked};
  QpNumber number{};  ///< the initiator's; from linked on
  Introduction introduction{};
  std::atomic<std::uint64_t> operations{0};  ///< the honest one's, verified

  // Findings of the initiator's, from attacked or its exit on.
  TerminateReason told{};  ///< how the owner refused it
  std::uint32_t times_told = 0;
  bool secret_seen = false;                     ///< among what the owner wrote to it
  bool own_memory_spoilt = false;               ///< the owner wrote to it where it may not
  std::uint64_t count = 0;                      ///< the attack's own
  std::array<std::byte, kHonestBytes> model{};  ///< what the honest one's memory holds
  std::array<std::byte, kHonestDirectBytes> direct_model{};
};

/// A board in memory that stays shared over fork(). Thread: the processes' own.
class SharedBoard {
 public:
  SharedBoard() {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
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
