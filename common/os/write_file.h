#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace splitnic::os {

/// Replaces a file, or creates it with mode 0600. A reader, also after a crash of the machine, finds the old text or
/// the new one. Blocks until the disk has the text. Errors: "PATH: No space left on device".
Result<void> write_file(const std::string& path, std::string_view text);

}  // namespace splitnic::os
