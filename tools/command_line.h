#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
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

/// The words of a command line with the settings of its --config file.
struct ConfiguredWords {
  std::vector<std::string> words;
  /// Where the file sets an option: "FILE:LINE", by the option's name ("--lan"). For a file that is named there:
  /// "FILE:LINE: --policy", by its path.
  std::map<std::string, std::string> places{};
};

/// Adds the settings of the --config file that the words do not contain; those of the command's table override those at
/// the file's top. Unchanged without --config, or if the words
/// are wrong (parsing them reports the error). Throws UsageError, "FILE:LINE: ...", for a file that can't be read and
/// for unknown or impossible settings.
ConfiguredWords with_configuration(const std::vector<std::string>& words);
/// The error of a command whose options are these words: "FILE:LINE: --name ..." if it begins with an option that comes
/// from the file, "FILE:LINE: --policy: PATH: ..." if it begins with such a path.
UsageError with_place(const UsageError& error, const ConfiguredWords& words);

}  // namespace splitnic::tools
