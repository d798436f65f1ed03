#pragma once

#include <sys/types.h>

#include <string>

#include "common/result.h"

namespace splitnic::os {

/// The number of a user of this machine. text is a name, or a number; a number needs no such user. Errors: "no user
/// named X". Blocks while the system looks the name up. Any thread.
Result<uid_t> find_user(const std::string& text);
/// The same for a group.
Result<gid_t> find_group(const std::string& text);

/// The name of a user, or the number if the user has no name.
std::string user_name(uid_t user);

}  // namespace splitnic::os
