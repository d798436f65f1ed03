#pragma once

#include <string_view>

namespace splitnic {

/// Whether this build plants the bug `name`: false in every build but those of tools/check.sh --mutants, which show
/// that the tests notice when a rule is left out. Costs nothing: a constant.
#ifdef SPLITNIC_MUTANT
constexpr bool planted(std::string_view name) { return name == SPLITNIC_MUTANT; }
#else
constexpr bool planted(std::string_view) { return false; }
#endif

}  // namespace splitnic
