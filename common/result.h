#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace splitnic {

/// Why an operation failed that people or their environment can make fail: one sentence for a log line. Per-packet
/// paths return small status enums of their layer instead; bugs of ours end in SPLITNIC_CHECK.
struct Error {
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{fmt::format(format, std::forward<Args>(args)...)});
}

/// An unusable environment at start: thrown once, caught in main, printed as one line, exit code 1.
struct StartupError {
  std::string message;
};

/// A wrong command line or configuration: as above, exit code 2.
struct UsageError {
  std::string message;
};

}  // namespace splitnic
