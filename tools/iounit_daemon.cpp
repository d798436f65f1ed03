// `splitnic iounit`: a LAN, a socket where hosts connect, and the I/O-unit module driver between them.
#include <fmt/format.h>
#include <linux/capability.h>

#include <algorithm>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <chrono>
#include <type_traits>

#include "common/os/account.h"
#include "common/os/runtime_directory.h"
#include "common/os/thread_meter.h"
#include "fabric/bridge/shm_source.h"
#include "iounit/io_unit.h"
#include "iounit/lan_spec.h"
#include "tools/daemon.h"
#include "tools/sandbox.h"
#include "tools/unit_policy.h"
#include "tools/unit_requests.h"

namespace splitnic::tools {

namespace {

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
  if (command.wait_hosts != 0) {
    auto* file = std::get_if<iounit::SavefileSpec>(&*spec);
    if (file == nullptr) throw UsageError{"--wait-hosts goes with --lan file:..."};
    file->wait_hosts = command.wait_hosts;
  }
  if (command.lan_engine != "auto") {
    auto* interface = std::get_if<iounit::InterfaceSpec>(&*spec);
    if (interface == nullptr) throw UsageError{"--lan-engine goes with --lan INTERFACE"};
    interface->engine =
        command.lan_engine == "packet" ? iounit::InterfaceEngine::packet : iounit::InterfaceEngine::pcap;
  }
  return *spec;
}

/// The LAN's part of the unit's default name: the interface, or the capture file that the unit plays.
std::string interface_of(const iounit::LanSpec& spec) {
  if (const auto* file = std::get_if<iounit::SavefileSpec>(&spec)) {
    const std::string& path = file->input.empty() ? file->output : file->input;
    return path.substr(path.rfind('/') + 1);
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

std::unique_ptr<iounit::LanEngine> open_lan(const iounit::LanSpec& spec, os::Log& log) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const Time now = monotonic_now();
  auto lan = iounit::open_lan(spec, now, std::chrono::duration_cast<Duration>(wall) - now.time_since_epoch(), log);
  if (!lan) throw StartupError{lan.error().message};
  return std::move(*lan);
}

void add_connections(os::DaemonStatus& status, const fabric::ShmListenerCounters& connections) {
  using Counters = fabric::ShmListenerCounters;
  using Members = boost::describe::describe_members<Counters, boost::describe::mod_public>;
  static_assert(sizeof(Counters) == boost::mp11::mp_size<Members>::value * sizeof(std::uint64_t));
  boost::mp11::mp_for_each<Members>([&](auto member) {
    const bool lost = member.pointer != &Counters::connected && member.pointer != &Counters::accept_paused &&
                      member.pointer != &Counters::setup_delayed;
    add_count(lost ? status.drops : status.counts, fmt::format("connections_{}", member.name),
              connections.*member.pointer);
  });
}

os::DaemonStatus status_of(const iounit::IoUnit& unit, const iounit::LanEngine& lan,
                           const fabric::ShmListenerCounters& connections, const os::Log& log,
                           const std::string& name) {
  os::DaemonStatus status;
  status.role = "iounit";
  status.name = name;
  status.state = "serving";
  status.mtu = unit.mtu();
  status.carrier = unit.carrier();
  status.lan = lan.name();
  status.lan_engine = lan.engine();
  for (const auto& host : unit.hosts()) {
    if (!host) continue;
    const auto& session = host->session();
    if (status.epoch == 0) status.epoch = session.epoch();
    auto peer = peer_status(host->totals(), host->name(), std::string(messaging::to_string(session.state())));
    if (!host->mac().is_zero()) peer.mac = to_string(host->mac());
    for (std::size_t index = 0; index < iounit::kHostDrops; ++index) {
      const auto cause = static_cast<iounit::HostDrop>(index);
      add_count(peer.drops, std::string(iounit::to_string(cause)), host->drops(cause));
    }
    const auto milliseconds = [](Duration time) {
      return static_cast<std::uint64_t>(time / std::chrono::milliseconds(1));
    };
    const std::size_t place = host->number().value;
    add_count(peer.messages, "processor_ms", milliseconds(unit.share().spent(place)));
    add_count(peer.messages, "wasted_ms", milliseconds(unit.share().wasted(place)));
    add_count(peer.messages, "queues", host->queues_up());
    add_count(peer.messages, "rests", unit.share().rests_taken(place));
    status.peers.push_back(std::move(peer));
  }
  const auto& counters = unit.counters();
  for (std::size_t index = 0; index < iounit::kLanDrops; ++index) {
    const auto cause = static_cast<iounit::LanDrop>(index);
    add_count(status.drops, std::string(iounit::to_string(cause)), unit.drops(cause));
  }
  const auto& lan_counters = lan.counters();
  for (const auto& [cause, count] :
       std::initializer_list<std::pair<const char*, std::uint64_t>>{{"lan_truncated", lan_counters.rx_truncated},
                                                                    {"lan_kernel_drops", lan_counters.rx_kernel_drops},
                                                                    {"lan_tx_errors", lan_counters.tx_errors},
                                                                    {"hosts_refused", counters.hosts_refused},
                                                                    {"queues_refused", counters.queues_refused},
                                                                    {"hosts_evicted", counters.hosts_evicted},
                                                                    {"hosts_ejected", counters.hosts_ejected}}) {
    add_count(status.drops, cause, count);
  }
  add_connections(status, connections);
  add_count(status.counts, "setups_paused", counters.setups_paused);
  add_count(status.counts, "names_refused", counters.names_refused);
  add_count(status.counts, "addresses_refused", counters.addresses_refused);
  add_count(status.counts, "filters_limited", counters.filters_limited);
  add_count(status.counts, "copies", counters.copies);
  add_count(status.counts, "departed_rx_frames", counters.departed_rx_frames);
  add_count(status.counts, "departed_tx_frames", counters.departed_tx_frames);
  add_count(status.drops, "departed_drops", counters.departed_drops);
  for (const auto& [message, count] : messaging::message_counts(unit.departed())) {
    add_count(status.counts, "departed_" + message, count);
  }
  for (const auto& [cause, count] : messaging::drop_counts(unit.departed())) {
    add_count(status.drops, "departed_" + cause, count);
  }
  add_count(status.counts, "lan_rx_frames", lan_counters.rx_frames);
  add_count(status.counts, "lan_tx_frames", lan_counters.tx_frames);
  add_count(status.counts, "lan_checksums_completed", counters.lan_checksums_completed);
  add_count(status.counts, "lan_segmented", counters.lan_segmented);
  add_count(status.counts, "host_checksums_completed", counters.host_checksums_completed);
  add_count(status.counts, "host_segmented", counters.host_segmented);
  add_count(status.counts, "passed_unfinished", counters.passed_unfinished);
  add_count(status.counts, "log_lines_lost", log.lost());
  return status;
}

/// The hosts have their own counters and clear them themselves. status: the hosts' status, in the unit's order.
os::DaemonStatus answer(os::ControlRequest request, os::DaemonStatus status, os::ClearedCounts& cleared,
                        const iounit::IoUnit& unit) {
  status = cleared.answer(std::move(status), request);
  auto peer = status.peers.begin();
  for (const auto& host : unit.hosts()) {
    if (!host) continue;
    add_statistics(*peer++, host->host_statistics(), "host_");
    if (request == os::ControlRequest::clear) host->clear_host_statistics();
  }
  return status;
}

/// The unit gives up its rights. From now on a process of its own opens packet sockets or moves libpcap's, reads the
/// policy file, writes the file of names, and removes the unit's sockets. Returns the filter that fits.
FilteredPart give_up_rights(Sandbox& sandbox, const UnitCommand& command, const iounit::LanSpec& spec,
                            iounit::LanEngine& lan, UnitPolicy& policy, fabric::ShmListener& listener,
                            os::UnixListener& control) {
  const auto* interface = std::get_if<iounit::InterfaceSpec>(&spec);
  for (const auto& socket : {control.path(), command.listen}) sandbox.give_away(socket);
  UnitService service;
  if (interface != nullptr) service.interface = interface->name;
  policy.describe(service);
  auto process = sandbox.start_privileged(
      [service = std::move(service)](const os::PrivilegedMessage& request) { return service.serve(request); },
      {CAP_NET_RAW, CAP_NET_ADMIN}, FilteredPart::unit_rights, {control.path(), command.listen});
  if (process) {
    control.leave_path();
    listener.leave_path();
    if (const auto can = lan.reopen_with(iounit::packet_sockets_of(process)); !can) {
      throw StartupError{can.error().message};
    }
    policy.leave_files_to(process);
  }
  sandbox.drop({});
  return lan.engine() == "pcap" ? FilteredPart::unit_with_libpcap : FilteredPart::unit;
}

}  // namespace

int run_io_unit(const UnitCommand& command) {
  const auto spec = parse_lan(command);
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
  UnitPolicy policy(command, name, sandbox.account(), *log);
  options.policy = policy.rules();

  auto service = connect_service_manager(*log);
  enter_netns(command.daemon);
  const auto lan = open_lan(spec, *log);
  fabric::ShmListenOptions listen;
  listen.path = command.listen;
  listen.allow_uids = std::move(allow_uids);
  listen.allow_gids = std::move(allow_gids);
  listen.window_bytes = command.window_bytes;
  listen.limits = user_limits(command);
  listen.purposes.push_back(fabric::ShmPurpose::further_queue);
  if (const auto made = os::make_socket_directory(command.listen); !made) {
    throw StartupError{fmt::format("--listen: {}", made.error().message)};
  }
  auto listener = fabric::ShmListener::listen(listen);
  if (!listener) throw StartupError{listener.error().message};
  auto control_socket = listen_for_control(command.daemon, "iounit");
  const FilteredPart part = give_up_rights(sandbox, command, spec, *lan, policy, **listener, control_socket);
  os::LogNotices refusals(*log, os::LogLevel::kWarning);
  fabric::ShmListenSource bridges(std::move(*listener), refusals);
  SystemRandom random;
  options.session.link.port_address = fabric::PortAddress{random.next() >> 16U};
  os::LogNotices lines(*log);
  ServiceNotices notices(lines, service);
  os::ThreadMeter meter;
  options.meter = &meter;
  iounit::EpollWatch doorbells;
  options.doorbells = &doorbells;
  iounit::IoUnit unit(options, *lan, bridges, random, notices);
  policy.serve(unit, monotonic_now());

  os::EventLoop loop(loop_options(command.daemon, *log, [&] {
    if (const auto done = policy.reload(); !done) log->warning("SIGHUP: {}", done.error().message);
  }));
  os::ClearedCounts cleared;
  const auto reply = [&](os::ControlRequest request) -> Result<os::ControlAnswer> {
    if (request == os::ControlRequest::show_policy) return policy.show(monotonic_now());
    if (request == os::ControlRequest::reload_policy) return policy.reload();
    return answer(request, status_of(unit, *lan, bridges.counters(), *log, name), cleared, unit);
  };
  const auto control = serve_control(loop, std::move(control_socket), reply, *log);
  os::CoreTask task(unit);
  loop.add(task);
  LogTask log_task(*log);
  loop.add(log_task);
  loop.add(policy);
  if (!(listen.allow_uids.empty() && listen.allow_gids.empty()) && !os::others_can_reach(command.listen)) {
    log->warning("the folder of {} is closed to other users: the hosts of --allow-uid and --allow-gid can't connect",
                 command.listen);
  }
  log->info("serving {} to hosts at {}", lan->name(), command.listen);
  sandbox.close(loop, part);
  service.ready("serving " + lan->name());
  loop.run();
  log->info("ending");
  service.stopping();
  os::shut_down(unit);
  policy.finish();
  return sandbox.finish();
}

}  // namespace splitnic::tools
