#include <cstdio>
#include <exception>

#include "bench/commands.h"
#include "common/result.h"

int main(int argc, char** argv) {
  try {
    return splitnic::bench::run_command_line(argc, argv);
  } catch (const splitnic::UsageError& error) {
    std::fprintf(stderr, "splitnic-bench: %s\n", error.message.c_str());
    return 2;
  } catch (const splitnic::StartupError& error) {
    std::fprintf(stderr, "splitnic-bench: %s\n", error.message.c_str());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "splitnic-bench: %s\n", error.what());
    return 1;
  }
}
