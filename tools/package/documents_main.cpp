#include "tools/command_line.h"
#include "tools/package/documents.h"

int main(int argc, char** argv) {
  splitnic::tools::CommandLine asked;
  CLI::App app;
  splitnic::tools::define_command_line(app, asked);
  return splitnic::tools::print_documents(app, argc, argv);
}
