#include "bench/nic/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "bench/commands.h"
#include "bench/nic/placed.h"
#include "bench/nic/process.h"
#include "bench/nic/traffic.h"
#include "bench/summary.h"

namespace splitnic::bench::nic {

namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);
constexpr Duration kPause = std::chrono::milliseconds(2);  // longer than anything spins
constexpr Duration kStartPatience = std::chrono::seconds(10);
constexpr std::size_t kFourConnections = 4;

constexpr std::array<MetricFacts, kMetrics> kFacts{{
    {"tcp_to_lan", "TCP, host to LAN", "Gbit/s", 1e9, 2, false},
    {"tcp_to_host", "TCP, LAN to host", "Gbit/s", 1e9, 2, false},
    {"tcp_four_to_lan", "TCP, host to LAN, 4 connections", "Gbit/s", 1e9, 2, false},
    {"tcp_to_lan_cpu", "  processor time, host to LAN", "s/Gbit", 1, 3, true},
    {"tcp_to_host_cpu", "  processor time, LAN to host", "s/Gbit", 1, 3, true},
    {"tcp_request_response", "TCP request/response", "1000/s", 1e3, 2, false},
    {"tcp_request_response_p99", "  99th percentile", "us", 1, 0, true},
    {"tcp_request_response_cpu", "  processor time", "s/100000", 1e-5, 2, true},
    {"udp_to_lan", "UDP 64-byte, host to LAN", "1000/s", 1e3, 1, false},
    {"udp_to_lan_lost", "  lost of what was sent", "%", 1e-2, 1, true, false},
    {"udp_to_host", "UDP 64-byte, LAN to host", "1000/s", 1e3, 1, false},
    {"udp_to_host_lost", "  lost of what was sent", "%", 1e-2, 1, true, false},
    {"ping", "back-to-back ping", "us", 1, 1, true},
    {"ping_each_millisecond", "ping, one each millisecond", "us", 1, 1, true},
    {"ping_after_pause", "ping, one each 2 ms", "us", 1, 1, true},
}};

using Values = std::vector<std::pair<Metric, double>>;
struct Step {
  std::vector<Metric> metrics;
  std::function<Result<Values>()> measure;
};

Step stream_step(const Route& route, Duration length, std::size_t connections, Metric rate,
                 std::optional<Metric> processor_time) {
  std::vector metrics{rate};
  if (processor_time) metrics.push_back(*processor_time);
  return {std::move(metrics), [=]() -> Result<Values> {
            const auto stream = measure_tcp_stream(route, length, connections);
            if (!stream) return tl::unexpected(stream.error());
            Values values{{rate, stream->bits_per_second}};
            if (processor_time)
              values.emplace_back(*processor_time, stream->busy_cores / (stream->bits_per_second / 1e9));
            return values;
          }};
}

Step request_step(const Route& route, Duration length) {
  return {{Metric::requests, Metric::requests_p99, Metric::requests_cpu}, [=]() -> Result<Values> {
            const auto requests = measure_tcp_request_response(route, length);
            if (!requests) return tl::unexpected(requests.error());
            return Values{{Metric::requests, requests->per_second},
                          {Metric::requests_p99, requests->p99_microseconds},
                          {Metric::requests_cpu, requests->busy_cores / requests->per_second}};
          }};
}

Step packet_step(const Route& route, Duration length, Metric rate, Metric lost) {
  return {{rate, lost}, [=]() -> Result<Values> {
            const auto packets = measure_udp_rate(route, length);
            if (!packets) return tl::unexpected(packets.error());
            return Values{{rate, packets->received_per_second}, {lost, packets->lost_share}};
          }};
}

Step ping_step(const Route& route, Duration length, Duration interval, Metric metric) {
  return {{metric}, [=]() -> Result<Values> {
            // What a flood left in queues is gone once an echo is back.
            if (!wait_until_reachable(route, monotonic_now() + kStartPatience))
              return fail("nothing comes through any more");
            const auto ping = measure_ping(route, length, interval);
            if (!ping) return tl::unexpected(ping.error());
            return Values{{metric, *ping}};
          }};
}

