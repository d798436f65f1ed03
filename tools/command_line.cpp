// The command line: its commands and options, their help texts, and the choice of the command to run.
#include "tools/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/result.h"
#include "host/tap_rights.h"
#include "iounit/shared_places.h"
#include "tools/command_help.h"

namespace splitnic::tools {

namespace {

constexpr const char* kAbout =
    "splitnic: a virtual NIC for hosts, a real NIC on an I/O unit, and an RDMA channel fabric between them.";

void bind(CLI::App& app, DaemonOptions& options) {
  app.add_option("--control", options.control,
                 "Control socket, which status and stats query (default: one in the folder for control sockets)")
      ->type_name("PATH");
  app.add_option("--config", options.config, "TOML file with the same options; the command line overrides it")
      ->type_name("FILE");
  app.add_option("--netns", options.netns,
                 "Open the interface in this network namespace: a name of ip netns, a path, or the pid of a process")
      ->type_name("NAMESPACE");
  app.add_option("--user", options.user,
                 "Become this user, by name or number, when interfaces and sockets are open; needs root at the start")
      ->type_name("USER");
  app.add_flag("--no-sandbox", options.no_sandbox,
               "Keep all rights and permit every system call, for debugging; the log says so");
  app.add_option("--log-level", options.log_level, "debug, info, warning, error or off")
      ->type_name("LEVEL")
      ->capture_default_str();
  app.add_option("--mode", options.mode, "r: send frames by RDMA write; s: by send/receive")
      ->type_name("MODE")
      ->check(CLI::IsMember({"r", "s"}));
  app.add_flag("--no-data-channel", options.no_data_channel, "Send frames as SendData on the control channel");
  app.add_option("--offloads", options.offloads,
                 "on: checksums and segments of TCP and UDP are left to the next hop that can make them, and frames of "
                 "64 KiB pass whole, where the other end does the same, and bursts of shorter ones are merged; off: "
                 "every frame is finished")
      ->type_name("ON|OFF")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--pool-elements", options.pool_elements, "Elements of this end's receive pool")
      ->type_name("COUNT")
      ->check(between(4U, 16384U))
      ->capture_default_str();
  app.add_option("--cell-bytes", options.cell_bytes, "Payload bytes of a cell; the smaller of both ends' is used")
      ->type_name("BYTES")
      ->check(cell_bytes())
      ->capture_default_str();
  app.add_option("--spin-us", options.spin_us, "Maximum time to poll before sleeping; 0 saves processor time")
      ->type_name("MICROSECONDS")
      ->check(between(0U, 10000U))
      ->capture_default_str();
  app.add_option("--spin-budget", options.spin_budget,
                 "How much of a core such polling may take without finding work, in percent")
      ->type_name("PERCENT")
      ->check(between(0U, 100U))
      ->capture_default_str();
  app.add_option("--moderation", options.moderation,
                 "Request that the peer rings the doorbell only after this many entries, bytes or microseconds, "
                 "whichever comes first (default: at once)")
      ->type_name("ENTRIES,BYTES,MICROSECONDS");
}

void bind(CLI::App& app, HostCommand& command) {
  app.add_option("--connect", command.connect, "Where the I/O unit listens")->type_name("shm:PATH")->required();
  app.add_option("--tap", command.tap, "Name of the virtual NIC, a TAP interface")->type_name("IFNAME")->required();
  app.add_option("--name", command.daemon.name,
                 "This host's name at the I/O unit (default: the names of the machine and the TAP)")
      ->type_name("NAME");
  app.add_option("--mac", command.mac,
                 "Address of the virtual NIC (default: one that the I/O unit derives from the name)")
      ->type_name("ADDRESS");
  app.add_option("--mtu", command.daemon.mtu,
                 "MTU of a newly created virtual NIC (default: 1500, or the I/O unit's maximum if that is less). The "
                 "interface can be set to any MTU up to the unit's, but beyond 9216 only up to this one")
      ->type_name("BYTES")
      ->check(between(68U, host::kMaxTapMtu));
  app.add_option("--queues", command.queues,
                 "Queues of the virtual NIC, each with a thread of its own; the I/O unit counts each further one as a "
                 "host in --max-hosts and in its limits per user")
      ->type_name("COUNT")
      ->check(between(std::size_t{1}, host::kMaxQueues))
      ->capture_default_str();
  app.add_option("--vlan", command.vlans,
                 "Receive tagged frames of this VLAN; frames of VLANs that are not listed are dropped")
      ->type_name("ID")
      ->check(between(1U, 4094U));
  bind(app, command.daemon);
}

void bind(CLI::App& app, UnitCommand& command) {
  app.add_option("--listen", command.listen, "Unix socket where hosts connect; a missing folder is created")
      ->type_name("PATH")
      ->required();
  app.add_option("--lan", command.lan,
                 "An interface, or capture files: file:IN.pcap,OUT.pcap[,pace=max][,wait-hosts=N][,mtu=N]")
      ->type_name("LAN")
      ->required();
  app.add_option(
         "--lan-engine", command.lan_engine,
         "How to reach the interface: packet (a packet socket with virtio-net headers), pcap (libpcap), or auto "
         "(packet where that works)")
      ->type_name("ENGINE")
      ->check(CLI::IsMember({"auto", "packet", "pcap"}))
      ->capture_default_str();
  app.add_option("--threads", command.threads,
                 "Threads that move frames: each serves a part of the hosts, and gets a part of the LAN's flows; more "
                 "than one need the packet engine")
      ->type_name("COUNT")
      ->check(between(std::size_t{1}, iounit::kMaxUnits))
      ->capture_default_str();
  app.add_option("--name", command.daemon.name,
                 "This unit's name at its hosts (default: the names of the machine and the LAN)")
      ->type_name("NAME");
  app.add_option("--allow-uid", command.allow_uids,
                 "A user whose hosts may connect, by name or number; root and the unit's own user always may")
      ->type_name("USER");
  app.add_option("--allow-gid", command.allow_gids, "A group whose hosts may connect, by name or number")
      ->type_name("GROUP");
  app.add_option("--allow-mac", command.allow_macs,
                 "The host of this name may use this address, and only addresses that are listed for it")
      ->type_name("HOST=ADDRESS");
  app.add_option("--policy", command.policy,
                 "TOML file that says what each host may do; read again on SIGHUP and by splitnic policy reload")
      ->type_name("FILE");
  app.add_option("--state-directory", command.state_directory,
                 "Where the unit keeps the owners of names across restarts (default: $STATE_DIRECTORY, which systemd "
                 "sets; without it the unit forgets them when it ends)")
      ->type_name("PATH");
  app.add_flag("--allow-foreign-sources", command.allow_foreign_sources,
               "Hosts may send from addresses that are not their own, for bridges behind them; addresses of other "
               "hosts and of the LAN's stations stay refused");
  app.add_flag("--allow-promiscuous", command.allow_promiscuous,
               "Hosts may receive the unicast frames of all others by promiscuous mode");
  app.add_option("--mtu", command.daemon.mtu, "Maximum MTU of the hosts (default: the LAN's)")
      ->type_name("BYTES")
      ->check(between(68U, 65535U));
  app.add_option("--max-hosts", command.max_hosts, "Maximum number of hosts; further hosts are refused")
      ->type_name("COUNT")
      ->check(between(std::size_t{1}, std::size_t{1024}))
      ->capture_default_str();
  app.add_option("--hosts-per-user", command.hosts_per_user,
                 "How many hosts of one user are served at most (default: a quarter of --max-hosts); root and the "
                 "unit's own user may have all places")
      ->type_name("COUNT")
      ->check(between(std::size_t{1}, std::size_t{1024}));
  app.add_option("--memory-per-user", command.memory_per_user,
                 "Memory of the bridges of one user's hosts (default: enough for --hosts-per-user); root and the "
                 "unit's own user have no limit")
      ->type_name("BYTES")
      ->check(between(std::size_t{2} << 20U, std::size_t{1} << 40U));
  app.add_option("--setups-per-minute", command.setups_per_minute,
                 "If this many bridges of one user have ended within a minute, each further set-up waits, 10 ms at "
                 "first and twice as long each time, up to 5 s")
      ->type_name("COUNT")
      ->check(between(std::size_t{1}, std::size_t{1'000'000}))
      ->capture_default_str();
  app.add_option("--wait-hosts", command.wait_hosts,
                 "Start the playback of a capture file when the sessions of this many hosts are up; their interfaces "
                 "must be up before (default: 1)")
      ->type_name("COUNT")
      ->check(between(std::size_t{0}, std::size_t{65535}));
  app.add_option("--window-bytes", command.window_bytes, "Memory of each end of a bridge that the other end writes")
      ->type_name("BYTES")
      ->check(between(std::size_t{1} << 20U, std::size_t{64} << 20U))
      ->capture_default_str();
  bind(app, command.daemon);
}

/// A script may have set the variable that the option sets for the program.
void take_from_environment(const char* variable, std::string& value) {
  if (const char* set = std::getenv(variable); set != nullptr && *set != '\0') value = set;
}

void bind(CLI::App& app, VerbsRunCommand& command) {
  take_from_environment("SPLITNIC_FABRIC", command.fabric);
  take_from_environment("SPLITNIC_PLACEMENT", command.placement);
  app.add_option("--fabric", command.fabric, "Only programs on the fabric of this name reach each other")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option(
         "--faults", command.faults,
         "Inject faults below the program, drawn from the number SEED. Faults: drop, corrupt, rnr, duplicate and "
         "lost-ack=PERMILLE, "
         "delay=PERMILLE:MICROSECONDS, kill-peer=REQUEST, cq-error=STATUS:REQUEST. Without any: a mix that "
         "reliable connections repair")
      ->type_name("SEED[,FAULT=VALUE...]");
  app.add_option("--placement", command.placement,
                 "Memory that programs of this user reach in each other without the owner's processor: none; shared "
                 "(files that several processes map, and device memory); process (also private memory, by "
                 "process_vm_writev)")
      ->type_name("WHICH")
      ->check(CLI::IsMember({"none", "shared", "process"}))
      ->capture_default_str();
  app.add_option("--faults-log", command.faults_log,
                 "Append a line for each fault to this file (default: standard error)")
      ->type_name("PATH");
  auto* check = app.add_flag("--check", command.check, "Say what a program would find here, instead of running one");
  auto* list =
      app.add_flag("--list", command.list, "Say which processes are on the fabric, instead of running a program");
  app.add_option("--share-with", command.share_with,
                 "Let the members of this group meet on the fabric, instead of running a program. Only root can")
      ->type_name("GROUP")
      ->excludes(check)
      ->excludes(list);
  check->excludes(list);
  app.prefix_command();  // what follows the options is the program's
}

void bind(CLI::App& app, StatusCommand& command) {
  app.add_option("--control", command.controls, "Control socket of a daemon (default: those of all daemons found)")
      ->type_name("PATH");
  app.add_flag("--json", command.json, "Print JSON");
}

}  // namespace

void define_command_line(CLI::App& app, CommandLine& asked) {
  app.name("splitnic");
  app.description(kAbout);
  app.formatter(make_help_formatter());
  app.require_subcommand(1);
  app.set_version_flag("--version", SPLITNIC_VERSION);
  bind(*app.add_subcommand("host", "Serve a virtual NIC on this host"), asked.host);
  bind(*app.add_subcommand("iounit", "Serve hosts from a LAN"), asked.unit);
  bind(*app.add_subcommand("verbs-run",
                           "Run PROGRAM with its ARGUMENTS, a program for RDMA verbs, on the fabric of this machine"),
       asked.verbs);
  bind(*app.add_subcommand("status", "A line for each daemon and each of its peers"), asked.status);
  auto* stats = app.add_subcommand(
      "stats",
      "The counters of each daemon and of each device that verbs programs have opened (without --json: those "
      "that aren't zero)");
  bind(*stats, asked.stats);
  stats->add_flag("--clear", asked.stats.clear, "Print the counters, then reset those of daemons to zero");
  auto* policy = app.add_subcommand("policy", "Check, show or reload an I/O unit's policy");
  policy->require_subcommand(1);
  policy->add_subcommand("check", "Check a policy file")
      ->add_option("FILE", asked.policy.file, "The file")
      ->type_name("FILE")
      ->required();
  for (auto* command : {policy->add_subcommand("show", "Print the rules in force, in TOML, and who owns each name"),
                        policy->add_subcommand("reload", "Let the unit read its policy file again")}) {
    command
        ->add_option("--control", asked.policy.control, "Control socket of the unit (default: the only unit that runs)")
        ->type_name("PATH");
  }
}

namespace {

/// CLI11 takes the words after "--" for the main command's. Removes "--" and what follows from words that begin with
/// verbs-run, and returns what followed; empty: no "--" is in front of the program.
std::vector<std::string> take_program(const CLI::App& app, std::vector<std::string>& words) {
  const CLI::App& verbs_run = *app.get_subcommand("verbs-run");
  for (std::size_t at = 1; at < words.size() && words[at].starts_with('-'); ++at) {
    if (words[at] == "--") {
      const auto mark = words.begin() + static_cast<std::ptrdiff_t>(at);
      std::vector<std::string> program(mark + 1, words.end());
      words.erase(mark, words.end());
      return program;
    }
    const auto* option = verbs_run.get_option_no_throw(words[at]);
    if (option != nullptr && option->get_items_expected_max() > 0) ++at;  // its value is the next word
  }
  return {};
}

/// CLI11 takes the first word that it does not know for the program.
void refuse_unknown_option(const CLI::App& verbs_run) {
  const auto rest = verbs_run.remaining();
  if (rest.empty() || !rest.front().starts_with('-')) return;
  throw UsageError{fmt::format("unknown option: {} (see --help; a program of this name goes behind --)", rest.front())};
}

int run_chosen_command(const CLI::App& app, CommandLine& asked) {
  const std::string& chosen = app.get_subcommands().front()->get_name();
  if (chosen == "host") return run_host(asked.host);
  if (chosen == "iounit") return run_io_unit(asked.unit);
  if (chosen == "verbs-run") {
    if (asked.verbs.program.empty()) asked.verbs.program = app.get_subcommand("verbs-run")->remaining();
    return run_verbs_program(asked.verbs);
  }
  if (chosen == "status") return run_status(asked.status);
  if (chosen == "policy") {
    const auto* policy = app.get_subcommand("policy");
    if (policy->got_subcommand("check")) return run_policy_check(asked.policy);
    const bool show = policy->got_subcommand("show");
    return run_policy_request(asked.policy, show ? os::ControlRequest::show_policy : os::ControlRequest::reload_policy);
  }
  return run_status(asked.stats);
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app;
  CommandLine asked;
  define_command_line(app, asked);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words.front() == "bench") {
    throw UsageError{"the benchmarks are a separate program: splitnic-bench"};
  }
  check_command_name(app, words);
  ConfiguredWords configured{words};
  try {
    const bool of_a_program = !words.empty() && words.front() == "verbs-run";
    if (of_a_program) {
      asked.verbs.program = take_program(app, configured.words);
    } else {
      configured = with_configuration(words);
    }
    parse_words(app, configured.words);
    if (of_a_program) refuse_unknown_option(*app.get_subcommand("verbs-run"));
  } catch (const CLI::Success& done) {
    return print_text(app, done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    throw UsageError{std::string(error.what()) + " (see --help)"};
  }
  try {
    return run_chosen_command(app, asked);
  } catch (const UsageError& error) {
    throw with_place(error, configured);
  }
}

}  // namespace splitnic::tools
