#pragma once

#include <cstddef>
#include <string>

#include "common/result.h"

namespace splitnic::os {

/// Reads a whole file, also one of /proc, which reports no size. Errors: "PATH: No such file or directory", larger than
/// max_bytes.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);
/// The same for an open file, from its start; its offset, if it has one, stays. name: in errors.
Result<std::string> read_file(int descriptor, const std::string& name, std::size_t max_bytes);

}  // namespace splitnic::os
