#include "bench/nic/crowd.h"

#include <fmt/format.h>
#include <time.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "bench/nic/process.h"
#include "bench/nic/traffic.h"
#include "bench/summary.h"

namespace splitnic::bench::nic {

namespace {

constexpr std::size_t kBusyHosts = 4;
constexpr std::size_t kRounds = 3;
constexpr Duration kAttachPatience = std::chrono::seconds(20);
constexpr Duration kIdleFor = std::chrono::seconds(3);

/// The daemons. They end with this object, the hosts before their unit.
class Daemons {
 public:
  Daemons(Laboratory& laboratory, std::string program) : laboratory_(laboratory), program_(std::move(program)) {}
  ~Daemons() {
    if (!processes_.empty()) stop_hosts(0);
    processes_.clear();
    laboratory_.clear_tap();
  }
  Daemons(const Daemons&) = delete;
  Daemons& operator=(const Daemons&) = delete;

  Result<void> start_unit(std::size_t hosts) {
    return start({program_, "iounit", "--listen", socket(), "--lan", Laboratory::kLan, "--netns", Laboratory::kUnit,
                  "--control", laboratory_.scratch("unit.control"), "--max-hosts", fmt::to_string(hosts)});
  }
  Result<void> start_host(const std::string& name, const std::string& netns, const std::string& tap) {
    return start({program_, "host", "--connect", "shm:" + socket(), "--name", name, "--tap", tap, "--netns", netns,
                  "--control", laboratory_.scratch(name + ".control")});
  }
  /// All but the unit and the first `kept` hosts. All are told before the first is waited for.
  void stop_hosts(std::size_t kept) {
    if (processes_.size() <= 1 + kept) return;
    for (std::size_t index = 1 + kept; index < processes_.size(); ++index) processes_[index].ask_to_stop();
    while (processes_.size() > 1 + kept) processes_.pop_back();
  }
  [[nodiscard]] pid_t unit() const { return processes_.front().pid(); }
  /// Errors: one of them has ended.
  Result<void> check() {
    for (Process& process : processes_) {
      if (!process.running()) return fail("{}", process.last_words());
    }
    return {};
  }

 private:
  [[nodiscard]] std::string socket() const { return laboratory_.scratch("unit.socket"); }
  Result<void> start(const std::vector<std::string>& words) {
    auto process = Process::start(words, laboratory_.scratch(fmt::format("crowd{}.log", processes_.size())));
    if (!process) return tl::unexpected(process.error());
    processes_.push_back(*std::move(process));
    return {};
  }

  Laboratory& laboratory_;
  std::string program_;
  std::vector<Process> processes_;
};

/// Seconds of processor time that a process has used; nullopt: it has ended.
std::optional<double> processor_seconds(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return std::nullopt;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

Result<double> idle_share(pid_t unit) {
  std::this_thread::sleep_for(std::chrono::seconds(1));  // what the start has left to do is done
  const auto before = processor_seconds(unit);
  const Time begin = monotonic_now();
  std::this_thread::sleep_for(kIdleFor);
  const auto after = processor_seconds(unit);
  if (!before || !after) return fail("the unit has ended");
  return (*after - *before) / std::chrono::duration<double>(monotonic_now() - begin).count();
}

/// One connection of each host at the same time. Returns bits per second of all.
Result<double> stream_together(const std::vector<Route>& routes, Duration length) {
  std::vector<Result<StreamRate>> rates(routes.size());
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < routes.size(); ++index) {
    threads.emplace_back([&, index] { rates[index] = measure_tcp_stream(routes[index], length, 1); });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const auto& rate : rates) {
    if (!rate) return tl::unexpected(rate.error());
    sum += rate->bits_per_second;
  }
  return sum;
}

/// The measurements of a crowd as it grows and shrinks.
class Measuring {
 public:
  Measuring(LineGauge& gauge, Crowd& crowd, Duration length) : gauge_(gauge), crowd_(crowd), length_(length) {}

  /// One connection of the first route, then one of each, in turn.
  Result<void> streams(const std::vector<Route>& routes) {
    for (std::size_t round = 0; round < kRounds; ++round) {
      auto one = take(CrowdMetric::one_stream, [&] { return stream_together({routes.front()}, length_); });
      if (!one) return one;
      auto all = take(CrowdMetric::four_streams, [&] { return stream_together(routes, length_); });
      if (!all) return all;
    }
    return {};
  }
  Result<void> requests(const Route& route, CrowdMetric metric) {
    for (std::size_t round = 0; round < kRounds; ++round) {
      auto taken = take(metric, [&]() -> Result<double> {
        const auto rate = measure_tcp_request_response(route, length_);
        if (!rate) return tl::unexpected(rate.error());
        return rate->per_second;
      });
      if (!taken) return taken;
    }
    return {};
  }

