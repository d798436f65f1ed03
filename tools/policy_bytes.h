#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "iounit/policy_rules.h"

namespace splitnic::tools {

/// The rules in the form in which the privileged process sends them to the unit. Both are the same program, so there is
/// no version. The thread that moves frames gets the rules of 10 000 hosts out of it in a few milliseconds; it would
/// read them in TOML for half a second. Any thread.
[[nodiscard]] std::string to_bytes(iounit::PolicyRules rules);
/// Errors: bytes that to_bytes() does not make.
[[nodiscard]] Result<iounit::PolicyRules> rules_in(std::string_view bytes);

}  // namespace splitnic::tools
