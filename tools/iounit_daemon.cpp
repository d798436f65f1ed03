// `splitnic iounit`: a LAN, a socket where hosts connect, and the I/O-unit module driver between them.
#include <fmt/format.h>
#include <linux/capability.h>
#include <net/if.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <type_traits>

#include "common/os/account.h"
#include "common/os/held_name.h"
#include "common/os/netlink.h"
#include "common/os/path_parts.h"
#include "common/os/runtime_directory.h"
#include "fabric/bridge/shm_source.h"
#include "iounit/io_unit.h"
#include "iounit/lan_spec.h"
#include "iounit/packet_fanout.h"
#include "tools/daemon.h"
#include "tools/sandbox.h"
#include "tools/unit_policy.h"
#include "tools/unit_requests.h"
#include "tools/unit_server.h"

namespace splitnic::tools {

namespace {

/// A host's two memories, its doorbell's socket, eventfd and epoll, and one while it is set up.
constexpr std::size_t kDescriptorsOfAHost = 6;
/// The LAN, control sockets, and connections without a bridge.
constexpr std::size_t kOtherDescriptors = 256;

/// find: os::find_user or os::find_group.
template <class Find>
auto parse_ids(const std::vector<std::string>& texts, const char* option, Find find) {
  std::vector<typename std::invoke_result_t<Find, const std::string&>::value_type> ids;
  for (const auto& text : texts) {
    const auto id = find(text);
    if (!id) throw UsageError{fmt::format("{}: {}", option, id.error().message)};
    ids.push_back(*id);
  }
  return ids;
}

iounit::LanSpec parse_lan(const UnitCommand& command) {
  auto spec = iounit::parse_lan_spec(command.lan);
  if (!spec) throw UsageError{fmt::format("--lan: {}", spec.error().message)};
  if (command.wait_hosts) {
    auto* file = std::get_if<iounit::SavefileSpec>(&*spec);
    if (file == nullptr) throw UsageError{"--wait-hosts goes with --lan file:..."};
    file->wait_hosts = *command.wait_hosts;
  }
  if (command.lan_engine != "auto") {
    auto* interface = std::get_if<iounit::InterfaceSpec>(&*spec);
    if (interface == nullptr) throw UsageError{"--lan-engine goes with --lan INTERFACE"};
    interface->engine =
        command.lan_engine == "packet" ? iounit::InterfaceEngine::packet : iounit::InterfaceEngine::pcap;
  }
  if (command.threads > 1) {
    const auto* interface = std::get_if<iounit::InterfaceSpec>(&*spec);
    if (interface == nullptr || interface->engine == iounit::InterfaceEngine::pcap) {
      throw UsageError{"--threads goes with --lan INTERFACE and --lan-engine packet"};
    }
  }
  return *spec;
}

/// An interface may have further names (ip link property). From now on it has the kernel's, which packet sockets and
/// link events report. An interface that is not found keeps the name for the error. The thread is in its namespace.
void use_kernel_name(iounit::LanSpec& spec) {
  auto* interface = std::get_if<iounit::InterfaceSpec>(&spec);
  if (interface == nullptr) return;
  auto links = os::LinkSocket::open();
  if (!links) return;
  if (const auto link = links->query(interface->name)) interface->name = link->name;
}

/// The LAN's part of the unit's default name: the interface, or the capture file that the unit plays.
std::string interface_of(const iounit::LanSpec& spec) {
  if (const auto* file = std::get_if<iounit::SavefileSpec>(&spec)) {
    return os::name_of(file->input.empty() ? file->output : file->input);
  }
  return std::get<iounit::InterfaceSpec>(spec).name;
}

/// The place of each host, and what one user gets of them unless the options say otherwise: a quarter.
fabric::UserLimitOptions user_limits(const UnitCommand& command) {
  fabric::UserLimitOptions limits;
  limits.places = command.max_hosts;
  limits.places_per_user =
      command.hosts_per_user != 0 ? command.hosts_per_user : std::max<std::size_t>(1, command.max_hosts / 4);
  limits.bytes_per_user =
      command.memory_per_user != 0 ? command.memory_per_user : limits.places_per_user * 2 * command.window_bytes;
  limits.free_ends = command.setups_per_minute;
  return limits;
}

/// One engine, or one for each thread. fanout: what the sockets of several share.
std::vector<std::unique_ptr<iounit::LanEngine>> open_lans(const iounit::LanSpec& spec, std::size_t threads,
                                                          const std::shared_ptr<iounit::PacketFanout>& fanout,
                                                          os::Log& log) {
  const Time now = monotonic_now();
  if (threads > 1) {
    auto lans = iounit::open_shared_lan(std::get<iounit::InterfaceSpec>(spec), threads, fanout, now, log);
    if (!lans) throw StartupError{lans.error().message};
    return std::move(*lans);
  }
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  auto lan = iounit::open_lan(spec, now, std::chrono::duration_cast<Duration>(wall) - now.time_since_epoch(), log);
  if (!lan) throw StartupError{lan.error().message};
  std::vector<std::unique_ptr<iounit::LanEngine>> lans;
  lans.push_back(std::move(*lan));
  return lans;
}

/// Says if another unit serves this interface. Other users' units count as well, and interfaces of other namespaces do
/// not. The unit keeps what it gets.
os::HeldName claim_interface(const iounit::LanSpec& spec, os::Log& log) {
  const auto* interface = std::get_if<iounit::InterfaceSpec>(&spec);
  const unsigned index = interface == nullptr ? 0 : ::if_nametoindex(interface->name.c_str());
  if (index == 0) return {};
  os::HeldName held = os::hold_name(fmt::format("splitnic/lan/{}", index));
  if (held.is_anothers) {
    log.warning(
        "another I/O unit serves the LAN interface {}, too: hosts of the two units can't reach each other, and may get "
        "one address; give each interface one unit",
        interface->name);
  }
  return held;
}

/// Each further queue of a host takes a place, too.
void permit_hosts(std::size_t max_hosts, os::Log& log) {
  const std::size_t needed = max_hosts * kDescriptorsOfAHost + kOtherDescriptors;
  const std::size_t limit = permit_descriptors(needed);
  if (limit >= needed) return;
  log.warning(
      "this process may have {} descriptors, too few for {} hosts (--max-hosts), which need {}: raise the limit "
      "(ulimit -n, LimitNOFILE)",
      limit, max_hosts, needed);
}

/// The unit gives up its rights. From now on a process of its own opens packet sockets or moves libpcap's, reads the
/// policy file, writes the file of names, and removes the unit's sockets. Returns the filter that fits.
FilteredPart give_up_rights(Sandbox& sandbox, const UnitCommand& command, const iounit::LanSpec& spec,
                            const std::vector<std::unique_ptr<iounit::LanEngine>>& lans,
                            std::shared_ptr<iounit::PacketFanout> fanout, UnitPolicy& policy,
                            fabric::ShmListener& listener, os::UnixListener& control) {
  const auto* interface = std::get_if<iounit::InterfaceSpec>(&spec);
  for (const auto& socket : {control.path(), command.listen}) sandbox.give_away(socket);
  UnitService service;
  if (interface != nullptr) service.interface = interface->name;
  service.fanout = std::move(fanout);
  policy.describe(service);
  auto process = sandbox.start_privileged(
      [service = std::move(service)](const os::PrivilegedMessage& request) { return service.serve(request); },
      {CAP_NET_RAW, CAP_NET_ADMIN}, FilteredPart::unit_rights, {control.path(), command.listen});
  if (process) {
    control.leave_path();
    listener.leave_path();
    for (const auto& lan : lans) {
      const auto can = lan->reopen_with(iounit::packet_sockets_of(process));
      if (!can) throw StartupError{can.error().message};
    }
    policy.leave_files_to(process);
  }
  sandbox.drop({});
  return lans.front()->engine() == "pcap" ? FilteredPart::unit_with_libpcap : FilteredPart::unit;
}

}  // namespace

int run_io_unit(const UnitCommand& command) {
  auto spec = parse_lan(command);
  const std::string name = daemon_name(command.daemon, interface_of(spec));
  iounit::IoUnitOptions options;
  options.session = session_options(command.daemon, name);
  options.max_mtu = command.daemon.mtu;
  options.max_hosts = command.max_hosts;
  auto allow_uids = parse_ids(command.allow_uids, "--allow-uid", os::find_user);
  auto allow_gids = parse_ids(command.allow_gids, "--allow-gid", os::find_group);
  const auto log = make_log(command.daemon, fmt::format("iounit {}", name));
  if (const auto fits = os::check_socket_path(command.listen); !fits) {
    throw UsageError{fmt::format("--listen: {}", fits.error().message)};
  }
  Sandbox sandbox(command.daemon, fmt::format("iounit {}", name), *log);
  permit_hosts(command.max_hosts, *log);
  UnitPolicy policy(command, name, sandbox.account(), *log);
  options.policy = policy.rules();

  hold_signals();
  auto service = connect_service_manager(*log);
  enter_netns(command.daemon);
  use_kernel_name(spec);
  const auto fanout = command.threads > 1 ? std::make_shared<iounit::PacketFanout>() : nullptr;
  auto lans = open_lans(spec, command.threads, fanout, *log);
  const std::string lan_name = lans.front()->name();
  fabric::ShmListenOptions listen;
  listen.path = command.listen;
  listen.allow_uids = std::move(allow_uids);
  listen.allow_gids = std::move(allow_gids);
  listen.window_bytes = command.window_bytes;
  listen.limits = user_limits(command);
  listen.purposes.push_back(fabric::ShmPurpose::further_queue);
  listen.further_queues = iounit::kMaxQueues - 1;
  if (const auto made = os::make_socket_directory(command.listen); !made) {
    throw StartupError{fmt::format("--listen: {}", made.error().message)};
  }
  auto listener = fabric::ShmListener::listen(listen);
  if (!listener) throw StartupError{listener.error().message};
  auto control_socket = listen_for_control(command.daemon, "iounit");
  const FilteredPart part = give_up_rights(sandbox, command, spec, lans, fanout, policy, **listener, control_socket);
  // Not before: the privileged process would hold it as well, and for a moment after a kill.
  const os::HeldName claim = claim_interface(spec, *log);
  os::LogNotices refusals(*log, os::LogLevel::kWarning);
  fabric::ShmListenSource bridges(std::move(*listener), refusals);
  os::LogNotices lines(*log);
  ServiceNotices notices(lines, service);
  const auto units = make_unit_server(command.daemon, options, std::move(lans), bridges, notices, *log);
  policy.serve(units->policy(), monotonic_now());

  os::EventLoop loop(loop_options(command.daemon, *log, [&] {
    policy.reload(monotonic_now(), [&](const Result<std::string>& done) {
      if (!done) log->warning("SIGHUP: {}", done.error().message);
    });
  }));
  os::ClearedCounts cleared;
  const auto answer = [&](os::ControlRequest request) -> Result<os::ControlAnswer> {
    if (request == os::ControlRequest::show_policy) return policy.show(monotonic_now());
    auto reports = units->reports(request == os::ControlRequest::clear);
    if (!reports) return tl::unexpected(reports.error());
    os::SpinCounters spins = loop.spins();
    spins += units->spins();
    return answer_of(request, *std::move(reports), bridges.counters(), spins, *log, name, cleared);
  };
  const auto handle = [&](os::ControlRequest request, os::ControlReply reply) {
    if (request == os::ControlRequest::reload_policy) return policy.reload(monotonic_now(), std::move(reply));
    reply(answer(request));
  };
  const auto control = serve_control(loop, std::move(control_socket), handle, *log);
  units->add_to(loop);
  LogTask log_task(*log);
  loop.add(log_task);
  loop.add(policy);
  if (!(listen.allow_uids.empty() && listen.allow_gids.empty()) && !os::others_can_reach(command.listen)) {
    log->warning("the folder of {} is closed to other users: the hosts of --allow-uid and --allow-gid can't connect",
                 command.listen);
  }
  log->info("serving {} to hosts at {}", lan_name, command.listen);
  sandbox.close(loop, part);
  service.ready("serving " + lan_name);
  loop.run();
  log->info("ending");
  service.stopping();
  units->shut_down();
  policy.finish();
  return sandbox.finish();
}

}  // namespace splitnic::tools
