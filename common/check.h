#pragma once

#include <cstdio>
#include <cstdlib>

/// SPLITNIC_CHECK(condition) and SPLITNIC_CHECK_OP(a, <=, b) catch bugs of ours: they print the place and the values,
/// then abort. Never use them for input.
#define SPLITNIC_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::splitnic::check_failed(__FILE__, __LINE__, #condition))

#define SPLITNIC_CHECK_OP(left, op, right)                                                                       \
  do {                                                                                                           \
    const auto check_left = (left);                                                                              \
    const auto check_right = (right);                                                                            \
    if (!(check_left op check_right)) {                                                                          \
      ::splitnic::check_failed(__FILE__, __LINE__, #left " " #op " " #right, static_cast<long long>(check_left), \
                               static_cast<long long>(check_right));                                             \
    }                                                                                                            \
  } while (false)

namespace splitnic {

[[noreturn]] inline void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
  std::abort();
}

[[noreturn]] inline void check_failed(const char* file, int line, const char* what, long long left, long long right) {
  std::fprintf(stderr, "%s:%d: check failed: %s (%lld, %lld)\n", file, line, what, left, right);
  std::abort();
}

}  // namespace splitnic
