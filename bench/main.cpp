#include "bench/commands.h"
#include "tools/main_program.h"

int main(int argc, char** argv) {
  return splitnic::tools::run_main_program("splitnic-bench",
                                           [&] { return splitnic::bench::run_command_line(argc, argv); });
}
