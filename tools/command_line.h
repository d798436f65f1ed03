#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/commands.h"

namespace splitnic::tools {

/// The values of the command line, one per command. The initial values are the defaults.
struct CommandLine {
  HostCommand host;
  UnitCommand unit;
  StatusCommand status;
  PolicyCommand policy;
  VerbsRunCommand verbs;
  StatusCommand stats{.controls = {}, .json = false, .counters = true};
};

/// Adds every command and option of `splitnic` to app, with descriptions, ranges and defaults. Parsing writes into
/// asked, which is lent to app. The program parses with this app. The generator of the manual pages and of the
/// completion reads it, so that neither has texts of its own.
void define_command_line(CLI::App& app, CommandLine& asked);

/// Returns the words of a command line, with the settings of its --config file added if the words do not contain them.
/// Unchanged without --config, or if the words are wrong (parsing them reports the error). Throws UsageError,
/// "FILE:LINE: ...", for a file that can't be read and for unknown or impossible settings.
std::vector<std::string> with_configuration(const std::vector<std::string>& words);

}  // namespace splitnic::tools