 private:
  Result<void> take(CrowdMetric metric, const std::function<Result<double>()>& measure) {
    const auto value = measure_placed<double>(gauge_, crowd_.moved, measure);
    if (!value) return tl::unexpected(value.error());
    if (*value) crowd_.taken[static_cast<std::size_t>(metric)].push_back(**value);
    return {};
  }

  LineGauge& gauge_;
  Crowd& crowd_;
  Duration length_;
};

Result<void> start_idle_hosts(Laboratory& laboratory, Daemons& daemons, std::size_t count) {
  for (std::size_t index = 0; index < count; ++index) {
    const auto name = fmt::format("idle{}", index);
    if (auto started = daemons.start_host(name, Laboratory::kUnit, name); !started) return started;
    if (auto up = laboratory.await_idle_tap(name); !up) return up;
  }
  return daemons.check();
}

}  // namespace

std::vector<double> Crowd::values(CrowdMetric metric, Placement placement) const {
  std::vector<double> found;
  for (const auto& sample : taken[static_cast<std::size_t>(metric)]) {
    if (sample.placement == placement) found.push_back(sample.value);
  }
  return found;
}

std::optional<double> Crowd::ratio(CrowdMetric metric, CrowdMetric against, Placement placement) const {
  const auto own = values(metric, placement);
  const auto other = values(against, placement);
  if (own.empty() || other.empty()) return std::nullopt;
  return summary_of(own).median / summary_of(other).median;
}

Result<Crowd> measure_crowd(Laboratory& laboratory, LineGauge& gauge, const std::string& program,
                            std::size_t idle_hosts, Duration length) {
  Crowd crowd{.idle_hosts = idle_hosts};
  if (auto set = laboratory.set_peer_offloads(true); !set) return tl::unexpected(set.error());
  Daemons daemons(laboratory, program);
  if (auto started = daemons.start_unit(kBusyHosts + idle_hosts); !started) return tl::unexpected(started.error());
  std::vector<Route> routes;
  std::array<std::string, kBusyHosts> addresses;
  for (std::size_t index = 0; index < kBusyHosts; ++index) {
    const auto host = laboratory.further_host(index);
    if (!host) return tl::unexpected(host.error());
    addresses[index] = host->address;  // a Route lends its addresses
    if (auto started = daemons.start_host(host->name, host->name, Laboratory::kTap); !started) {
      return tl::unexpected(started.error());
    }
    if (auto dressed = laboratory.dress_tap(*host); !dressed) return tl::unexpected(dressed.error());
    routes.push_back({host->netns, addresses[index].c_str(), laboratory.peer_netns(), Laboratory::kPeerAddress});
    if (!wait_until_reachable(routes.back(), monotonic_now() + kAttachPatience)) {
      return fail("nothing comes through from {}", host->name);
    }
  }
  Measuring measuring(gauge, crowd, length);
  if (auto measured = measuring.streams(routes); !measured) return tl::unexpected(measured.error());

  const Route& busy = routes.front();
  daemons.stop_hosts(1);
  auto alone = measuring.requests(busy, CrowdMetric::requests_alone);
  if (!alone) return tl::unexpected(alone.error());
  if (auto idle = start_idle_hosts(laboratory, daemons, idle_hosts); !idle) return tl::unexpected(idle.error());
  const auto idle = idle_share(daemons.unit());
  if (!idle) return tl::unexpected(idle.error());
  crowd.idle_unit = *idle;
  auto crowded = measuring.requests(busy, CrowdMetric::requests_in_crowd);
  if (!crowded) return tl::unexpected(crowded.error());
  if (auto alive = daemons.check(); !alive) return tl::unexpected(alive.error());
  daemons.stop_hosts(1);
  if (alone = measuring.requests(busy, CrowdMetric::requests_alone); !alone) return tl::unexpected(alone.error());
  if (auto alive = daemons.check(); !alive) return tl::unexpected(alive.error());
  return crowd;
}

}  // namespace splitnic::bench::nic
