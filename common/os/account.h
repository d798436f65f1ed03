#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "common/result.h"

namespace splitnic::os {

/// The number of a user of this machine. text is a name, or a number; a number needs no such user. Errors: "no user
/// named X". Blocks while the system looks the name up. Any thread.
Result<uid_t> find_user(const std::string& text);
/// The same for a group.
Result<gid_t> find_group(const std::string& text);

/// Looks up names without the system's services, which may need any system call: those that it has seen before, and
/// those in /etc/passwd and /etc/group. Thread: one at a time.
class KnownAccounts {
 public:
  /// As find_user() and find_group(), and remembers the answer.
  Result<uid_t> look_up_user(const std::string& text);
  Result<gid_t> look_up_group(const std::string& text);
  /// Errors: "no user named X in /etc/passwd".
  [[nodiscard]] Result<uid_t> user(const std::string& text) const;
  [[nodiscard]] Result<gid_t> group(const std::string& text) const;

 private:
  std::map<std::string, uid_t> users_;
  std::map<std::string, gid_t> groups_;
};

/// The name of a user, or the number if the user has no name.
std::string user_name(uid_t user);

}  // namespace splitnic::os
