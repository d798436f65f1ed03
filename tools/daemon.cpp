#include "tools/daemon.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <system_error>
#include <utility>
#include <vector>

#include "common/os/netns.h"
#include "common/os/runtime_directory.h"
#include "common/os/unix_listener.h"
#include "common/result.h"
#include "messaging/statistics.h"

namespace splitnic::tools {

namespace {

messaging::wire::Moderation parse_moderation(const std::string& text) {
  messaging::wire::Moderation moderation;
  if (text.empty()) return moderation;
  std::array<std::uint32_t, 3> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t index = 0; index < numbers.size(); ++index) {
    const auto [next, error] = std::from_chars(at, end, numbers[index]);
    const bool last = index + 1 == numbers.size();
    if (error != std::errc{} || (last ? next != end : next == end || *next != ',')) {
      throw UsageError{fmt::format("--moderation {}: expected ENTRIES,BYTES,MICROSECONDS", text)};
    }
    at = next + 1;
  }
  moderation.entries = numbers[0];
  moderation.bytes = numbers[1];
  moderation.time = std::chrono::microseconds(numbers[2]);
  if (moderation.time > messaging::wire::kMaxModerationTime) {
    throw UsageError{fmt::format("--moderation {}: at most 100000 microseconds", text)};
  }
  return moderation;
}

}  // namespace

messaging::SessionOptions session_options(const DaemonOptions& options, const std::string& name) {
  if (!options.control.empty()) {
    if (const auto fits = os::check_socket_path(options.control); !fits) {
      throw UsageError{fmt::format("--control: {}", fits.error().message)};
    }
  }
  messaging::SessionOptions session;
  session.name = name;
  session.mode = options.mode == "s" ? messaging::wire::Mode::send : messaging::wire::Mode::rdma;
  session.insist_on_mode = !options.mode.empty();
  session.data_channel = !options.no_data_channel;
  session.offloads = session.udp_segments = options.offloads == "on";
  session.pool_elements = options.pool_elements;
  session.cell_bytes = options.cell_bytes;
  session.moderation = parse_moderation(options.moderation);
  return session;
}

std::string daemon_name(const DaemonOptions& options, const std::string& interface) {
  std::string name = options.name;
  if (name.empty()) {
    std::array<char, 65> machine{};
    if (gethostname(machine.data(), machine.size() - 1) != 0 || machine[0] == '\0') machine = {"localhost"};
    // A long name loses its beginning, which several daemons of a machine share, in whole characters.
    name = fmt::format("{}-{}", machine.data(), interface);
    if (name.size() > messaging::wire::kMaxNameBytes) {
      std::size_t cut = name.size() - messaging::wire::kMaxNameBytes;
      while (cut < name.size() && (static_cast<unsigned char>(name[cut]) & 0xC0U) == 0x80U) ++cut;
      name.erase(0, cut);
    }
  }
  if (!messaging::wire::is_valid_name(name)) {
    throw UsageError{fmt::format("--name {}: 1 to {} bytes of UTF-8 without control characters and '/'", name,
                                 messaging::wire::kMaxNameBytes)};
  }
  return name;
}

std::unique_ptr<os::Log> make_log(const DaemonOptions& options, const std::string& subject) {
  const auto level = os::parse_log_level(options.log_level);
  if (!level) throw UsageError{fmt::format("--log-level {}: debug, info, warning, error or off", options.log_level)};
  os::LogOptions log;
  log.level = *level;
  return std::make_unique<os::Log>(subject, log);
}

os::EventLoopOptions loop_options(const DaemonOptions& options, os::Log& log, std::function<void()> reload) {
  os::EventLoopOptions loop{.spin_max = std::chrono::microseconds(options.spin_us), .spin_budget = options.spin_budget};
  loop.on_trouble = [&log](const std::string& line) { log.recurring(os::LogLevel::kWarning, line); };
  if (::isatty(STDIN_FILENO) == 0) {
    loop.on_hangup = std::move(reload);
    if (!loop.on_hangup) {
      loop.on_hangup = [&log] {
        log.info("SIGHUP: options are read at the start only; restart the daemon to change them");
      };
    }
  }
  return loop;
}

os::EventLoopOptions loop_options_of_thread(const DaemonOptions& options, os::Log& log) {
  auto loop = loop_options(options, log);
  loop.handle_signals = false;
  return loop;
}

