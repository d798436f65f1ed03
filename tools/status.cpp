// `splitnic status` and `splitnic stats`: asks daemons on their control sockets.
#include <fmt/format.h>

#include <cstdio>

#include "common/os/control_client.h"
#include "common/os/daemon_status.h"
#include "common/os/runtime_directory.h"
#include "common/result.h"
#include "tools/commands.h"

namespace splitnic::tools {

namespace {

void print_counts(const char* title, const std::vector<os::NamedCount>& counts) {
  for (const auto& count : counts) {
    if (count.count != 0) fmt::print("    {} {}: {}\n", title, count.name, count.count);
  }
}

void print(const os::DaemonStatus& status, bool counters) {
  fmt::print("{} {}: {}, carrier {}, MTU {}{}{}{}{}\n", status.role, status.name, status.state,
             status.carrier ? "yes" : "no", status.mtu, status.mac.empty() ? "" : ", address ", status.mac,
             status.lan.empty() ? "" : ", LAN ", status.lan);
  if (counters) {
    print_counts("drop", status.drops);
    print_counts("count", status.counts);
  }
  for (const auto& peer : status.peers) {
    fmt::print("  peer {}: {}{}{}, sent {} frames ({} bytes), received {} ({} bytes)\n",
               peer.name.empty() ? "(nameless)" : peer.name, peer.state, peer.mac.empty() ? "" : ", address ", peer.mac,
               peer.tx_frames, peer.tx_bytes, peer.rx_frames, peer.rx_bytes);
    if (!counters) continue;
    print_counts("drop", peer.drops);
    print_counts("message", peer.messages);
  }
}

}  // namespace

int run_status(const StatusCommand& command) {
  const auto controls = command.controls.empty() ? os::find_control_sockets() : command.controls;
  std::vector<os::DaemonStatus> all;
  bool failed = false;
  for (const auto& control : controls) {
    auto status = os::query_status(control, command.clear ? os::ControlRequest::clear : os::ControlRequest::status);
    if (!status) {
      fmt::print(stderr, "splitnic: {}\n", status.error().message);
      failed = true;
      continue;
    }
    all.push_back(std::move(*status));
  }
  if (command.json) {
    // One daemon asked by name is one object; whatever was found is a list.
    if (command.controls.size() == 1 && all.size() == 1) {
      fmt::print("{}\n", os::to_json(all.front()));
    } else if (!failed || !all.empty()) {
      std::string text;
      for (const auto& status : all) text += (text.empty() ? "" : ",\n ") + os::to_json(status);
      fmt::print("[{}]\n", text);
    }
  } else {
    if (all.empty() && !failed) fmt::print("no daemon is running here\n");
    for (const auto& status : all) print(status, command.counters);
  }
  return failed ? 1 : 0;
}

}  // namespace splitnic::tools
