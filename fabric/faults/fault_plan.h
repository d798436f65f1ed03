#pragma once

#include <boost/describe/class.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/time.h"
#include "fabric/adapter/transport_faults.h"
#include "fabric/faults/fault_specification.h"

namespace splitnic::fabric {

/// How often each fault has hit.
struct FaultCounters {
  std::uint64_t drop = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t delay = 0;
  std::uint64_t rnr = 0;
  std::uint64_t kill_peer = 0;
  std::uint64_t cq_error = 0;
  std::uint64_t duplicate = 0;
  std::uint64_t lost_ack = 0;
};
BOOST_DESCRIBE_STRUCT(FaultCounters, (), (drop, corrupt, delay, rnr, kill_peer, cq_error, duplicate, lost_ack))

/// What a plan needs of the world. All of it is called under the same rules as the plan.
struct FaultPlanOptions {
  FaultSpecification faults{};
  unsigned device = 1;            ///< tells the devices of a process apart, in draws and lines
  std::function<Time()> clock{};  ///< the adapter's
  /// Begins the death of the path's peer; false: it can't be, and the request ends with retry_exceeded instead.
  std::function<bool(PathNumber)> kill_peer{};
  /// Takes a line for each fault, without its end.
  std::function<void(const std::string&)> log{};
};

/// Faults of one adapter, drawn from a seed. A draw depends on the seed, the device, the queue pair in order of
/// creation, the request or message, and how often this fault has hit it; neither on time nor on other draws. Allocates
/// memory for a fault. Thread: the adapter's owner.
class FaultPlan final : public TransportFaults {
 public:
  explicit FaultPlan(FaultPlanOptions options) : options_(std::move(options)) {}

  /// Queue pairs have the numbers 1, 2, ... in the order of these calls; those that were never named meet no faults.
  void created(QpNumber queue_pair) { queue_pairs_[queue_pair.value].ordinal = ++created_; }
  void destroyed(QpNumber queue_pair) { queue_pairs_.erase(queue_pair.value); }
  /// No queue pair meets faults from now on, and kill_peer is not called any more.
  void end() { queue_pairs_.clear(); }
  [[nodiscard]] const FaultCounters& counters() const { return counters_; }

  [[nodiscard]] RequestTurn turn(const SendingRequest& request) override;
  [[nodiscard]] bool loses(const SendingRequest& request, std::uint16_t cell) override;
  [[nodiscard]] bool duplicates(const SendingRequest& request, std::uint16_t cell) override;
  [[nodiscard]] bool loses_answer(const SendingRequest& request) override;
  [[nodiscard]] bool damages(const ArrivingMessage& message) override;
  [[nodiscard]] bool not_ready(const ArrivingMessage& message, std::uint64_t receive) override;

 private:
  enum class Kind : std::uint8_t { drop = 1, corrupt, delay, rnr, duplicate, lost_ack };
  struct State {
    std::uint64_t ordinal = 0;
    std::uint64_t turns = 0;  // the turns of so many requests have been decided
    bool cut = false;         // its peer is dying: nothing leaves any more
    // How often a fault has hit a request's cell.
    std::map<std::tuple<std::uint64_t, std::uint16_t, Kind>, unsigned> hits;
    std::uint64_t messages = 0;  // received
    std::uint32_t psn = 0;       // of the last of them
    unsigned damaged = 0;        // how often the last message was damaged
    unsigned refused = 0;        // how often it was refused as not ready
  };

  [[nodiscard]] State* find(QpNumber queue_pair);
  [[nodiscard]] bool draw(unsigned permille, Kind kind, std::initializer_list<std::uint64_t> what) const;
  /// Draws whether the fault hits a cell. Returns 0 if not, else how often it has hit this cell.
  [[nodiscard]] unsigned hit(State& state, unsigned permille, Kind kind, std::uint64_t position, std::uint16_t cell);
  [[nodiscard]] RequestTurn kill(State& state, const SendingRequest& request);
  static void note(State& state, const ArrivingMessage& message);
  [[nodiscard]] std::string line(const char* kind, const State& state, const SendingRequest& request) const;
  [[nodiscard]] std::string line(const char* kind, const State& state, const ArrivingMessage& message) const;

  FaultPlanOptions options_;
  std::uint64_t created_ = 0;
  bool killed_ = false;
  FaultCounters counters_;
  std::unordered_map<std::uint32_t, State> queue_pairs_;
};

}  // namespace splitnic::fabric
