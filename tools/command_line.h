#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/commands.h"

namespace splitnic::tools {

/// What the command line asked for, one value per command. The initial values are the defaults.
struct CommandLine {
  HostCommand host;
  UnitCommand unit;
  StatusCommand status;
  StatusCommand stats{.controls = {}, .json = false, .counters = true};
  BenchNicCommand bench_nic;
  BenchFabricCommand bench_fabric;
};

/// Gives app every command and option of `splitnic`, with descriptions, ranges and defaults. Parsing writes into asked,
/// which is lent to app. The program parses with it; the generator of the manual pages and of the completion reads it,
/// so that neither has texts of its own.
void define_command_line(CLI::App& app, CommandLine& asked);

/// What documentation says about one option beside its description.
struct OptionFacts {
  std::string flags;          ///< "--mtu", or "--spin,--sleep" for a flag and its opposite
  std::string value;          ///< "BYTES"; empty for a flag
  std::string allowed;        ///< "68 to 65535", "{r,s}"; empty where any text is
  std::string default_value;  ///< empty where the description names it, or there is none
  bool required = false;
  bool repeatable = false;
};
OptionFacts facts_of(const CLI::Option& option);

/// The words of a command line with the settings of its --config file added: those that the words don't have
/// themselves. Unchanged without --config, or if the words are wrong (parsing them says how).
/// Throws UsageError, "FILE:LINE: ...", for a file that can't be read and for unknown or impossible settings.
std::vector<std::string> with_configuration(const std::vector<std::string>& words);

/// Lets `app` parse the words, the program's name left out. Throws CLI::ParseError.
void parse_words(CLI::App& app, const std::vector<std::string>& words);

}  // namespace splitnic::tools
