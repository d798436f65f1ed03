#include "messaging/statistics.h"

#include <algorithm>

namespace splitnic::messaging {

namespace {

wire::Flow since(const wire::Flow& now, const wire::Flow& before) {
  return {.frames = now.frames - before.frames,
          .bytes = now.bytes - before.bytes,
          .errors = now.errors - before.errors,
          .drops = now.drops - before.drops};
}

}  // namespace

wire::Statistics session_statistics(const SessionCounters& counters) {
  wire::Statistics statistics;
  statistics.from_peer = {.frames = counters.rx_frames,
                          .bytes = counters.rx_bytes,
                          .errors = counters.rx_bad_length + counters.rx_bad_offload + counters.lost_elements,
                          .drops = counters.rx_before_up};
  statistics.to_peer = {.frames = counters.tx_frames, .bytes = counters.tx_bytes, .errors = 0, .drops = 0};
  return statistics;
}

wire::Statistics since(const wire::Statistics& now, const wire::Statistics& before) {
  wire::Statistics grown_by = now;
  grown_by.from_peer = since(now.from_peer, before.from_peer);
  grown_by.to_peer = since(now.to_peer, before.to_peer);
  grown_by.from_interface = since(now.from_interface, before.from_interface);
  grown_by.to_interface = since(now.to_interface, before.to_interface);
  for (auto& counter : grown_by.counters) {
    const auto same =
        std::ranges::find_if(before.counters, [&](const auto& other) { return other.name == counter.name; });
    if (same != before.counters.end()) counter.value -= same->value;
  }
  return grown_by;
}

wire::Statistics as_of_now(wire::CfgRequest request, const wire::Statistics& answer) {
  if (request != wire::CfgRequest::statistics_clear) return answer;
  wire::Statistics cleared = since(answer, answer);
  cleared.counted_for = {};
  return cleared;
}

NamedStatistics named(const wire::Statistics& statistics, const std::string& prefix) {
  NamedStatistics result;
  const auto add = [&](const std::string& way, const wire::Flow& flow) {
    result.counts.emplace_back(prefix + way + "_frames", flow.frames);
    result.counts.emplace_back(prefix + way + "_bytes", flow.bytes);
    result.losses.emplace_back(prefix + way + "_errors", flow.errors);
    result.losses.emplace_back(prefix + way + "_drops", flow.drops);
  };
  add("from_peer", statistics.from_peer);
  add("to_peer", statistics.to_peer);
  add("from_interface", statistics.from_interface);
  add("to_interface", statistics.to_interface);
  const auto counted = std::chrono::duration_cast<std::chrono::milliseconds>(statistics.counted_for);
  result.counts.emplace_back(prefix + "counted_ms", static_cast<std::uint64_t>(counted.count()));
  for (const auto& counter : statistics.counters) result.losses.emplace_back(prefix + counter.name, counter.value);
  return result;
}

}  // namespace splitnic::messaging
