#pragma once

#include <filesystem>
#include <string>

namespace splitnic::bench {

/// The path of a program of this build or installation: beside this program, or in the folder where a package puts the
/// tests' programs. If the program is in neither, the path beside this program.
std::filesystem::path find_program(const std::string& name);

/// The folder of the peer programs: `named` (--peers), or that of this build or installation if it is empty. Throws
/// UsageError if `named` is no folder that this user may enter.
std::string peers_folder(const std::string& named);

/// Whether a folder of PATH has a program of this name that this user may run.
bool is_in_path(const std::string& name);

}  // namespace splitnic::bench
