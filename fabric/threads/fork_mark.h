#pragma once

#include <cstddef>
#include <cstdint>

#include "common/result.h"

namespace splitnic::fabric {

/// Tells a process from its forks, at the cost of one load: a page that the kernel gives to a child zeroed. Thread:
/// any.
class ForkMark {
 public:
  /// Errors: no memory; a kernel without MADV_WIPEONFORK (before Linux 4.14).
  [[nodiscard]] static Result<ForkMark> make();
  ~ForkMark();
  ForkMark(ForkMark&& other) noexcept;
  ForkMark& operator=(ForkMark&&) = delete;
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  /// This is not the process that made the mark.
  [[nodiscard]] bool forked() const { return *mark_ == 0; }

 private:
  ForkMark(std::uint64_t* mark, std::size_t bytes) : mark_(mark), bytes_(bytes) {}

  std::uint64_t* mark_;
  std::size_t bytes_;
};

}  // namespace splitnic::fabric
