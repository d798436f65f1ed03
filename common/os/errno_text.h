#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace splitnic::os {

/// "Permission denied" for EACCES, and so on.
inline std::string errno_text(int error = errno) { return std::generic_category().message(error); }

}  // namespace splitnic::os
