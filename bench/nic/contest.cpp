#include "bench/nic/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "bench/nic/process.h"
#include "bench/nic/traffic.h"
#include "bench/summary.h"

namespace splitnic::bench {

namespace {

constexpr Duration kPause = std::chrono::milliseconds(1);  // longer than anything spins
constexpr Duration kStartPatience = std::chrono::seconds(10);
// Latency that much better than the median is another experiment, not a good day.
constexpr double kOutlierFactor = 2.5;
constexpr std::size_t kFewestToCompare = 3;

Result<Run> measure_all(const Laboratory& laboratory, Duration length) {
  const Route to_lan{laboratory.host_netns(), Laboratory::kHostAddress, laboratory.peer_netns(),
                     Laboratory::kPeerAddress};
  const Route to_host{to_lan.to_netns, to_lan.to_address, to_lan.from_netns, to_lan.from_address};
  if (!wait_until_reachable(to_lan, monotonic_now() + kStartPatience)) return fail("nothing comes through");
  const auto stream_out = measure_tcp_stream(to_lan, length);
  if (!stream_out) return tl::unexpected(stream_out.error());
  const auto stream_in = measure_tcp_stream(to_host, length);
  if (!stream_in) return tl::unexpected(stream_in.error());
  const auto requests = measure_tcp_request_response(to_lan, length);
  if (!requests) return tl::unexpected(requests.error());
  const auto packets_out = measure_udp_rate(to_lan, length);
  if (!packets_out) return tl::unexpected(packets_out.error());
  const auto packets_in = measure_udp_rate(to_host, length);
  if (!packets_in) return tl::unexpected(packets_in.error());
  // What the flood left in queues is gone once an echo is back.
  if (!wait_until_reachable(to_lan, monotonic_now() + kStartPatience)) return fail("nothing comes through any more");
  const auto ping = measure_ping(to_lan, length, Duration(0));
  if (!ping) return tl::unexpected(ping.error());
  const auto ping_after_pause = measure_ping(to_lan, length, kPause);
  if (!ping_after_pause) return tl::unexpected(ping_after_pause.error());
  return Run{*stream_out,
             *stream_in,
             *requests,
             packets_out->received_per_second,
             packets_out->lost_share,
             packets_in->received_per_second,
             packets_in->lost_share,
             *ping,
             *ping_after_pause};
}

Result<Run> run_programs(Laboratory& laboratory, const Contestant& contestant, std::vector<Process>& processes,
                         Duration length) {
  if (auto set = laboratory.set_peer_offloads(contestant.offloads); !set) return tl::unexpected(set.error());
  for (const auto& program : contestant.programs) {
    auto process = Process::start(program, laboratory.scratch(fmt::format("program{}.log", processes.size())));
    if (!process) return tl::unexpected(process.error());
    processes.push_back(*std::move(process));
  }
  if (auto dressed = laboratory.dress_tap(); !dressed) return tl::unexpected(dressed.error());
  return measure_all(laboratory, length);
}

}  // namespace

Result<Run> measure_once(Laboratory& laboratory, const Contestant& contestant, Duration length) {
  std::vector<Process> processes;
  auto run = run_programs(laboratory, contestant, processes, length);
  const auto ended = std::find_if(processes.begin(), processes.end(), [](Process& p) { return !p.running(); });
  if (ended != processes.end()) run = fail("{}", ended->last_words());
  // The last one started depends on those before it.
  std::for_each(processes.rbegin(), processes.rend(), [](Process& process) { process.stop(); });
  laboratory.clear_tap();
  if (!run) return fail("{}: {}", contestant.name, run.error().message);
  return run;
}

double ratio_of(const Metric& metric, double contender, double yardstick) {
  return metric.less_is_better ? yardstick / contender : contender / yardstick;
}

std::size_t find_outlier(const std::vector<Run>& runs) {
  if (runs.size() < kFewestToCompare) return runs.size();
  for (const std::size_t metric : {kRequestResponse, kPing}) {
    std::vector<double> values;
    for (const auto& run : runs) values.push_back(run[metric]);
    const double median = summary_of(values).median;
    for (std::size_t index = 0; index < runs.size(); ++index) {
      if (ratio_of(kMetrics[metric], values[index], median) > kOutlierFactor) return index;
    }
  }
  return runs.size();
}

}  // namespace splitnic::bench
