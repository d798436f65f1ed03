// Command line and configuration files: the same options, from two places. The command line wins.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/os/toml_config.h"
#include "common/result.h"
#include "fabric/wire/cell.h"
#include "tools/bench/fabric/measurement.h"
#include "tools/command_line.h"

namespace splitnic::tools {

namespace {

constexpr const char* kAbout =
    "splitnic: a virtual NIC for hosts, a real NIC on an I/O unit, and an RDMA channel fabric between them.";

/// As CLI11 wants it: what is wrong, or nothing.
std::string check_cell_bytes(const std::string& text) {
  std::uint32_t bytes = 0;
  if (!CLI::detail::lexical_cast(text, bytes) || bytes < fabric::kMinCellPayload || bytes > fabric::kMaxCellPayload ||
      bytes % 16 != 0) {
    return fmt::format("must be a multiple of 16 from {} to {}", fabric::kMinCellPayload, fabric::kMaxCellPayload);
  }
  return {};
}

void bind(CLI::App& app, DaemonOptions& options) {
  app.add_option("--name", options.name, "Name of this daemon (default: from the machine's name)");
  app.add_option("--control", options.control, "Control socket (default: one in the run-time directory)");
  app.add_option("--config", options.config, "TOML file with the same options; the command line wins");
  app.add_option("--netns", options.netns, "Open the interface in this network namespace (ip netns)");
  app.add_option("--log-level", options.log_level, "debug, info, warning, error or off");
  app.add_option("--mtu", options.mtu, "Layer-3 bytes of a frame at most")->check(CLI::Range(68U, 65535U));
  app.add_option("--mode", options.mode, "r: frames by RDMA write; s: by send/receive")
      ->check(CLI::IsMember({"r", "s"}));
  app.add_flag("--no-data-channel", options.no_data_channel, "Frames as SendData on the control channel");
  app.add_option("--pool-elements", options.pool_elements, "Elements of this end's receive pool")
      ->check(CLI::Range(4U, 16384U));
  app.add_option("--cell-bytes", options.cell_bytes, "Payload bytes of a cell; the smaller of both ends' is used")
      ->check(check_cell_bytes);
  app.add_option("--spin-us", options.spin_us, "Look for work this long, at most, before sleeping (microseconds)")
      ->check(CLI::Range(0U, 10000U));
  app.add_option("--moderation", options.moderation, "Doorbells from the peer at most per ENTRIES,BYTES,MICROSECONDS");
}

void bind(CLI::App& app, HostCommand& command) {
  bind(app, command.daemon);
  app.add_option("--connect", command.connect, "Where the I/O unit listens: shm:PATH");
  app.add_option("--tap", command.tap, "Name of the virtual NIC, a TAP interface");
  app.add_option("--vlan", command.vlans, "Take tagged frames of this VLAN, and of no other not so named")
      ->check(CLI::Range(1U, 4094U));
  app.add_option("--mac", command.mac, "Its address (default: one the I/O unit assigns, always the same per name)");
}

void bind(CLI::App& app, UnitCommand& command) {
  bind(app, command.daemon);
  app.add_option("--listen", command.listen, "Unix socket where hosts connect");
  app.add_option("--lan", command.lan, "Interface, or file:IN.pcap,OUT.pcap[,pace=max][,wait-hosts=N][,mtu=N]");
  app.add_option("--allow-uid", command.allow_uids, "Users whose hosts may connect, beside root and the own");
  app.add_option("--allow-gid", command.allow_gids, "Groups whose hosts may connect");
  app.add_option("--allow-mac", command.allow_macs,
                 "HOST=MAC: this host may use this address, and no other not so named");
  app.add_option("--wait-hosts", command.wait_hosts, "Start playback of a savefile when so many hosts are up");
  app.add_option("--window-bytes", command.window_bytes, "Memory of each end that the other writes")
      ->check(CLI::Range(std::size_t{1} << 20U, std::size_t{64} << 20U));
  app.add_option("--max-hosts", command.max_hosts, "Hosts at most")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1024}));
}

struct ConfigValues {
  std::vector<std::string> texts;
  unsigned line = 0;
};

/// The settings of one command: those at the file's top, and those in the table of its name.
std::map<std::string, ConfigValues> read_values(const std::string& path, const std::string& command_name) {
  const auto entries = os::read_config(path);
  if (!entries) throw UsageError{entries.error().message};
  std::map<std::string, ConfigValues> values;
  for (const auto& entry : *entries) {
    if (!entry.section.empty() && entry.section != "host" && entry.section != "iounit") {
      throw UsageError{
          fmt::format("{}:{}: no such table: [{}] (there are [host] and [iounit])", path, entry.line, entry.section)};
    }
    if (!entry.section.empty() && entry.section != command_name) continue;
    auto& value = values[entry.key];
    if (value.line == 0) value.line = entry.line;
    value.texts.push_back(entry.value);
  }
  return values;
}

