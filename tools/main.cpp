#include <cstdio>
#include <exception>

#include "common/result.h"
#include "tools/commands.h"

int main(int argc, char** argv) {
  try {
    return splitnic::tools::run_command_line(argc, argv);
  } catch (const splitnic::UsageError& error) {
    std::fprintf(stderr, "splitnic: %s\n", error.message.c_str());
    return 2;
  } catch (const splitnic::StartupError& error) {
    std::fprintf(stderr, "splitnic: %s\n", error.message.c_str());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "splitnic: %s\n", error.what());
    return 1;
  }
}
