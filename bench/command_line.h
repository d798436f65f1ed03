#pragma once

#include <CLI/CLI.hpp>

#include "bench/commands.h"

namespace splitnic::bench {

/// The values of the command line, one per command. The initial values are the defaults.
struct CommandLine {
  NicCommand nic;
  FabricCommand fabric;
  VerbsCommand verbs;
};

/// Adds every command and option of `splitnic-bench` to app. Parsing writes into asked, which is lent to app. The
/// program parses with this app. The generator of the manual page and of the completion reads it, so that neither has
/// texts of its own.
void define_command_line(CLI::App& app, CommandLine& asked);

}  // namespace splitnic::bench
