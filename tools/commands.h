#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/os/daemon_status.h"
#include "fabric/wire/cell.h"

/// The options of each command of `splitnic` as plain values, and the functions that run the commands. The parsing is
/// in command_line.cpp; each command has a file of its own. All return the process's exit code: 0 for success, 1 for an
/// error at run time, 2 for a usage error.
namespace splitnic::tools {

/// Options that both daemons have.
struct DaemonOptions {
  std::string name;     ///< empty: derived from the names of the machine and of the LAN or the TAP
  std::string control;  ///< control socket; empty: in the run-time directory
  std::string config;   ///< TOML file with the same options
  std::string user;     ///< name or number; empty: the one who starts the daemon
  bool no_sandbox = false;
  std::string netns;  ///< a name, a path or a pid; empty: the current one
  std::string log_level = "info";
  std::uint32_t mtu = 0;  ///< 0: the host: 1500; the unit: the LAN's
  std::string mode;       ///< "r", "s"; empty: the host asks for r, the unit follows the host
  bool no_data_channel = false;
  std::string offloads = "on";
  std::uint32_t pool_elements = 256;
  std::uint32_t cell_bytes = fabric::kDefaultCellPayload;
  std::uint32_t spin_us = 50;
  std::uint32_t spin_budget = 5;  ///< percent of the time for spins in vain
  std::string moderation;         ///< "ENTRIES,BYTES,MICROSECONDS", requested from the peer
};

struct HostCommand {
  DaemonOptions daemon;
  std::string connect;
  std::string tap;
  std::string mac;
  std::size_t queues = 1;
  std::vector<std::uint16_t> vlans;  ///< accepts tagged frames of these VLANs only; empty: of all
};

struct UnitCommand {
  DaemonOptions daemon;
  std::string listen;
  std::string lan;
  std::string lan_engine = "auto";  ///< "auto", "packet", "pcap"
  std::size_t threads = 1;
  std::vector<std::string> allow_uids;  ///< names or numbers
  std::vector<std::string> allow_gids;
  std::vector<std::string> allow_macs;  ///< "HOST=MAC"
  std::string policy;                   ///< file of rules; empty: none
  std::string state_directory;          ///< empty: $STATE_DIRECTORY, or none
  bool allow_foreign_sources = false;
  bool allow_promiscuous = false;
  std::optional<std::size_t> wait_hosts;  ///< none: as the LAN's specification says
  std::size_t window_bytes = 4U << 20U;
  std::size_t max_hosts = 64;
  std::size_t hosts_per_user = 0;   ///< 0: a quarter of max_hosts
  std::size_t memory_per_user = 0;  ///< bytes; 0: that of hosts_per_user hosts
  std::size_t setups_per_minute = 10;
};

struct StatusCommand {
  std::vector<std::string> controls;  ///< empty: all running daemons found
  bool json = false;
  bool counters = false;  ///< `stats`: every counter; `status`: a line per daemon and peer
  bool clear = false;     ///< the daemons' counters start from zero after this answer
};

struct PolicyCommand {
  std::string file;     ///< to check
  std::string control;  ///< of an I/O unit; empty: the only one that runs
};

struct VerbsRunCommand {
  std::string fabric = "default";    ///< name
  bool check = false;                ///< say what works here
  bool list = false;                 ///< say who is on the fabric
  std::string share_with{};          ///< a group for which to share the fabric
  std::string faults{};              ///< to inject, see fabric/faults; empty: none
  std::string faults_log{};          ///< file; empty: standard error
  std::string placement = "shared";  ///< memory of peers that is reached past the fabric: none, shared, process
  std::vector<std::string> program;  ///< and its arguments
};

int run_host(const HostCommand& command);
int run_io_unit(const UnitCommand& command);
int run_status(const StatusCommand& command);
int run_policy_check(const PolicyCommand& command);
/// request: show_policy or reload_policy.
int run_policy_request(const PolicyCommand& command, os::ControlRequest request);

/// Replaces this process by the program. Returns only with check, list or share_with, or if the program can't be run
/// (127).
int run_verbs_program(const VerbsRunCommand& command);

/// The whole program. Throws StartupError and UsageError for main to print.
int run_command_line(int argc, const char* const* argv);

}  // namespace splitnic::tools
