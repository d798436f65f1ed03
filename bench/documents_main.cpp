#include "bench/command_line.h"
#include "tools/package/documents.h"

int main(int argc, char** argv) {
  splitnic::bench::CommandLine asked;
  CLI::App app;
  splitnic::bench::define_command_line(app, asked);
  return splitnic::tools::print_documents(app, argc, argv);
}
