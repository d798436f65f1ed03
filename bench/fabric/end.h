#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/fabric/contents.h"
#include "bench/fabric/measurement.h"
#include "common/result.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/verbs/verbs.h"
#include "fabric/wire/cell.h"

namespace splitnic::bench {

struct EndOptions {
  bool sleep = false;        ///< when there is nothing to do, until the peer rings; else spin
  bool shares_core = false;  ///< with the other end: an end that spins lets the other one run
  std::uint32_t cell_bytes = fabric::kDefaultCellPayload;
  std::size_t queue_pairs = 1;  ///< of the measurement with the most
  std::size_t paths = 1;        ///< that the queue pairs are spread over
  std::size_t idle_paths = 0;
};

inline constexpr std::size_t kAddressesAtOnce = 32;

/// The messages by which the two ends agree on the measurements: the client requests, the server answers.
struct ControlMessage {
  enum class Kind : std::uint32_t {
    begin,    ///< row of the plan
    connect,  ///< addresses: of queue pair `count` and the next ones. The answer has the server's, which are ready
    start,    ///< all are connected; the server takes messages from its answer on
    end,      ///< count: messages that were sent. The answer says what was wrong with the bytes that arrived
  };
  Kind kind = Kind::begin;
  std::uint32_t row = 0;
  std::uint64_t count = 0;
  std::array<std::array<std::byte, verbs::kQueuePairAddressBytes>, kAddressesAtOnce> addresses{};
  std::array<char, 192> text{};  ///< empty: all is well
};

/// Keys to the memory of the other end.
struct RemoteAreas {
  verbs::RemoteKey source{};
  verbs::RemoteKey segmented_sink{};
  verbs::RemoteKey direct_sink{};

  [[nodiscard]] const verbs::RemoteKey& sink(Path path) const {
    return path == Path::direct ? direct_sink : segmented_sink;
  }
};

/// One process's end: a context whose link is up, registered memory, a queue pair for the messages above.
/// Thread: one.
class End {
 public:
  /// bridges: options.paths + options.idle_paths; the areas lie in the first one's memory.
  End(std::vector<std::unique_ptr<fabric::Bridge>> bridges, const EndOptions& options);

  /// channel: a SOCK_SEQPACKET socket to the other process, lent; carries messages until the first queue pair exists.
  Result<void> come_up(int channel);

  /// Polls until done() is true; checks it after each round. Errors: the other process is gone, or is silent for long;
  /// the failure that note_failure() noted.
  template <class Done>
  Result<void> run_until(Done&& done) {
    std::size_t idle_turns = 0;
    for (;;) {
      const bool is_done = done();
      if (!failure_.empty()) return fail("{}", failure_);
      if (is_done) return {};
      if (turn() != 0) {
        idle_turns = 0;
      } else if (auto rested = rest(idle_turns++); !rested) {
        return rested;
      }
    }
  }
  /// Between messages, when nothing comes.
  [[nodiscard]] bool sleeps() const { return options_.sleep; }
  /// Whether what is awaited rings a doorbell. A write without immediate may not: its target polls its memory.
  void set_may_sleep(bool may) { may_sleep_ = may; }
  /// Ends run_until(), at once and from then on.
  void note_failure(std::string what) { failure_ = std::move(what); }

  Result<void> say(const ControlMessage& message);
  /// The other end's message, once.
  [[nodiscard]] std::optional<ControlMessage> heard();

  [[nodiscard]] verbs::Context& context() { return context_; }
  [[nodiscard]] verbs::ProtectionDomain& domain() { return domain_; }
  /// The path of the queue pair with this index.
  [[nodiscard]] const verbs::Path& path_of(std::size_t index) const { return paths_[index % options_.paths]; }
  /// Where messages come from, and where they go by either path; kAreaBytes each.
  [[nodiscard]] Area& source() { return source_; }
  [[nodiscard]] Area& sink(Path path) { return path == Path::direct ? direct_sink_ : segmented_sink_; }
  [[nodiscard]] const RemoteAreas& remote() const { return remote_; }

 private:
  std::size_t turn();
  Result<void> rest(std::size_t idle_turns);
  Result<void> register_areas();
  Result<void> make_control_queue_pair();
  Result<void> introduce(int channel);
  void post_control_receive();

  EndOptions options_;
  PollingClock clock_;
  Time now_{};
  Time idle_since_{};
  bool may_sleep_ = true;
  bool talking_ = false;  ///< to the other end, so that its doorbell says everything
  std::string failure_;
  AlignedBytes memory_;
  AlignedBytes control_memory_;
  verbs::Context context_;
  std::vector<verbs::Path> paths_;
  verbs::ProtectionDomain domain_;
  Area source_;
  Area segmented_sink_;
  Area direct_sink_;
  RemoteAreas remote_;
  verbs::MemoryRegion control_region_;
  verbs::CompletionQueue control_completions_;
  verbs::QueuePair control_;
};

}  // namespace splitnic::bench