std::vector<Step> steps_of(const Laboratory& laboratory, Duration length) {
  const Route to_lan{laboratory.host_netns(), Laboratory::kHostAddress, laboratory.peer_netns(),
                     Laboratory::kPeerAddress};
  const Route to_host{to_lan.to_netns, to_lan.to_address, to_lan.from_netns, to_lan.from_address};
  return {stream_step(to_lan, length, 1, Metric::tcp_to_lan, Metric::tcp_to_lan_cpu),
          stream_step(to_host, length, 1, Metric::tcp_to_host, Metric::tcp_to_host_cpu),
          stream_step(to_lan, length, kFourConnections, Metric::tcp_four_to_lan, std::nullopt),
          request_step(to_lan, length),
          packet_step(to_lan, length, Metric::udp_to_lan, Metric::udp_to_lan_lost),
          packet_step(to_host, length, Metric::udp_to_host, Metric::udp_to_host_lost),
          ping_step(to_lan, length, Duration(0), Metric::ping),
          ping_step(to_lan, length, kMillisecond, Metric::ping_each_millisecond),
          ping_step(to_lan, length, kPause, Metric::ping_after_pause)};
}

Result<void> take(LineGauge& gauge, const Contestant& contestant, const Step& step, Samples& samples) {
  const auto values = measure_placed<Values>(gauge, samples.moved, step.measure);
  if (!values) return tl::unexpected(values.error());
  if (!*values) return {};
  for (const auto& [metric, value] : (*values)->value) {
    samples.taken.push_back({contestant.contender, contestant.condition, metric, (*values)->placement, value});
  }
  return {};
}

Result<void> measure_running(Laboratory& laboratory, LineGauge& gauge, const Contestant& contestant, Duration length,
                             const std::vector<std::string>& rows, std::vector<Process>& processes, Samples& samples) {
  const bool offloads = contestant.condition == Condition::offloads;
  if (auto set = laboratory.set_peer_offloads(offloads); !set) return set;
  for (const auto& program : contestant.programs) {
    auto process = Process::start(program, laboratory.scratch(fmt::format("program{}.log", processes.size())));
    if (!process) return tl::unexpected(process.error());
    processes.push_back(*std::move(process));
  }
  if (contestant.contender == Contender::bridge) {
    if (auto made = laboratory.make_bridge(offloads); !made) return made;
  }
  if (!contestant.gives_tap_after.empty()) {
    const Time give_up = monotonic_now() + kStartPatience;
    while (!processes.back().has_said(contestant.gives_tap_after)) {
      if (!processes.back().running() || monotonic_now() > give_up) return fail("it does not begin");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (auto given = laboratory.give_tap_to_host(); !given) return given;
  }
  if (auto dressed = laboratory.dress_tap(offloads); !dressed) return dressed;
  const auto steps = steps_of(laboratory, length);
  const Route to_lan{laboratory.host_netns(), Laboratory::kHostAddress, laboratory.peer_netns(),
                     Laboratory::kPeerAddress};
  if (!wait_until_reachable(to_lan, monotonic_now() + kStartPatience)) return fail("nothing comes through");
  const auto named = [&](Metric metric) { return asked_for(rows, facts_of(metric).key); };
  for (const Step& step : steps) {
    if (std::ranges::none_of(step.metrics, named)) continue;
    if (auto taken = take(gauge, contestant, step, samples); !taken) return taken;
  }
  return {};
}

}  // namespace

const MetricFacts& facts_of(Metric metric) { return kFacts[static_cast<std::size_t>(metric)]; }

const char* to_string(Contender contender) {
  switch (contender) {
    case Contender::split:
      return "split";
    case Contender::forwarder:
      return "forwarder";
    case Contender::small_split:
      return "small_split";
    case Contender::bridge:
      return "bridge";
    case Contender::testpmd:
      return "testpmd";
  }
  return "";
}

std::vector<std::string> metric_names() {
  std::vector<std::string> keys;
  for (const MetricFacts& facts : kFacts) keys.emplace_back(facts.key);
  return keys;
}

std::vector<std::string> contender_names() {
  std::vector<std::string> all;
  for (const Contender contender : kContenders) all.emplace_back(to_string(contender));
  std::erase(all, to_string(Contender::split));
  return all;
}

const char* to_string(Condition condition) { return condition == Condition::plain ? "plain" : "offloads"; }

bool takes_part(Contender contender, Condition condition) {
  if (contender == Contender::small_split) return condition == Condition::offloads;
  return contender != Contender::testpmd || condition == Condition::plain;
}

