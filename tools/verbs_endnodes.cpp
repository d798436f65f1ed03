#include "tools/verbs_endnodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>
#include <string>

#include "fabric/endnode/counter_files.h"
#include "fabric/endnode/fabric_directory.h"
#include "fabric/endnode/local_ids.h"

namespace splitnic::tools {
namespace {

constexpr std::uint32_t kPathMtuBytes = 4096;  // as the device reports it

std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Of the line that begins with this name; empty: there is none.
std::string value_of(const std::vector<std::string>& lines, std::string_view name) {
  for (const std::string& line : lines) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ' ')
      return line.substr(name.size() + 1);
  }
  return {};
}

/// "NUMBER TYPE STATE peer_lid N peer_qp N", then names and counts.
os::PeerStatus queue_pair_of(const std::string& line) {
  std::istringstream words(line);
  std::string number, type, state, lid, peer, name, value;
  words >> number >> type >> state >> name >> lid >> name >> peer;
  os::PeerStatus status;
  status.name = "queue pair " + number;
  status.state = fmt::format("{} {}, peer LID {} queue pair {}", type, state, lid, peer);
  while (words >> name >> value) {
    const std::uint64_t count = number_in(value);
    if (name == "requests_completed") status.tx_frames = count;
    if (name == "receives_taken") status.rx_frames = count;
    status.messages.push_back({name, count});
  }
  return status;
}

os::DaemonStatus endnode_of(const std::string& fabric, const fabric::EndnodeReport& report) {
  os::DaemonStatus status;
  status.role = kVerbsRole;
  status.name = fmt::format("{}/{}", fabric, report.id.value);
  status.state = fmt::format("{}, device {}", value_of(report.process, "program"), value_of(report.process, "device"));
  status.mtu = kPathMtuBytes;
  status.carrier = true;
  status.pid = static_cast<std::uint32_t>(number_in(value_of(report.process, "pid")));
  status.version = value_of(report.process, "version");
  status.uptime_ms = static_cast<std::uint64_t>(report.open_ms);
  for (const auto* kind : {&report.counts.counters, &report.counts.hw_counters}) {
    for (const os::NamedCount& count : *kind) {
      (count.name.starts_with("dropped_") ? status.drops : status.counts).push_back(count);
    }
  }
  std::ranges::transform(report.queue_pairs, std::back_inserter(status.peers), queue_pair_of);
  return status;
}

}  // namespace

std::vector<os::DaemonStatus> verbs_endnodes() {
  std::vector<os::DaemonStatus> all;
  for (const fabric::FabricFolder& folder : fabric::find_fabric_directories()) {
    const auto ids = fabric::LocalIds::open(folder.meeting);
    if (!ids) continue;
    for (const auto& report : fabric::read_endnodes(folder.directory, **ids)) {
      all.push_back(endnode_of(folder.name, report));
    }
  }
  return all;
}

}  // namespace splitnic::tools
