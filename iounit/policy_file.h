#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "iounit/ownership.h"
#include "iounit/policy_rules.h"

namespace splitnic::iounit {

/// How the names of users and groups in a policy become numbers.
struct AccountLookup {
  std::function<Result<uid_t>(const std::string&)> user;
  std::function<Result<gid_t>(const std::string&)> group;
};
/// Asks the system (os::find_user, os::find_group), which may block.
AccountLookup system_accounts();

/// Reads a policy in TOML: the table [policy] and one table [[host]] for each host (docs/security.md lists the keys). A
/// host has the rights of [policy] except where its own table says otherwise. base: the rules where the file says
/// nothing. Errors: "FILE:LINE: ...", "FILE: ...".
Result<PolicyRules> read_policy(const std::string& path, const PolicyRules& base = {},
                                const AccountLookup& accounts = system_accounts());
/// The same for a text; path appears in messages.
Result<PolicyRules> parse_policy(std::string_view text, const std::string& path, const PolicyRules& base = {},
                                 const AccountLookup& accounts = system_accounts());
/// The rules in the form that parse_policy() reads.
std::string to_toml(const PolicyRules& rules);

/// The file in which the unit keeps the names across restarts: one table [[name]] for each.
std::string to_toml(const std::vector<OwnedName>& names);
/// Errors: as above.
Result<std::vector<OwnedName>> parse_names(std::string_view text, const std::string& path);

}  // namespace splitnic::iounit
