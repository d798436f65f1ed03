#pragma once

#include <string>
#include <string_view>

namespace splitnic::os {

/// A safe form of the text for a log line, a terminal or JSON: control characters and bytes that are not valid UTF-8
/// become '?'. For names and texts that came from peers.
std::string printable(std::string_view text);

}  // namespace splitnic::os
