// `splitnic host`: a TAP interface, a connection to an I/O unit, and the host module driver between them.
#include <fmt/format.h>
#include <linux/capability.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <thread>

#include "fabric/bridge/shm_source.h"
#include "host/host_driver.h"
#include "host/tap_device.h"
#include "host/tap_nic.h"
#include "host/tap_requests.h"
#include "tools/daemon.h"
#include "tools/host_queues.h"
#include "tools/sandbox.h"

namespace splitnic::tools {

namespace {

constexpr Duration kPatienceWithTap = std::chrono::milliseconds(500);
constexpr Duration kLookAtTapEvery = std::chrono::milliseconds(5);

std::string socket_path(const std::string& connect) {
  constexpr std::string_view kScheme = "shm:";
  if (connect.compare(0, kScheme.size(), kScheme) != 0) {
    throw UsageError{fmt::format("--connect {}: expected shm:PATH", connect)};
  }
  std::string path = connect.substr(kScheme.size());
  const auto fits = os::check_socket_path(path);
  if (!fits) throw UsageError{fmt::format("--connect: {}", fits.error().message)};
  return path;
}

/// Of an interface that the driver may have to make.
void check_tap_name(const std::string& name) {
  if (const auto usable = os::check_interface_name(name); !usable) {
    throw UsageError{fmt::format("--tap: {}", usable.error().message)};
  }
  if (name == "all" || name == "default") {
    throw UsageError{fmt::format("--tap: '{}' can't be an interface name: the kernel has settings of this name", name)};
  }
}

/// The driver looks at the interface's settings only while it has a session; this asks for those of now.
os::DaemonStatus status_of(const host::HostDriver& driver, host::TapNic& tap, const HostQueues* queues,
                           const os::EventLoop& loop, const os::Log& log, const std::string& name) {
  os::DaemonStatus status;
  status.role = "host";
  status.name = name;
  status.state = driver.state();
  const auto* session = driver.session();
  status.epoch = session != nullptr ? session->epoch() : 0;
  const host::NicSettings& settings = tap.settings(monotonic_now());
  status.mac = to_string(settings.mac);
  status.tap = tap.name();
  status.mtu = settings.mtu;
  status.carrier = driver.carrier();
  status.mode = session == nullptr || session->mode() == messaging::wire::Mode::rdma ? "r" : "s";
  auto peer = peer_status(driver.totals(), driver.unit_name(), driver.state());
  const auto further = queues != nullptr ? queues->sum() : host::QueueGroup::Sum{};
  add_count(peer.drops, "to_unit_too_long", tap.oversized() + further.oversized);
  add_count(peer.drops, "to_unit_unfinished", tap.unfinished() + further.unfinished);
  add_count(peer.drops, "from_unit_refused_by_nic", driver.counters().rx_refused_by_nic);
  add_count(peer.messages, "WaitForElement", driver.counters().tx_waits);
  status.peers.push_back(std::move(peer));
  os::SpinCounters spins = loop.spins();
  if (queues != nullptr) spins += queues->spins();
  add_spins(status.counts, spins);
  add_count(status.counts, "log_lines_lost", log.lost());
  return status;
}

/// The unit has its own counters for this host and clears them itself. The number of queues is no counter: it may fall.
os::DaemonStatus answer(os::ControlRequest request, os::DaemonStatus status, os::ClearedCounts& cleared,
                        host::HostDriver& driver) {
  status = cleared.answer(std::move(status), request);
  add_count(status.peers.front().messages, "queues", driver.queues_up());
  add_statistics(status.peers.front(), driver.unit_statistics(), "unit_");
  if (request == os::ControlRequest::clear) driver.clear_unit_statistics();
  return status;
}

/// The driver gives up its rights. From now on a process of its own makes a deleted TAP again and follows a TAP that
/// was moved, and removes the control socket.
void give_up_rights(Sandbox& sandbox, host::TapNic& tap, const host::TapOptions& options, os::UnixListener& control) {
  sandbox.give_away(control.path());
  auto process = sandbox.start_privileged(host::tap_service(options.name, options.offloads, options.queues),
                                          {CAP_NET_ADMIN, CAP_SYS_ADMIN}, FilteredPart::host_rights, {control.path()});
  if (process) {
    control.leave_path();
    tap.use(std::make_unique<host::TapRequests>(std::move(process)));
  }
  sandbox.drop({});
}

/// A driver that was killed a moment ago is attached until all its processes have ended.
Result<std::unique_ptr<host::TapNic>> open_tap(const host::TapOptions& options, os::Log& log) {
  const Time patience_ends = monotonic_now() + kPatienceWithTap;
  while (true) {
    auto tap = host::TapNic::open(options, monotonic_now(), log);
    const bool busy = !tap && tap.error().message == host::busy_tap(options.name).message;
    if (!busy || monotonic_now() >= patience_ends) return tap;
    std::this_thread::sleep_for(kLookAtTapEvery);
  }
}

}  // namespace

int run_host(const HostCommand& command) {
  check_tap_name(command.tap);
  const std::string name = daemon_name(command.daemon, command.tap);
  auto session = session_options(command.daemon, name);
  host::TapOptions tap_options{.name = command.tap, .offloads = session.offloads, .queues = command.queues};
  if (!command.mac.empty()) session.mac = *(tap_options.mac = parse_mac_option(command.mac, "--mac " + command.mac));
  if (command.daemon.mtu != 0) tap_options.mtu = command.daemon.mtu;
  // The hello cuts larger offers of the unit to this; element memory follows the smaller of both.
  session.max_mtu = std::max<std::uint32_t>(9216, command.daemon.mtu);
  const fabric::ShmConnectOptions connect{.path = socket_path(command.connect),
                                          .features = command.queues > 1 ? fabric::kShmFeatureFurtherQueues : 0,
                                          .name = name,
                                          .shuts_down = false};  // the sandbox forbids it
  const auto log = make_log(command.daemon, fmt::format("host {}", name));
  const os::NearCores cores;
  const os::CoreLeaver leaver(cores);
  Sandbox sandbox(command.daemon, fmt::format("host {}", name), *log);

  hold_signals();
  auto service = connect_service_manager(*log);
  enter_netns(command.daemon);
  auto tap = open_tap(tap_options, *log);
  if (!tap) throw StartupError{tap.error().message};
  auto control_socket = listen_for_control(command.daemon, "host");
  give_up_rights(sandbox, **tap, tap_options, control_socket);
  SystemRandom random;
  session.link.port_address = fabric::PortAddress{random.next() >> 16U};
  os::LogNotices lines(*log);
  ServiceNotices notices(lines, service);
  fabric::ShmConnectSource bridges(connect, notices);
  host::HostDriver driver(session, **tap, bridges, random, notices);

  if (!command.vlans.empty()) {
    const std::set<std::uint16_t> vlans(command.vlans.begin(), command.vlans.end());
    driver.limit_vlans({vlans.begin(), vlans.end()});
  }

  const auto queues = HostQueues::start(command.daemon, connect, session, **tap, driver, cores, *log);
  auto looping = loop_options(command.daemon, *log);
  looping.leave_core = [&leaver] { return leaver.leave(); };
  os::EventLoop loop(std::move(looping));
  os::ClearedCounts cleared;
  const auto reply = [&](os::ControlRequest request) -> Result<os::ControlAnswer> {
    if (request == os::ControlRequest::show_policy || request == os::ControlRequest::reload_policy) {
      return fail("a host has no policy; ask its I/O unit");
    }
    return answer(request, status_of(driver, **tap, queues.get(), loop, *log, name), cleared, driver);
  };
  const auto control = serve_control(loop, std::move(control_socket), os::answered_at_once(reply), *log);
  os::CoreTask task(driver);
  loop.add(task);
  LogTask log_task(*log);
  loop.add(log_task);
  log->info("serving {}, connecting to {}", command.tap, command.connect);
  sandbox.close(loop, FilteredPart::host);
  service.ready("serving " + command.tap);
  loop.run();
  log->info("ending");
  service.stopping();
  if (queues) queues->stop();
  os::shut_down(driver);
  // Nobody asked for this end: the next driver finds the interface with its addresses, as after a crash.
  const int exit_code = sandbox.finish();
  if (exit_code != 0) (*tap)->keep();
  return exit_code;
}

}  // namespace splitnic::tools
