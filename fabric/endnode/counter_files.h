#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/os/daemon_status.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "fabric/endnode/local_ids.h"

namespace splitnic::fabric {

/// What the port of an endnode counts. Counts only grow.
struct PortCounts {
  std::vector<os::NamedCount> counters{};     ///< those that every InfiniBand port has
  std::vector<os::NamedCount> hw_counters{};  ///< the device's own
  friend bool operator==(const PortCounts&, const PortCounts&) = default;
};

/// An endnode's counters as files in the fabric's folder, one number in each, as the kernel has them below
/// /sys/class/infiniband. They are there while the endnode is open:
///
///     endnodes/LID/process                   pid, program, device, version: a line for each
///     endnodes/LID/queue_pairs               a line for each queue pair
///     endnodes/LID/ports/1/counters/NAME
///     endnodes/LID/ports/1/hw_counters/NAME
///
/// What all endnodes have counted since the folder was made stays:
///
///     sysfs/class/infiniband/DEVICE/ports/1/counters/NAME
///     sysfs/class/infiniband/DEVICE/ports/1/hw_counters/NAME
///
/// Thread: the owner. A forked child uses none of it and does not destroy it.
class CounterFiles {
 public:
  /// directory: of the fabric. own: held by the caller, also longer than the object. process: the file's text. Errors:
  /// a folder or file can't be made.
  [[nodiscard]] static Result<CounterFiles> open(const std::string& directory, LocalId own, std::string_view device,
                                                 std::string_view process);
  /// Removes the endnode's files.
  ~CounterFiles();
  CounterFiles(CounterFiles&& other) noexcept;
  CounterFiles& operator=(CounterFiles&&) = delete;

  /// Writes what has changed. The sums get it later if another process is adding to them at this moment; but `last`
  /// waits for it briefly. counts: always with the same names. A disk that is full is no error: the next call repairs
  /// it.
  void publish(const PortCounts& counts, std::string_view queue_pairs, bool last = false);

 private:
  CounterFiles(std::string folder, os::UniqueFd own, os::UniqueFd sums);
  void add_to_sums(const PortCounts& counts, bool last);

  std::string folder_;  // the endnode's; empty: moved from
  os::UniqueFd own_;    // its ports/1
  os::UniqueFd sums_;   // the device's
  PortCounts written_;
  PortCounts added_;  // to the sums
  std::string queue_pairs_;
};

/// The texts of an open endnode's files.
struct EndnodeReport {
  LocalId id{};
  std::vector<std::string> process{};      ///< lines, each "NAME VALUE"
  std::vector<std::string> queue_pairs{};  ///< lines: number, type, state, then names and values
  PortCounts counts{};                     ///< names in order
  std::int64_t open_ms = 0;                ///< since it was opened
};

/// The files of all endnodes in the fabric's folder whose local IDs are held. What can't be read is left out.
[[nodiscard]] std::vector<EndnodeReport> read_endnodes(const std::string& directory, const LocalIds& ids);

/// Removes the files that a killed endnode has left. The caller holds its ID.
void remove_counter_files(const std::string& directory, LocalId id);

/// Where endnodes have their files: directory/endnodes.
[[nodiscard]] std::string endnodes_folder(const std::string& directory);

}  // namespace splitnic::fabric
