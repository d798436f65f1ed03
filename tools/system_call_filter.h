#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace splitnic::tools {

/// The parts of splitnic that have a filter of their own. A part is a process with all its threads.
enum class FilteredPart {
  host,               ///< `splitnic host`
  unit,               ///< `splitnic iounit` on a packet socket or savefiles
  unit_with_libpcap,  ///< the same with libpcap, which tries some calls that it can do without
  host_rights,        ///< the privileged process of `splitnic host`
  unit_rights,        ///< the privileged process of `splitnic iounit`
};

/// A system call that a part may make, or that fails without an end of the process. A second entry of the same name is
/// an alternative.
struct PermittedCall {
  /// `argument & mask` must equal value.
  struct Condition {
    unsigned argument = 0;
    std::uint64_t mask = 0;
    std::uint64_t value = 0;
  };
  std::string_view name;
  std::vector<Condition> conditions{};
  bool made = true;  ///< false: the call is not made, and the caller gets the error, or 0
  int error = 0;
};

[[nodiscard]] const std::vector<PermittedCall>& permitted_calls(FilteredPart part);
/// How many different system calls of these are made.
[[nodiscard]] std::size_t count_names(const std::vector<PermittedCall>& calls);

/// From now on, a call of any thread of this process that is not permitted ends the process by SIGSYS, after one line
/// on stderr that names the call. Nothing can undo this. Some calls that the C library tries and can do without are not
/// made, but answered: clone3, mremap and set_robust_list as by an old kernel, brk as if there were no room. abort()
/// works as usual. subject: begins the line. Errors: the kernel has no filters.
/// A build with a sanitizer does nothing, because the sanitizers make calls of their own. Source: seccomp(2).
[[nodiscard]] Result<void> close_filter(const std::vector<PermittedCall>& calls, const std::string& subject);
/// Whether close_filter() does anything in this build.
[[nodiscard]] bool filter_is_built_in();

}  // namespace splitnic::tools
