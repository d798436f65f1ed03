#pragma once

// Included before everything else where clang compiles (and where clang-tidy reads). Cap'n Proto 0.9 leaves these two
// out under C++20 and counts on the compiler to derive them from StringPtr's members; clang 16 no longer does where
// there is a matching operator!= (P2468), and rejects Cap'n Proto's own headers.
#ifdef __cplusplus
#include <kj/string.h>

namespace kj {
inline bool operator==(const char* a, const StringPtr& b) { return b.operator==(StringPtr(a)); }
inline bool operator!=(const char* a, const StringPtr& b) { return b.operator!=(StringPtr(a)); }
}  // namespace kj
#endif
