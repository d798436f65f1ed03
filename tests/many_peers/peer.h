#pragma once

#include <string>

#include "common/time.h"
#include "talk.h"

namespace splitnic::many_peers {

/// What a peer does: it adds to its word in the program's memory, writes into its share, and says so in a message; the
/// program answers each. Everything is carried out once and in order, or the process ends. Thread: one.
class Peer {
 public:
  /// context, path, domain: lent.
  Peer(std::size_t index, verbs::Context& context, verbs::ProtectionDomain& domain);

  [[nodiscard]] verbs::QueuePair& queue_pair() { return queue_pair_; }
  /// The queue pair is connected; key: to its share.
  void begin(const verbs::RemoteKey& key);
  /// Handles completions, and begins the next turn when it is due. Returns how much it did.
  std::size_t work(Time now);
  /// When work() has something to do without a completion.
  [[nodiscard]] Time next_turn() const { return next_turn_; }
  [[nodiscard]] std::uint64_t answers() const { return answers_; }

 private:
  static constexpr Duration kTurn = std::chrono::milliseconds(5);
  enum : std::uint64_t { kAdd = 100, kWrite, kSay };
  struct Memory {
    Message outgoing;
    std::uint64_t before = 0;
    std::array<Message, kReceives> incoming;
  };

  void post_receive(std::uint64_t slot);
  void turn();
  void take(const verbs::Completion& done);

  std::size_t index_;
  Memory memory_;
  verbs::MemoryRegion region_;
  verbs::CompletionQueue completions_;
  verbs::QueuePair queue_pair_;
  verbs::RemoteKey key_;
  Time next_turn_ = kNever;
  std::uint64_t first_ = 0;  // what the word held
  std::uint64_t turns_ = 0;
  std::uint64_t answers_ = 0;
  std::size_t open_ = 0;  // completions that this turn still waits for: of requests, and of the answer
};

/// How a peer's process reaches the program.
struct Way {
  std::string socket{};  ///< of the program's listener, for a bridge; empty: UDP
  std::string name{};    ///< on the bridge
  std::string own_ip{};  ///< UDP
  std::string program_ip{};
};
inline constexpr std::uint16_t kUdpPort = 4791;

/// The process of one peer; it ends by a signal, or with 1 when something is lost.
[[noreturn]] void run_peer(std::size_t index, const Way& way);

}  // namespace splitnic::many_peers
