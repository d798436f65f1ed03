#pragma once

#include <CLI/CLI.hpp>

namespace splitnic::tools {

/// The whole program that makes the manual pages and the completion of the program whose command line `app` defines;
/// returns its exit code. argv: "page TEMPLATE DATE", or "completion".
int print_documents(const CLI::App& app, int argc, const char* const* argv);

}  // namespace splitnic::tools
