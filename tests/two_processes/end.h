#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/verbs/verbs.h"

/// Scenarios of two processes. Both use REQUIRE: in the initiator's process, a failure is printed and ends the process.
namespace splitnic::verbs::two_processes {

inline constexpr std::size_t kPage = 4096;
inline constexpr Duration kPatience = std::chrono::seconds(5);
inline constexpr Rights kRemote = Right::remote_read | Right::remote_write | Right::remote_atomic;
inline constexpr Rights kEverything = kRemote | Right::local_read | Right::local_write | Right::window_binding;

// Reasons of terminate messages. Source: RFC 5040 section 4.8, RFC 5041 section 8.2.
inline constexpr fabric::TerminateReason kLocalCatastrophe{0, 0, 0};
inline constexpr fabric::TerminateReason kInvalidTagOfRead{0, 1, 0};
inline constexpr fabric::TerminateReason kInvalidTagOfWrite{1, 1, 0};

template <class T>
T made(Expected<T> result) {
  REQUIRE(result.has_value());
  return std::move(*result);
}

/// Random bytes; both processes get the same from one seed.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed);

struct Shape {
  DomainRules rules = DomainRules::verbs;  ///< of both processes' domains
  MemoryRequestFailure on_failure = MemoryRequestFailure::fail_sends;
};

/// One process's side of a scenario: a context, one registered region, one queue pair. Thread: one.
class End {
 public:
  static constexpr std::size_t kBytes = 16 * kPage;
  static constexpr std::size_t kInbox = 15 * kPage;  ///< where each receive places its message
  static constexpr std::uint64_t kReceive = 90;      ///< the id of receives

  /// socket: a SOCK_SEQPACKET socket to the other process.
  End(std::shared_ptr<fabric::Bridge> bridge, os::UniqueFd socket, const Shape& shape);

  /// Connects the queue pair, from reset if it was in use; the other process does the same at that time. One receive is
  /// posted at each end then.
  void connect();
  /// Returns when the other process has called it, too. What that process does next may have arrived by then.
  void meet();

  /// Polls until done() is true; fails the test when that takes longer than kPatience.
  template <class Done>
  void run_until(Done&& done) {
    for (const Time begin = monotonic_now();;) {
      const Time now = monotonic_now();
      const bool idle = context.poll(now) == 0;
      if (done()) return;
      if (now - begin > kPatience) FAIL("what was expected has not come");
      if (idle) std::this_thread::yield();
    }
  }
  [[nodiscard]] Completion next_completion();
  [[nodiscard]] AsyncEvent next_event();
  [[nodiscard]] bool no_events();
  /// Waits for the next completion, which must have this id and status.
  Completion expect(std::uint64_t id, CompletionStatus status);
  /// Posts the request, and expects its completion.
  void carry_out(const WorkRequest& request, CompletionStatus status = CompletionStatus::success);
  void post_receive();

  /// Sends a key through the queue pair.
  void offer(const RemoteKey& key);
  /// Waits for the message of offer(), and posts the next receive.
  [[nodiscard]] RemoteKey take_offer();

  /// The queue pair has ended, the posted receive is flushed, and the only event says why.
  void expect_end(fabric::TerminateReason reason, bool from_peer);
  /// The initiator's request was refused: its queue pair, the posted receive and the terminate message say so.
  void expect_refused(const WorkRequest& request, fabric::TerminateReason reason);
  /// The owner's table refused the peer's request, the first on this connection: the queue pair ended. refusals: of all
  /// connections of this end, this one included.
  void expect_refusal(std::uint64_t refusals, fabric::TerminateReason reason);

  void fill(std::size_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] bool holds(std::size_t offset, std::span<const std::byte> bytes) const;
  [[nodiscard]] std::byte* page(std::size_t index) { return memory().data() + index * kPage; }
  [[nodiscard]] std::span<std::byte> memory() { return memory_->bytes; }

 private:
  struct alignas(kPage) Memory {
    std::array<std::byte, kBytes> bytes{};
  };

  void tell(std::span<const std::byte> message);
  void hear(std::span<std::byte> message);

  os::UniqueFd socket_;
  std::unique_ptr<Memory> memory_;

 public:
  Context context;
  Path path;
  ProtectionDomain domain;
  CompletionQueue completions;
  MemoryRegion region;  ///< over memory(), with all rights
  QueuePair queue_pair;
};

using Role = std::function<void(End&)>;

/// Runs the owner in this process and the initiator in a new one, connected. Returns when both are done; fails the test
/// where one of them fails.
void run(const Shape& shape, const Role& owner, const Role& initiator);

}  // namespace splitnic::verbs::two_processes