const std::vector<Goal>& goals() {
  static const std::vector<Goal> all{
      {Metric::tcp_to_lan, Condition::offloads, Contender::forwarder, 0.9, 1},
      {Metric::tcp_to_host, Condition::offloads, Contender::forwarder, 0.9, 1},
      {Metric::tcp_to_lan, Condition::offloads, Contender::small_split, 0.9, 1},
      {Metric::tcp_to_host, Condition::offloads, Contender::small_split, 0.9, 1},
      {Metric::tcp_to_lan, Condition::offloads, Contender::bridge, 0.6, 0.8},
      {Metric::tcp_to_host, Condition::offloads, Contender::bridge, 0.6, 0.8},
      {Metric::tcp_to_lan, Condition::plain, Contender::forwarder, 1.2, 1.5},
      {Metric::tcp_to_host, Condition::plain, Contender::forwarder, 1.2, 1.5},
      {Metric::requests, Condition::offloads, Contender::bridge, 1.3, 1.6},
      {Metric::requests_p99, Condition::offloads, Contender::bridge, 1 / 1.1, 1 / 0.8},
      {Metric::requests, Condition::plain, Contender::forwarder, 0.8},
      {Metric::ping, Condition::plain, Contender::forwarder, 0.8},
      {Metric::ping_after_pause, Condition::offloads, Contender::forwarder, 1 / 1.5, 1 / 1.2},
      {Metric::ping_after_pause, Condition::plain, Contender::forwarder, 1 / 1.5, 1 / 1.2},
      {Metric::udp_to_lan, Condition::offloads, Contender::bridge, 1, 1.2},
      {Metric::udp_to_host, Condition::offloads, Contender::bridge, 1, 1.2},
      {Metric::udp_to_lan, Condition::plain, Contender::forwarder, 0.95},
      {Metric::udp_to_host, Condition::plain, Contender::forwarder, 0.95},
      {Metric::tcp_to_lan_cpu, Condition::offloads, Contender::bridge, 0.5, 1 / 1.5},
      {Metric::tcp_to_host_cpu, Condition::offloads, Contender::bridge, 0.5, 1 / 1.5},
  };
  return all;
}

std::vector<double> Samples::values(Contender contender, Condition condition, Metric metric,
                                    Placement placement) const {
  std::vector<double> values;
  for (const Sample& sample : taken) {
    if (sample.contender != contender || sample.condition != condition) continue;
    if (sample.metric == metric && sample.placement == placement) values.push_back(sample.value);
  }
  return values;
}

std::optional<double> Samples::median(Contender contender, Condition condition, Metric metric,
                                      Placement placement) const {
  const auto found = values(contender, condition, metric, placement);
  if (found.empty()) return std::nullopt;
  return summary_of(found).median;
}

std::optional<double> Samples::ratio(Metric metric, Condition condition, Contender against, Placement placement) const {
  if (!facts_of(metric).compared) return std::nullopt;
  const auto own = median(Contender::split, condition, metric, placement);
  const auto other = median(against, condition, metric, placement);
  if (!own || !other || *own <= 0 || *other <= 0) return std::nullopt;
  return facts_of(metric).less_is_better ? *other / *own : *own / *other;
}

bool Samples::any(Placement placement) const {
  return std::ranges::any_of(taken, [&](const Sample& sample) { return sample.placement == placement; });
}

Result<void> measure_once(Laboratory& laboratory, LineGauge& gauge, const Contestant& contestant, Duration length,
                          const std::vector<std::string>& rows, Samples& samples) {
  std::vector<Process> processes;
  auto measured = measure_running(laboratory, gauge, contestant, length, rows, processes, samples);
  const auto ended = std::find_if(processes.begin(), processes.end(), [](Process& p) { return !p.running(); });
  if (ended != processes.end()) measured = fail("{}", ended->last_words());
  // The last one started depends on those before it.
  std::for_each(processes.rbegin(), processes.rend(), [](Process& process) { process.stop(); });
  laboratory.clear_tap();
  if (!measured) {
    return fail("{} ({}): {}", to_string(contestant.contender), to_string(contestant.condition),
                measured.error().message);
  }
  return {};
}

}  // namespace splitnic::bench::nic
