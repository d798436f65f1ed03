#include "tools/main_program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>

#include "common/os/errno_text.h"
#include "common/os/printable.h"
#include "common/result.h"

namespace splitnic::tools {
namespace {

/// A file that is opened later must not get the number of a closed standard stream: log lines would go into it.
void open_missing_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // Gets this number, the lowest that is free.
    if (::open("/dev/null", O_RDWR) < 0) throw StartupError{fmt::format("/dev/null: {}", os::errno_text())};
  }
}

/// Throws StartupError if not all of the output could be written.
void finish_output() {
  errno = EIO;  // if only an earlier write has failed
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw StartupError{fmt::format("writing the output: {}", os::errno_text())};
}

}  // namespace

void print_error(const char* program, const std::string& message) {
  std::fprintf(stderr, "%s: %s\n", program, os::printable(message).c_str());
}

int run_main_program(const char* program, const std::function<int()>& run) {
  try {
    open_missing_streams();
    const int code = run();
    finish_output();
    return code;
  } catch (const UsageError& error) {
    print_error(program, error.message);
    return 2;
  } catch (const StartupError& error) {
    print_error(program, error.message);
    return 1;
  } catch (const std::exception& error) {
    print_error(program, error.what());
    return 1;
  }
}

}  // namespace splitnic::tools
