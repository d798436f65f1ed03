#pragma once

#include <sys/types.h>

#include <string>

#include "common/result.h"

namespace splitnic::os {

/// The number of a user of this machine: text is a name, or a number that needs no such user. Errors: "no user named
/// X". Blocks while the system looks the name up. Any thread.
Result<uid_t> find_user(const std::string& text);
/// Likewise of a group.
Result<gid_t> find_group(const std::string& text);

/// The name of a user; the number, where it has none.
std::string user_name(uid_t user);

}  // namespace splitnic::os