/// Reads the file into command: each key as if it stood on the command line, errors with its line.
template <class Command>
void apply_config(Command& command, const std::string& path, const std::string& command_name) {
  for (const auto& [key, value] : read_values(path, command_name)) {
    const auto where = fmt::format("{}:{}", path, value.line);
    CLI::App single;
    bind(single, command);
    const auto* option = single.get_option_no_throw("--" + key);
    if (key == "config" || option == nullptr) throw UsageError{fmt::format("{}: no such option: {}", where, key)};
    std::vector<std::string> arguments;
    for (const auto& text : value.texts) arguments.push_back(fmt::format("--{}={}", key, text));
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      single.parse(arguments);
    } catch (const CLI::ParseError& error) {
      throw UsageError{fmt::format("{}: {}", where, error.what())};
    }
  }
}

void require(const std::string& value, const char* option) {
  if (value.empty()) throw UsageError{fmt::format("{} is required", option)};
}

void add_status(CLI::App& app, StatusCommand& command) {
  app.add_option("--control", command.controls, "Control socket of a daemon (default: all daemons found)");
  app.add_flag("--json", command.json, "Print JSON");
}

void bind(CLI::App& app, BenchNicCommand& command) {
  app.add_flag("--json", command.json, "Print JSON");
  app.add_option("--runs", command.runs, "Runs of each, alternating")->check(CLI::Range(1U, 1000U));
  app.add_option("--seconds", command.seconds, "How long each measurement takes")->check(CLI::Range(0.1, 3600.0));
  app.add_option("--forwarder", command.forwarder, "What to compare with (default: bench-forwarder beside splitnic)");
}

void bind(CLI::App& app, BenchFabricCommand& command) {
  app.add_flag("--json", command.json, "Print JSON");
  app.add_option("--runs", command.runs, "Runs of everything")->check(CLI::Range(1U, 1000U));
  app.add_option("--seconds", command.seconds, "How long each measurement takes")->check(CLI::Range(0.01, 3600.0));
  app.add_option("--operations", command.operations, "What to measure, separated by commas (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(bench::operation_names()));
  app.add_option("--sizes", command.sizes, "Bytes of the messages, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(bench::kMinBytes, bench::kMaxBytes));
  app.add_flag("--spin,!--sleep", command.spin,
               "Both ends look on for messages (default), or sleep between messages until a doorbell rings");
  app.add_option("--cell-bytes", command.cell_bytes, "Payload bytes of a cell")->check(check_cell_bytes);
}

template <class Command>
void parse_daemon(CLI::App& command_line, Command& command, int argc, const char* const* argv) {
  const std::string command_name = argv[1];
  // Twice: once to learn the configuration file's name, once on top of what it says.
  command_line.parse(argc, argv);
  if (command.daemon.config.empty()) return;
  const std::string config = command.daemon.config;
  command = Command{};
  command.daemon.config = config;
  apply_config(command, config, command_name);
  command_line.clear();
  command_line.parse(argc, argv);
}

}  // namespace

void define_command_line(CLI::App& app, CommandLine& asked) {
  app.name("splitnic");
  app.description(kAbout);
  app.require_subcommand(1);
  app.set_version_flag("--version", SPLITNIC_VERSION);
  bind(*app.add_subcommand("host", "Serve a virtual NIC on this host"), asked.host);
  bind(*app.add_subcommand("iounit", "Serve hosts from a LAN"), asked.unit);
  add_status(*app.add_subcommand("status", "A line for each daemon and each of its peers"), asked.status);
  auto* stats_app = app.add_subcommand("stats", "Every counter of each daemon");
  add_status(*stats_app, asked.stats);
  stats_app->add_flag("--clear", asked.stats.clear, "Print them, and let them start from nothing");
  auto* bench_app = app.add_subcommand("bench", "Measure the speed of a part");
  bench_app->require_subcommand(1);
  bind(*bench_app->add_subcommand("nic", "The virtual NIC, beside a one-process forwarder"), asked.bench_nic);
  bind(*bench_app->add_subcommand("fabric", "The verbs between two processes, and the protection table"),
       asked.bench_fabric);
}

int run_command_line(int argc, const char* const* argv) {
  CLI::App app;
  CommandLine asked;
  define_command_line(app, asked);
  try {
    const std::string which = argc > 1 ? argv[1] : "";
    if (which == "host") {
      parse_daemon(app, asked.host, argc, argv);
    } else if (which == "iounit") {
      parse_daemon(app, asked.unit, argc, argv);
    } else {
      app.parse(argc, argv);
    }
  } catch (const CLI::Success& done) {
    return app.exit(done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    throw UsageError{std::string(error.what()) + " (see --help)"};
  }
  if (app.got_subcommand("host")) {
    require(asked.host.connect, "--connect");
    require(asked.host.tap, "--tap");
    return run_host(asked.host);
  }
  if (app.got_subcommand("iounit")) {
    require(asked.unit.listen, "--listen");
    require(asked.unit.lan, "--lan");
    return run_io_unit(asked.unit);
  }
  if (app.got_subcommand("bench")) {
    const bool fabric = app.get_subcommand("bench")->got_subcommand("fabric");
    return fabric ? run_bench_fabric(asked.bench_fabric) : run_bench_nic(asked.bench_nic);
  }
  return run_status(app.got_subcommand("status") ? asked.status : asked.stats);
}

}  // namespace splitnic::tools
