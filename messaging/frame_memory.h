#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "common/check.h"

namespace splitnic::messaging {

/// Memory for one frame to the peer. Write-only: it may be the peer's. Empty: there is none now.
struct FrameMemory {
  std::span<std::byte> bytes{};  ///< for the frame, or for its first part
  std::span<std::byte> rest{};   ///< continues `bytes` where the frame goes round the end of a ring of elements

  [[nodiscard]] std::size_t size() const { return bytes.size() + rest.size(); }
  [[nodiscard]] bool empty() const { return bytes.empty() && rest.empty(); }
  /// The first bytes of it, at most size(), and what follows them.
  [[nodiscard]] FrameMemory first(std::size_t count) const {
    const std::size_t here = std::min(count, bytes.size());
    return {bytes.first(here), rest.first(count - here)};
  }
  [[nodiscard]] FrameMemory behind(std::size_t count) const {
    const std::size_t here = std::min(count, bytes.size());
    return {bytes.subspan(here), rest.subspan(count - here)};
  }
  /// at + from.size() <= size().
  void write(std::size_t at, std::span<const std::byte> from) const {
    SPLITNIC_CHECK_OP(at + from.size(), <=, size());
    const FrameMemory to = behind(at).first(from.size());
    if (!to.bytes.empty()) std::memcpy(to.bytes.data(), from.data(), to.bytes.size());
    if (!to.rest.empty()) std::memcpy(to.rest.data(), from.data() + to.bytes.size(), to.rest.size());
  }
};

}  // namespace splitnic::messaging
