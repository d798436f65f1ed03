#pragma once

#include <filesystem>
#include <string>

namespace splitnic::bench {

/// The path of a program of this build or installation: beside this program, or in the folder where a package puts the
/// tests' programs. If the program is in neither, the path beside this program.
std::filesystem::path find_program(const std::string& name);

/// Whether a folder of PATH has a program of this name that this user may run.
bool is_in_path(const std::string& name);

}  // namespace splitnic::bench
