#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>

#include "common/result.h"

namespace splitnic::tools {

/// A user to become, with its primary group.
struct Account {
  uid_t user = 0;
  gid_t group = 0;
};
/// text: a user's name or number. Throws UsageError if there is no such user.
[[nodiscard]] Account find_account(const std::string& text);

/// Gives up every capability but these, of those that the process has, in all sets that it may change, and forbids that
/// a program started later gets more. account: the process becomes this user, without other groups. Threads that exist
/// already keep their capabilities, so call this before there are any. capabilities: CAP_..., of linux/capability.h.
/// Throws StartupError.
void keep_only(std::span<const int> capabilities, const std::optional<Account>& account);

}  // namespace splitnic::tools
