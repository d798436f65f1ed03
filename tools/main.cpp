#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>

#include "common/os/errno_text.h"
#include "common/result.h"
#include "tools/commands.h"

namespace {

/// A file that is opened later must not get the number of a closed standard stream: log lines would go into it.
void open_missing_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // Gets this number, the lowest that is free.
    if (::open("/dev/null", O_RDWR) < 0) {
      throw splitnic::StartupError{fmt::format("/dev/null: {}", splitnic::os::errno_text())};
    }
  }
}

/// Throws StartupError if not all of the output could be written.
void finish_output() {
  errno = EIO;  // if only an earlier write has failed
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw splitnic::StartupError{fmt::format("writing the output: {}", splitnic::os::errno_text())};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    open_missing_streams();
    const int code = splitnic::tools::run_command_line(argc, argv);
    finish_output();
    return code;
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
