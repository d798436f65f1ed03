#pragma once

#include <string_view>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// A name that one process of a network namespace holds at a time. The kernel ends that when the process ends, in
/// whatever way. Anybody in the namespace may hold any name, so this says what others probably do, and protects
/// nothing.
struct HeldName {
  UniqueFd descriptor{};  ///< holds the name; none: another one holds it, or the kernel allows no such socket
  bool is_anothers = false;
};

/// In the caller's namespace, of the names that the kernel calls abstract. name: 1 to 107 bytes.
[[nodiscard]] HeldName hold_name(std::string_view name);

}  // namespace splitnic::os
