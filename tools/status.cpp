// `splitnic status` and `splitnic stats`: asks daemons on their control sockets. The endnodes of verbs programs have
// files.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <iterator>
#include <utility>

#include "common/os/account.h"
#include "common/os/control_client.h"
#include "common/os/daemon_processes.h"
#include "common/os/daemon_status.h"
#include "common/os/runtime_directory.h"
#include "common/result.h"
#include "tools/commands.h"
#include "tools/main_program.h"
#include "tools/verbs_endnodes.h"

namespace splitnic::tools {

namespace {

void print_counts(const char* title, const std::vector<os::NamedCount>& counts) {
  for (const auto& count : counts) {
    if (count.count != 0) fmt::print("    {} {}: {}\n", title, count.name, count.count);
  }
}

std::string if_any(const char* title, const std::string& text) {
  return text.empty() ? std::string() : fmt::format(", {} {}", title, text);
}

void print_endnode(const os::DaemonStatus& status) {
  fmt::print("{} {}: {}, pid {}\n", status.role, status.name, status.state, status.pid);
  print_counts("drop", status.drops);
  print_counts("count", status.counts);
  for (const auto& queue_pair : status.peers) {
    fmt::print("  {}: {}\n", queue_pair.name, queue_pair.state);
    print_counts("count", queue_pair.messages);
  }
}

void print(const os::DaemonStatus& status, bool counters) {
  if (status.role == kVerbsRole) return print_endnode(status);
  const std::string threads = status.threads > 1 ? fmt::format(", {} threads", status.threads) : std::string();
  fmt::print("{} {}: {}{}{}{}, carrier {}, MTU {}{}{}, pid {}\n", status.role, status.name, status.state,
             if_any("LAN", status.lan), if_any("engine", status.lan_engine), if_any("TAP", status.tap),
             status.carrier ? "yes" : "no", status.mtu, if_any("address", status.mac), threads, status.pid);
  if (counters) {
    print_counts("drop", status.drops);
    print_counts("count", status.counts);
  }
  for (const auto& peer : status.peers) {
    fmt::print("  peer {}: {}{}, sent {} frames ({} bytes), received {} ({} bytes)\n",
               peer.name.empty() ? "(nameless)" : peer.name, peer.state, if_any("address", peer.mac), peer.tx_frames,
               peer.tx_bytes, peer.rx_frames, peer.rx_bytes);
    if (!counters) continue;
    print_counts("drop", peer.drops);
    print_counts("message", peer.messages);
  }
}

void print_json(const std::vector<os::DaemonStatus>& all, bool one) {
  // A single daemon given by --control is one object; daemons found by the search are a list.
  if (one && all.size() == 1) return fmt::print("{}\n", os::to_json(all.front()));
  std::string text;
  for (const auto& status : all) text += (text.empty() ? "" : ",\n ") + os::to_json(status);
  fmt::print("[{}]\n", text);
}

/// Queries all of them at once, so that a daemon without an answer delays only the end.
std::vector<Result<os::DaemonStatus>> ask(const std::vector<std::string>& controls, os::ControlRequest request) {
  std::vector<std::future<Result<os::DaemonStatus>>> questions;
  for (const auto& control : controls) {
    questions.push_back(
        std::async(std::launch::async, [&control, request] { return os::query_status(control, request); }));
  }
  std::vector<Result<os::DaemonStatus>> answers;
  for (auto& question : questions) answers.push_back(question.get());
  return answers;
}

/// Names the running daemons whose control sockets were not found: those of other users, or in other places. silent:
/// sockets without an answer, which are named by a pid, as a rule. Returns how many there are.
std::size_t name_unasked(const std::vector<std::string>& silent, const std::vector<os::DaemonStatus>& answered) {
  std::size_t unasked = 0;
  for (const auto& process : os::find_daemon_processes()) {
    const auto ending = fmt::format("/{}-{}.sock", process.role, process.pid);
    if (std::ranges::any_of(silent, [&](const auto& control) { return control.ends_with(ending); })) continue;
    if (std::ranges::any_of(answered, [&](const auto& status) { return std::cmp_equal(status.pid, process.pid); })) {
      continue;
    }
    ++unasked;
    fmt::print(stderr, "splitnic: not asked: {} of user {}, pid {} (its control socket is not in this user's folder)\n",
               process.role, os::user_name(process.user), process.pid);
  }
  return unasked;
}

std::vector<std::string> found_controls() {
  auto controls = os::find_control_sockets();
  if (!controls) throw StartupError{controls.error().message};
  return *std::move(controls);
}

}  // namespace

int run_status(const StatusCommand& command) {
  const bool search = command.controls.empty();
  const auto controls = search ? found_controls() : command.controls;
  std::vector<os::DaemonStatus> all;
  std::vector<std::string> silent;
  auto answers = ask(controls, command.clear ? os::ControlRequest::clear : os::ControlRequest::status);
  for (std::size_t index = 0; index < controls.size(); ++index) {
    if (auto& answer = answers[index]) {
      all.push_back(std::move(*answer));
    } else {
      print_error("splitnic", answer.error().message);
      silent.push_back(controls[index]);
    }
  }
  const bool failed = !silent.empty();
  if (search && command.counters) std::ranges::move(verbs_endnodes(), std::back_inserter(all));
  const std::size_t unasked = search ? name_unasked(silent, all) : 0;
  if (command.json) {
    if (!failed || !all.empty()) print_json(all, command.controls.size() == 1);
  } else {
    if (all.empty() && !failed && unasked == 0) fmt::print("no daemon is running here\n");
    for (const auto& status : all) print(status, command.counters);
  }
  return failed || (all.empty() && unasked != 0) ? 1 : 0;
}

}  // namespace splitnic::tools
