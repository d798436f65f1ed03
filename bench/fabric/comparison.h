#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/fabric/client.h"
#include "bench/fabric/end.h"
#include "bench/fabric/measurement.h"
#include "bench/fabric/placement.h"
#include "bench/fabric/run.h"

namespace splitnic::bench {

/// A contestant beside splitnic: an operation of a peer program.
struct Contestant {
  const char* key;      ///< in JSON
  const char* title;    ///< in the table
  const char* program;  ///< empty: splitnic itself
  const char* operation;
};
/// The first is splitnic; the second is splitnic again, as the reference of a row that compares it with itself.
inline constexpr std::size_t kSplitnic = 0;
inline constexpr std::size_t kSplitnicReference = 1;
inline constexpr std::size_t kSlotRing = 2;
inline constexpr std::size_t kUcxActiveMessage = 3;
inline constexpr std::size_t kUcxPut = 4;
inline constexpr std::size_t kLibfabric = 5;
inline constexpr std::size_t kMemif = 6;
inline constexpr std::size_t kMessageQueue = 7;
inline constexpr std::array<Contestant, 8> kContestants{{
    {"splitnic", "splitnic", "", ""},
    {"splitnic_reference", "(itself)", "", ""},
    {"slot_ring", "slot ring", "bench-peer-ring", "send"},
    {"ucx_active_message", "UCX message", "bench-peer-ucx", "active-message"},
    {"ucx_put", "UCX put", "bench-peer-ucx", "put"},
    {"libfabric", "libfabric", "bench-peer-libfabric", "send"},
    {"memif", "DPDK memif", "bench-peer-memif", "packet"},
    {"message_queue", "Boost queue", "bench-peer-message-queue", "send"},
}};

/// The unit of a row's figures.
enum class Unit : std::uint8_t { microseconds, million_per_second, gigabytes_per_second };
const char* to_string(Unit unit);

/// A row of the comparison. The ratio is splitnic's median divided by the reference's. For times it should be at most
/// the goal, for rates at least.
struct ComparedRow {
  const char* key;
  const char* title;
  Unit unit;
  Measurement what;                 ///< of splitnic
  std::vector<std::size_t> beside;  ///< contestants
  std::size_t reference;            ///< one of them
  Bounds goal;
  Bounds aim;
  const char* reference_title = "";  ///< of kSplitnicReference
  Measurement reference_what{};      ///< of kSplitnicReference
  double reference_factor = 1;
};
const std::vector<ComparedRow>& compared_rows();
/// The keys that --rows accepts.
std::vector<std::string> row_names();

/// One sample, in the row's unit.
struct Sample {
  std::size_t row = 0;
  std::size_t contestant = 0;
  double value = 0;
  double line = 0;  ///< seconds; of a cache line from core to core just before
};

struct SkippedPeer {
  std::string program;
  std::string reason;
};

struct ComparisonOptions {
  EndOptions end;
  Cores cores;
  std::string peers;  ///< folder of the peer programs
  std::size_t rounds = 1;
  std::vector<std::string> rows;  ///< keys; empty: all
  Duration length{};              ///< of a sample
  double load = 0;                ///< load average of the machine at the start
};

struct Comparison {
  std::vector<std::size_t> rows;  ///< those asked for, in the order of compared_rows()
  std::vector<Sample> samples;    ///< each with the same placement before and after it
  std::size_t moved = 0;          ///< samples during which the placement changed; discarded
  std::size_t rounds = 0;
  bool realtime = false;
  std::string unfit;                 ///< why this run judges no goal; empty: it does
  std::vector<SkippedPeer> skipped;  ///< peers that are not there, or that failed

  /// In the row's unit; nothing with fewer than kFewestSamples.
  [[nodiscard]] std::optional<double> median(std::size_t row, std::size_t contestant, Placement placement) const;
  [[nodiscard]] std::size_t count(std::size_t row, std::size_t contestant, Placement placement) const;
  /// Seconds; nothing if no sample has this placement.
  [[nodiscard]] std::optional<double> line(Placement placement) const;
};
inline constexpr std::size_t kFewestSamples = 3;

enum class Verdict : std::uint8_t { holds, missed, not_measured };
/// The result of a row in one placement.
struct Outcome {
  Verdict verdict = Verdict::not_measured;
  double ratio = 0;
  bool aim_reached = false;
  std::string reason;  ///< why it is not measured
};
[[nodiscard]] Outcome outcome_of(const Comparison& comparison, std::size_t row, Placement placement);
/// Whether less is better.
[[nodiscard]] inline bool is_time(const ComparedRow& row) { return row.what.quantity == Quantity::latency; }

/// Takes samples of every row and contestant in turn, round by round. Writes its progress to standard error. Call
/// without threads. Errors: splitnic's own measurement failed. A peer that fails is left out from then on, and named.
Result<Comparison> compare(const ComparisonOptions& options);

}  // namespace splitnic::bench
