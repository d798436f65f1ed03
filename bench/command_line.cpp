// The command line: its commands and options, their help texts, and the choice of the command to run.
#include "bench/command_line.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bench/fabric/comparison.h"
#include "bench/fabric/measurement.h"
#include "bench/nic/contest.h"
#include "bench/verbs/table.h"
#include "common/result.h"
#include "tools/command_help.h"

namespace splitnic::bench {

namespace {

constexpr const char* kAbout = "splitnic-bench: measures splitnic, beside other programs that do the same job.";

template <class Command>
void bind_runs(CLI::App& app, Command& command, double least_seconds) {
  app.add_flag("--json", command.json, "Print JSON");
  app.add_option("--runs", command.runs, "Runs of everything, one after the other")
      ->type_name("COUNT")
      ->check(tools::between(1U, 1000U))
      ->capture_default_str();
  app.add_option("--seconds", command.seconds, "How long each measurement takes")
      ->type_name("SECONDS")
      ->check(tools::between(least_seconds, 3600.0))
      ->capture_default_str();
}

template <class Command>
void bind_peers(CLI::App& app, Command& command, const std::vector<std::string>& rows) {
  app.add_option("--rounds", command.rounds, "Rounds of samples beside the peers")
      ->type_name("COUNT")
      ->check(tools::between(1U, 1000U))
      ->capture_default_str();
  app.add_option("--peers", command.peers, "Folder of the peer programs (default: of this build or installation)")
      ->type_name("PATH");
  app.add_option("--rows", command.rows, "Rows of the comparison with the peers, separated by commas (default: all)")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::IsMember(rows));
}

void bind(CLI::App& app, VerbsCommand& command) {
  app.add_flag("--json", command.json, "Print JSON");
  app.add_option("--seconds", command.seconds, "How long each sample takes")
      ->type_name("SECONDS")
      ->check(tools::between(0.01, 3600.0))
      ->capture_default_str();
  bind_peers(app, command, verbs_row_names());
}

void bind(CLI::App& app, NicCommand& command) {
  bind_runs(app, command, 0.1);
  app.add_option("--forwarder", command.forwarder,
                 "The forwarder in one process (default: bench-forwarder of this build or installation)")
      ->type_name("PATH");
  app.add_option("--splitnic", command.splitnic,
                 "The program to measure (default: splitnic beside this program, or the PATH's)")
      ->type_name("PATH");
  app.add_option("--idle-hosts", command.idle_hosts, "Idle hosts beside a busy one; 0 leaves several hosts out")
      ->type_name("COUNT")
      ->check(tools::between(0U, 1000U))
      ->capture_default_str();
  app.add_option("--rows", command.rows,
                 "Rows of the tables, separated by commas; several hosts only with --idle-hosts (default: all)")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::IsMember(nic::metric_names()));
  app.add_option("--contenders", command.contenders, "Whom to measure beside the split driver (default: all)")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::IsMember(nic::contender_names()));
  app.add_option("--svg", command.svg, "Draw the contenders beside the kernel's bridge into this file")
      ->type_name("FILE");
  app.add_flag("--quick", command.quick, "Fewer and shorter measurements, in about three minutes");
}

void bind(CLI::App& app, FabricCommand& command) {
  bind_runs(app, command, 0.01);
  app.add_option("--operations", command.operations, "What to measure, separated by commas (default: all)")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::IsMember(operation_names()));
  app.add_option("--sizes", command.sizes, "Bytes of the messages, separated by commas (default: a choice)")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(tools::between(kMinBytes, kMaxBytes));
  app.add_flag("--spin,!--sleep", command.spin,
               "Both ends poll for messages (the default), or sleep between messages until a doorbell rings");
  app.add_option("--cell-bytes", command.cell_bytes, "Payload bytes of a cell")
      ->type_name("BYTES")
      ->check(tools::cell_bytes())
      ->capture_default_str();
  bind_peers(app, command, row_names());
  app.add_option("--svg", command.svg, "Draw the comparison with the peers into this file")->type_name("FILE");
  app.add_flag("--quick", command.quick,
               "Fewer and shorter measurements, without the protection table, in less than half a minute");
}

/// What --quick changes, unless other options say something else.
void make_quick(const CLI::App& app, NicCommand& command) {
  if (app.count("--runs") == 0) command.runs = 3;
  if (app.count("--seconds") == 0) command.seconds = 0.5;
  if (app.count("--idle-hosts") == 0) command.idle_hosts = 16;
}

void make_quick(const CLI::App& app, FabricCommand& command) {
  if (app.count("--runs") == 0) command.runs = 1;
  if (app.count("--seconds") == 0) command.seconds = 0.01;
  if (app.count("--rounds") == 0) command.rounds = 3;
  // Filling the largest protection table takes longer than all the rest.
  if (app.count("--operations") == 0) {
    command.operations = operation_names();
    std::erase(command.operations, kTables);
  }
  if (app.count("--sizes") == 0) command.sizes = {8, 64, 1500, 65536};
}

}  // namespace

void define_command_line(CLI::App& app, CommandLine& asked) {
  app.name("splitnic-bench");
  app.description(kAbout);
  app.formatter(tools::make_help_formatter());
  app.require_subcommand(1);
  app.set_version_flag("--version", SPLITNIC_VERSION);
  bind(
      *app.add_subcommand("nic", "The virtual NIC, beside forwarders in one and two processes and the kernel's bridge"),
      asked.nic);
  bind(*app.add_subcommand("fabric", "The verbs between two processes, the protection table, and both beside peers"),
       asked.fabric);
  bind(*app.add_subcommand("verbs", "A program on the C verbs, beside UCX, libfabric and the C++ verbs"), asked.verbs);
}

int run_command_line(int argc, const char* const* argv) {
  CLI::App app;
  CommandLine asked;
  define_command_line(app, asked);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  tools::check_command_name(app, words);
  try {
    tools::parse_words(app, words);
  } catch (const CLI::Success& done) {
    return tools::print_text(app, done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    throw UsageError{std::string(error.what()) + " (see --help)"};
  }
  if (asked.nic.quick) make_quick(*app.get_subcommand("nic"), asked.nic);
  const bool several_hosts = asked.nic.rows.empty() || app.get_subcommand("nic")->count("--idle-hosts") != 0;
  if (!several_hosts) asked.nic.idle_hosts = 0;
  if (!asked.nic.svg.empty() && !asked_for(asked.nic.contenders, "bridge"))
    throw UsageError{"--svg draws the contenders beside the kernel's bridge: --contenders must name it"};
  if (app.got_subcommand("nic")) return run_nic_command(asked.nic);
  if (app.got_subcommand("verbs")) return run_verbs_command(asked.verbs);
  if (asked.fabric.quick) make_quick(*app.get_subcommand("fabric"), asked.fabric);
  return run_fabric_command(asked.fabric);
}

}  // namespace splitnic::bench
