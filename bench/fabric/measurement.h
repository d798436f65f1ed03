#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/commands.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench {

enum class Quantity : std::uint8_t {
  latency,  ///< one message at a time
  rate,     ///< as many in flight as have their own place in memory
};
enum class Verb : std::uint8_t { send, datagram, write, write_immediate, read, compare_swap };
enum class Path : std::uint8_t {
  segmented,  ///< in cells, placed by the owner of the memory, which is the process's
  direct,     ///< stored through the peer window into bridge memory
};
const char* to_string(Quantity quantity);
const char* to_string(Verb verb);
const char* to_string(Path path);

/// The messages of one measurement, and how they travel.
struct Measurement {
  Quantity quantity = Quantity::latency;
  Verb verb = Verb::send;
  Path path = Path::segmented;
  std::uint32_t bytes = 0;             ///< of a message, kMinBytes .. kMaxBytes
  std::uint32_t list = 1;              ///< of a rate: requests that are posted together, at most kMostInFlight
  std::uint32_t queue_pairs = 1;       ///< of a rate: the messages take turns on so many
  std::uint32_t idle_queue_pairs = 0;  ///< connected as well, and never used
  std::uint32_t paths = 1;             ///< bridges that the queue pairs are spread over
  std::uint32_t idle_paths = 0;        ///< up as well, and never used
};
inline constexpr std::uint32_t kMinBytes = 8;
inline constexpr std::uint32_t kMaxBytes = 1U << 20U;
/// The size of a frame of the virtual NIC. Beyond this size, latency only repeats the bandwidth.
inline constexpr std::uint32_t kLongestLatencyMessage = 1500;

/// The warm-up of a measurement is its length divided by this.
inline constexpr int kRunUpShare = 5;
/// How long an end waits for a silent peer.
inline constexpr Duration kPatience = std::chrono::seconds(10);

/// Messages of one measurement. Those that are posted in lists need more of them, or a list would wait for the one
/// before.
inline constexpr std::size_t kMostInFlight = 64;
inline constexpr std::size_t kMostInFlightInLists = 256;

/// Whether the peer's program answers each message with one like it. Reads and atomics are over when their own answer
/// is there.
[[nodiscard]] constexpr bool is_ping_pong(const Measurement& what) {
  return what.quantity == Quantity::latency && what.verb < Verb::read;
}
/// Whether messages arrive as completions of receives.
[[nodiscard]] constexpr bool takes_receives(Verb verb) {
  return verb == Verb::send || verb == Verb::datagram || verb == Verb::write_immediate;
}

/// The operations that --operations accepts, kTables among them.
inline constexpr std::string_view kTables = "tables";
std::vector<std::string> operation_names();

/// The measurements that the command line requests, in the order of the report.
struct Plan {
  std::vector<Measurement> measurements;
  bool tables = false;  ///< cost by the number of entries
  bool peers = false;   ///< splitnic beside other programs
};
/// Errors: nothing is left to measure.
Result<Plan> plan_of(const FabricCommand& command);

/// Where a measurement's messages lie, at their source and at their sink: message n in slot n modulo slots. Each slot
/// holds bytes of its own, and a stamp that tells which message brought them. Before a datagram there is room for its
/// route header.
struct SlotLayout {
  explicit SlotLayout(const Measurement& what);

  std::uint32_t bytes;
  std::size_t slots;     ///< and so messages in flight at most
  std::size_t head;      ///< bytes of a slot before the message
  std::size_t stride;    ///< from slot to slot: whole cache lines
  std::size_t stamp_at;  ///< offset in the message of the stamp, 64 bits, aligned; in the message's last bytes
  bool source_moves;     ///< each message has a stamp of its own; a read finds what stays there

  /// Of a slot's message.
  [[nodiscard]] std::size_t offset_in(std::size_t slot) const { return slot * stride + head; }
  [[nodiscard]] std::size_t offset_of(std::uint64_t sequence) const {
    return offset_in(static_cast<std::size_t>(sequence % slots));
  }
};
/// Of the flow of a measurement's messages, and of that of the answers.
[[nodiscard]] constexpr std::uint32_t ping_id(std::uint32_t row) { return 2 * row + 1; }
[[nodiscard]] constexpr std::uint32_t pong_id(std::uint32_t row) { return 2 * row + 2; }

/// Of one direction of a measurement.
inline constexpr std::size_t kAreaBytes = 2U << 20U;

}  // namespace splitnic::bench
