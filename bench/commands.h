#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/wire/cell.h"

/// The options of each command of `splitnic-bench` as plain values, and the functions that run the commands. The
/// parsing is in command_line.cpp; each command has a folder of its own. All return the process's exit code: 0 for
/// success, 1 for an error at run time, 2 for a usage error.
namespace splitnic::bench {

struct NicCommand {
  bool json = false;
  unsigned runs = 5;
  double seconds = 1;                   ///< each measurement
  unsigned idle_hosts = 255;            ///< beside a busy one; 0: no measurement with several hosts
  bool quick = false;                   ///< fewer and shorter measurements, unless an option asks for others
  std::string forwarder;                ///< empty: bench-forwarder of this build or installation
  std::string svg;                      ///< file for a picture; empty: none
  std::string splitnic;                 ///< the program to measure; empty: the one beside this program, or the PATH's
  std::vector<std::string> rows;        ///< metric_names(); empty: all
  std::vector<std::string> contenders;  ///< contender_names(), beside the split driver; empty: all
};
/// Whether such a list names it.
[[nodiscard]] inline bool asked_for(const std::vector<std::string>& list, std::string_view name) {
  return list.empty() || std::ranges::find(list, name) != list.end();
}

struct FabricCommand {
  bool json = false;
  unsigned runs = 2;
  double seconds = 0.05;                ///< each measurement
  std::vector<std::string> operations;  ///< send, write, write-immediate, read, compare-swap, tables, peers; empty: all
  std::vector<std::uint32_t> sizes;     ///< bytes of a message; empty: a default selection
  bool spin = true;                     ///< both ends spin for messages; otherwise they sleep between messages
  std::uint32_t cell_bytes = fabric::kDefaultCellPayload;
  unsigned rounds = 10;           ///< of samples beside the peers
  std::string peers;              ///< folder of the peer programs; empty: this build's or installation's
  std::vector<std::string> rows;  ///< of the comparison, by their keys; empty: all
  std::string svg;                ///< file for a picture of the comparison; empty: none
  bool quick = false;             ///< fewer and shorter measurements, unless an option asks for others
};

struct VerbsCommand {
  bool json = false;
  double seconds = 0.05;          ///< each sample
  unsigned rounds = 10;           ///< of samples
  std::string peers;              ///< folder of the peer programs; empty: this build's or installation's
  std::vector<std::string> rows;  ///< by their keys; empty: all
};

int run_nic_command(const NicCommand& command);
int run_fabric_command(const FabricCommand& command);
int run_verbs_command(const VerbsCommand& command);

/// The whole program. Throws StartupError and UsageError for main to print.
int run_command_line(int argc, const char* const* argv);

}  // namespace splitnic::bench
