#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "common/check.h"
#include "fabric/memory/protection_error.h"

namespace splitnic::fabric {

/// Incoming read requests, each at the place that its message sequence number says, answered in sequence. A number
/// beyond the negotiated depth, or used before, ends the stream; transport duplicates have been dropped before. Source:
/// S3 Fig. 18A (steps 1804, 1806); RFC 5041 section 7.1 for the two errors. Thread: the adapter's owner.
template <class Request>
class ReadQueue {
 public:
  /// depth: negotiated, at least 1. first: the first request's number.
  explicit ReadQueue(std::size_t depth, std::uint32_t first = 1) : slots_(depth), oldest_(first) {
    CHECK(depth >= 1 && depth <= std::size_t{1} << 31U);
  }

  /// Errors: unexpected_sequence (answered, or waiting here already), no_read_resource (beyond the depth).
  [[nodiscard]] tl::expected<void, ProtectionError> place(std::uint32_t sequence, Request request) {
    const std::uint32_t ahead = sequence - oldest_;
    if (ahead >= std::uint32_t{1} << 31U) return tl::unexpected(ProtectionError::unexpected_sequence);
    if (ahead >= slots_.size()) return tl::unexpected(ProtectionError::no_read_resource);
    std::optional<Request>& slot = slots_[(front_ + ahead) % slots_.size()];
    if (slot) return tl::unexpected(ProtectionError::unexpected_sequence);
    slot = std::move(request);
    return {};
  }

  /// The next to be answered; null: it has not arrived.
  [[nodiscard]] const Request* front() const { return slots_[front_] ? &*slots_[front_] : nullptr; }
  /// front() has been answered: its place is free.
  void pop() {
    CHECK(slots_[front_].has_value());
    slots_[front_].reset();
    front_ = (front_ + 1) % slots_.size();
    ++oldest_;
  }

 private:
  std::vector<std::optional<Request>> slots_;
  std::size_t front_ = 0;     // slot of the oldest
  std::uint32_t oldest_ = 1;  // its number, there or not
};

}  // namespace splitnic::fabric
