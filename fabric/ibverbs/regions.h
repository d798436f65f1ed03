#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>

#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {

/// A region of the protection domain, whose first byte is named by `base`. access: the flags of ibv_reg_mr(). The
/// caller has checked that the process has the memory. Null: errno says why. May throw std::bad_alloc.
[[nodiscard]] std::unique_ptr<Region> make_region(ibv_pd* pd, std::span<std::byte> memory, std::uint64_t base,
                                                  unsigned access);

}  // namespace splitnic::ibverbs