std::thread start_thread(std::function<void()> run) {
  try {
    return std::thread([run = std::move(run)] {
      os::Log::prepare_thread();
      run();
    });
  } catch (const std::system_error& error) {
    throw StartupError{fmt::format("starting a thread: {}", error.what())};
  }
}

MacAddress parse_mac_option(const std::string& text, const std::string& words) {
  const auto mac = parse_mac(text);
  if (!mac) throw UsageError{fmt::format("{}: not an address like 02:00:5e:10:00:01", words)};
  if (mac->is_multicast() || mac->is_zero()) {
    throw UsageError{fmt::format("{}: an interface can't have this address", words)};
  }
  return *mac;
}

void enter_netns(const DaemonOptions& options) {
  if (options.netns.empty()) return;
  const auto entered = os::enter_netns(options.netns);
  if (!entered) throw StartupError{entered.error().message};
}

void hold_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, number);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
}

std::size_t permit_descriptors(std::size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return limit.rlim_cur;
  const rlim_t before = std::exchange(limit.rlim_cur, std::min<rlim_t>(wanted, limit.rlim_max));
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

os::ServiceManager connect_service_manager(os::Log& log) {
  auto service = os::ServiceManager::from_environment();
  if (service) return std::move(*service);
  log.warning("the service manager gets no reports: {}", service.error().message);
  return {};
}

void add_count(std::vector<os::NamedCount>& counts, const std::string& name, std::uint64_t value) {
  counts.push_back({name, value});
}

void add_spins(std::vector<os::NamedCount>& counts, const os::SpinCounters& spins) {
  using Members = boost::describe::describe_members<os::SpinCounters, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Members>([&](auto member) { add_count(counts, member.name, spins.*member.pointer); });
}

os::UnixListener listen_for_control(const DaemonOptions& options, const std::string& role) {
  const auto listen = [&] {
    if (!options.control.empty()) return os::UnixListener::listen(options.control);
    const auto directory = os::make_control_directory();
    if (!directory) throw StartupError{directory.error().message};
    return os::listen_at_default_path(*directory, role);
  };
  auto listener = listen();
  if (!listener) throw StartupError{fmt::format("control socket: {}", listener.error().message)};
  return std::move(*listener);
}

std::unique_ptr<os::ControlServer> serve_control(os::EventLoop& loop, os::UnixListener listener,
                                                 os::ControlHandler handle, os::Log& log) {
  const Time started = monotonic_now();
  const auto process = static_cast<std::uint32_t>(getpid());
  const auto complete = [handle = std::move(handle), started, process](os::ControlRequest request,
                                                                       os::ControlReply reply) {
    handle(request, [reply = std::move(reply), started, process](Result<os::ControlAnswer> told) {
      if (auto* status = told ? std::get_if<os::DaemonStatus>(&*told) : nullptr) {
        status->pid = process;
        status->version = SPLITNIC_VERSION;
        status->uptime_ms = static_cast<std::uint64_t>((monotonic_now() - started) / std::chrono::milliseconds(1));
      }
      reply(std::move(told));
    });
  };
  return os::ControlServer::serve(loop.context(), std::move(listener), complete, log);
}

void add_statistics(os::PeerStatus& peer, const messaging::wire::Statistics& statistics, const std::string& prefix) {
  const auto names = messaging::named(statistics, prefix);
  for (const auto& [name, value] : names.counts) add_count(peer.messages, name, value);
  for (const auto& [name, value] : names.losses) add_count(peer.drops, name, value);
}

os::PeerStatus peer_status(const messaging::SessionTotals& totals, const std::string& name, const std::string& state) {
  os::PeerStatus peer;
  peer.name = name;
  peer.state = state;
  peer.tx_frames = totals.session.tx_frames;
  peer.rx_frames = totals.session.rx_frames;
  peer.tx_bytes = totals.session.tx_bytes;
  peer.rx_bytes = totals.session.rx_bytes;
  for (const auto& [cause, count] : messaging::drop_counts(totals)) add_count(peer.drops, cause, count);
  for (const auto& [message, count] : messaging::message_counts(totals)) add_count(peer.messages, message, count);
  return peer;
}

}  // namespace splitnic::tools
