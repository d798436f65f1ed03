#pragma once

#include <functional>
#include <string>

namespace splitnic::tools {

/// Prints "PROGRAM: MESSAGE" to standard error: one line, whatever the message repeats of the user's words.
void print_error(const char* program, const std::string& message);

/// main() of `splitnic` and `splitnic-bench`: what run() returns is the exit code, unless something fails. A usage
/// error gives 2; any other error, and output that could not all be written, give 1. It prints each error. Opens those
/// of the standard streams that are closed.
int run_main_program(const char* program, const std::function<int()>& run);

}  // namespace splitnic::tools
