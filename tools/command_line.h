#pragma once

#include "tools/commands.h"

namespace CLI {
class App;
}

namespace splitnic::tools {

/// What the command line asked for, one value per command.
struct CommandLine {
  HostCommand host;
  UnitCommand unit;
  StatusCommand status;
  StatusCommand stats{.controls = {}, .json = false, .counters = true};
  BenchNicCommand bench_nic;
  BenchFabricCommand bench_fabric;
};

/// Gives app every command and option of `splitnic`. Parsing writes into asked, which is lent to app. The program
/// parses with it; the generator of the manual pages and of the completion reads it, so that neither has texts of its
/// own.
void define_command_line(CLI::App& app, CommandLine& asked);

}  // namespace splitnic::tools
