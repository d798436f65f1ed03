#include "tools/unit_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <chrono>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "tools/daemon.h"

namespace splitnic::tools {

namespace {

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

void add_peers(os::DaemonStatus& status, const iounit::IoUnit& unit) {
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
    add_count(peer.messages, "rests", unit.share().rests_taken(place));
    status.peers.push_back(std::move(peer));
  }
}

void add_counts(os::DaemonStatus& status, const iounit::IoUnit& unit, const iounit::LanEngine& lan) {
  const auto& counters = unit.counters();
  for (std::size_t index = 0; index < iounit::kLanDrops; ++index) {
    const auto cause = static_cast<iounit::LanDrop>(index);
    add_count(status.drops, std::string(iounit::to_string(cause)), unit.drops(cause));
  }
  const auto& lan_counters = lan.counters();
  for (const auto& [cause, count] :
       std::initializer_list<std::pair<const char*, std::uint64_t>>{{"lan_truncated", lan_counters.rx_truncated},
                                                                    {"lan_undescribed", lan_counters.rx_undescribed},
                                                                    {"lan_kernel_drops", lan_counters.rx_kernel_drops},
                                                                    {"lan_tx_errors", lan_counters.tx_errors},
                                                                    {"lan_tx_lost", lan_counters.tx_lost},
                                                                    {"hosts_refused", counters.hosts_refused},
                                                                    {"queues_refused", counters.queues_refused},
                                                                    {"hosts_evicted", counters.hosts_evicted},
                                                                    {"hosts_ejected", counters.hosts_ejected}}) {
    add_count(status.drops, cause, count);
  }
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
  add_count(status.counts, "lan_merged", counters.lan_merged);
  add_count(status.counts, "to_lan_merged", counters.to_lan_merged);
  add_count(status.counts, "host_checksums_completed", counters.host_checksums_completed);
  add_count(status.counts, "host_segmented", counters.host_segmented);
  add_count(status.counts, "passed_unfinished", counters.passed_unfinished);
  add_count(status.counts, "payloads_copied", counters.payloads_copied);
}

/// Adds the counts of the same name.
void add_all(std::vector<os::NamedCount>& sum, const std::vector<os::NamedCount>& counts) {
  for (const os::NamedCount& count : counts) {
    const auto same = std::ranges::find(sum, count.name, &os::NamedCount::name);
    if (same == sum.end()) {
      sum.push_back(count);
    } else {
      same->count += count.count;
    }
  }
}

/// The LAN's settings are the first unit's: all of them follow the same interface.
void merge(UnitReport& sum, UnitReport part) {
  if (sum.status.epoch == 0) sum.status.epoch = part.status.epoch;
  sum.status.carrier = sum.status.carrier && part.status.carrier;
  std::ranges::move(part.status.peers, std::back_inserter(sum.status.peers));
  std::ranges::move(part.hosts, std::back_inserter(sum.hosts));
  add_all(sum.status.drops, part.status.drops);
  add_all(sum.status.counts, part.status.counts);
}

}  // namespace

UnitReport report_of(const iounit::IoUnit& unit, const iounit::LanEngine& lan) {
  UnitReport report;
  os::DaemonStatus& status = report.status;
  status.mtu = unit.mtu();
  status.carrier = unit.carrier();
  status.lan = lan.name();
  status.lan_engine = lan.engine();
  add_peers(status, unit);
  add_counts(status, unit, lan);
  for (const auto& host : unit.hosts()) {
    if (!host) continue;
    report.hosts.push_back({.statistics = host->host_statistics(), .queues = host->queues_up()});
  }
  return report;
}

UnitReport report_of_member(const iounit::IoUnit& unit, const iounit::GroupLan& lan) {
  UnitReport report = report_of(unit, lan);
  const iounit::GroupLanCounters& counters = lan.group_counters();
  add_count(report.status.drops, "handover_full", counters.full);
  add_count(report.status.drops, "handover_refused", counters.refused);
  add_count(report.status.counts, "handover_frames", counters.to_others);
  add_count(report.status.counts, "handover_copies", counters.copies);
  return report;
}

void clear_statistics_of_hosts(iounit::IoUnit& unit) {
  for (const auto& host : unit.hosts()) {
    if (host) host->clear_host_statistics();
  }
}

/// The hosts have their own counters and clear them themselves. The number of queues is no counter: it may fall.
os::DaemonStatus answer_of(os::ControlRequest request, std::vector<UnitReport> reports,
                           const fabric::ShmListenerCounters& connections, const os::SpinCounters& spins,
                           const os::Log& log, const std::string& name, os::ClearedCounts& cleared) {
  UnitReport sum = std::move(reports.front());
  for (std::size_t unit = 1; unit < reports.size(); ++unit) merge(sum, std::move(reports[unit]));
  sum.status.role = "iounit";
  sum.status.name = name;
  sum.status.state = "serving";
  sum.status.threads = static_cast<std::uint32_t>(reports.size());
  add_connections(sum.status, connections);
  add_spins(sum.status.counts, spins);
  add_count(sum.status.counts, "log_lines_lost", log.lost());
  os::DaemonStatus status = cleared.answer(std::move(sum.status), request);
  for (std::size_t host = 0; host < sum.hosts.size(); ++host) {
    add_count(status.peers[host].messages, "queues", sum.hosts[host].queues);
    add_statistics(status.peers[host], sum.hosts[host].statistics, "host_");
  }
  return status;
}

}  // namespace splitnic::tools
