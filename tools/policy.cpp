// `splitnic policy`: checks a policy file, and asks a running I/O unit to show its policy or to read it again.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "common/os/control_client.h"
#include "common/os/path_parts.h"
#include "common/os/runtime_directory.h"
#include "common/result.h"
#include "iounit/policy_file.h"
#include "tools/commands.h"

namespace splitnic::tools {

namespace {

/// --control, or the socket of the only I/O unit that runs. Throws UsageError and StartupError.
std::string unit_control(const PolicyCommand& command) {
  if (!command.control.empty()) return command.control;
  auto found = os::find_control_sockets();
  if (!found) throw StartupError{found.error().message};
  auto& controls = *found;
  std::erase_if(controls, [](const std::string& path) { return !os::name_of(path).starts_with("iounit-"); });
  if (controls.size() == 1) return controls.front();
  throw UsageError{fmt::format("{} I/O units run here: name one's control socket with --control", controls.size())};
}

}  // namespace

int run_policy_check(const PolicyCommand& command) {
  const auto rules = iounit::read_policy(command.file);
  if (!rules) throw UsageError{rules.error().message};
  fmt::print("{}: {} hosts\n", command.file, rules->hosts.size());
  return 0;
}

int run_policy_request(const PolicyCommand& command, os::ControlRequest request) {
  const Duration limit = request == os::ControlRequest::reload_policy ? os::kFileAnswerLimit : os::kAnswerLimit;
  const auto text = os::query_text(unit_control(command), request, limit);
  if (!text) throw StartupError{text.error().message};
  fmt::print("{}{}", *text, text->ends_with('\n') ? "" : "\n");
  return 0;
}

}  // namespace splitnic::tools
