#pragma once

#include <filesystem>
#include <string>

namespace splitnic::bench {

/// The path of a program of this build or installation: beside this program, or where a package has the tests'
/// programs. Where it is in neither, the path beside this program.
std::filesystem::path find_program(const std::string& name);

}  // namespace splitnic::bench
