#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench {

inline constexpr std::array<std::size_t, 4> kTableSizes{10, 1000, 100'000, 1'000'000};

/// The measured operations of a protection table, in the order of the report.
struct TableOperation {
  const char* key;    ///< in JSON
  const char* title;  ///< in the table
  bool held_to_flat;  ///< touches only memory that the cache holds, whatever the size of the table
};
inline constexpr std::array<TableOperation, 7> kTableOperations{{
    {"look_up_same", "look-up, among the same 10 entries", true},
    {"bind", "bind and unbind a window", true},
    {"fast_register", "register 16 pages by key, invalidate", true},
    {"look_up_any", "look-up, of any entry", false},
    {"register", "register a region, deregister", false},
    {"register_by_verbs", "the same by the verbs, asking the kernel", false},
    {"bare_read", "yardstick: a read anywhere in as much memory", false},
}};
inline constexpr std::size_t kBareRead = 6;
/// How many times the cost in the smallest table an operation may cost in the largest, if it touches only the cache.
inline constexpr double kFlat = 2;

/// Seconds for each operation in a table with so many entries.
struct TableCosts {
  std::size_t entries = 0;
  double bytes_per_entry = 0;
  std::array<double, kTableOperations.size()> seconds{};
};
/// For each of kTableSizes; length: of each measurement. Errors: no resources.
Result<std::vector<TableCosts>> measure_tables(Duration length);

}  // namespace splitnic::bench
