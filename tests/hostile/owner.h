#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_listener.h"
#include "fabric/memory/protection_table.h"
#include "tests/hostile/arena.h"
#include "tests/hostile/board.h"
#include "tests/hostile/child.h"
#include "tests/hostile/hostile_host.h"

namespace splitnic::fabric::hostile {

/// How the hostile initiator's session must end.
enum class Ending {
  harmless,    ///< it does not end: the link is up, the queue pair works
  queue_pair,  ///< the queue pair is in error, its link is up
  link,        ///< the link is faulty, or has ended its epoch, and with it the tags of its memory
  either_way,  ///< any of these, because the attack is random
};

/// The requests that the owner makes to the hostile initiator's (invented) memory during the attack.
enum class Asks { nothing, read, atomic, direct_writes, drain };

/// The target of the owner's requests.
inline constexpr Grant kHostileMemory{Stag{0x123456}, 0x10000, 0x2000};
inline constexpr std::uint32_t kAskedBytes = 4096;

struct Attack {
  Ending ending = Ending::harmless;
  Asks asks = Asks::nothing;
  std::function<void(HostileHost&)> run;
};

/// The results of an attack, as the owner saw them.
struct Outcome {
  AdapterCounters counters{};
  std::string fault;       ///< of the link
  TerminateReason told{};  ///< the terminate reason that the hostile initiator received
  std::uint32_t times_told = 0;
  std::uint64_t count = 0;      ///< counted by the attack
  std::uint64_t asked = 0;      ///< requests of the owner that were carried out
  CompletionStatus answered{};  ///< of the owner's read or atomic
};

/// The owner's state of one initiator.
struct Session {
  std::unique_ptr<Bridge> bridge;
  std::unique_ptr<FabricLink> link;
  std::unique_ptr<ChannelAdapter> adapter;
  Introduction introduction{};
  ProtectionDomain domain{};
  ProtectionDomain other_domain{};
  CqNumber completions{};
  Stag memory{};  ///< the memory for the owner's own requests and receives
  std::vector<Stag> tags;
  std::vector<Stag> bridge_tags;  ///< those among them of the bridge's memory
  std::size_t direct_offset = 0;  ///< of the range open to direct writes, in the owner's local memory
  std::uint64_t incarnation = 0;
};

/// The process whose memory is attacked: a listener and two sessions, driven by one loop that sleeps when there is no
/// work.
class Owner {
 public:
  Owner(Attack attack, std::uint64_t seed);
  ~Owner();
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  void connect();
  /// Polls until the attack has ended as it must and the honest initiator has completed operations after it.
  void endure();
  /// Ends the honest initiator, checks its result, and then checks the memory.
  void judge_memory();
  [[nodiscard]] Outcome outcome() const;

 private:
  template <class Condition>
  void poll_until(std::string_view what, Condition condition, Duration limit = std::chrono::seconds(10));
  std::size_t poll();
  void wait_for_doorbells(Time now);
  void accept(Time now);
  void stop_listening();
  void introduce(Session& session, const Board& board);
  void introduce_hostile();
  void introduce_honest();
  [[nodiscard]] Grant grant(Session& session, const MemoryRange& range, const EntryOptions& options,
                            ProtectionDomain domain);
  [[nodiscard]] Grant grant_direct(Session& session, std::size_t bytes);
  [[nodiscard]] Grant grant_window(Session& session);
  void post_receive(Session& session, std::uint64_t slot, const MemoryRange& receives);
  void serve(Session& session, const MemoryRange& receives);
  void ask();
  void ask_again();
  /// with_bridge: also about tags of the bridge's memory.
  [[nodiscard]] std::vector<std::string> question(const Session& session, bool with_bridge = true) const;
  [[nodiscard]] bool session_over();
  [[nodiscard]] bool ended_as_it_must();
  void judge_tables();

  Attack attack_;
  SeededRandom random_;
  Arena arena_;
  SharedBoard honest_board_;
  SharedBoard hostile_board_;
  std::string directory_;  // of the socket
  std::unique_ptr<ShmListener> listener_;
  Session honest_;
  Session hostile_;
  std::unique_ptr<Child> honest_process_;
  std::unique_ptr<Child> hostile_process_;
  std::vector<std::string> honest_table_;
  std::vector<std::string> hostile_table_;
  std::vector<std::string> hostile_process_table_;  // without the bridge's memory
  std::uint64_t greetings_ = 0;
  std::uint64_t asked_ = 0;
  CompletionStatus answered_ = CompletionStatus::success;
  MemoryRange quarantined_{};
};

/// Carries out an attack, and checks everything that no attack may change. The test checks the rest. run: runs in the
/// hostile process and ends within a second.
Outcome endure(Ending ending, Asks asks, std::function<void(HostileHost&)> run);
inline Outcome endure(Ending ending, std::function<void(HostileHost&)> run) {
  return endure(ending, Asks::nothing, std::move(run));
}

}  // namespace splitnic::fabric::hostile
