#include "fabric/rdmacm/stream_flow.h"

#include <algorithm>
#include <cstring>

namespace splitnic::rdmacm {

std::size_t SendCredits::room() const {
  if (sent_messages_ - consumed_messages_ + kReserved >= messages_) return 0;
  const auto free = ring_bytes_ - static_cast<std::size_t>(sent_bytes_ - consumed_bytes_);
  return std::min(free, ring_bytes_ - place());
}

void SendCredits::sent_bytes(std::size_t bytes) {
  sent_bytes_ += bytes;
  ++sent_messages_;
}

bool SendCredits::consumed(std::uint64_t bytes, std::uint64_t messages) {
  const bool possible =
      bytes >= consumed_bytes_ && bytes <= sent_bytes_ && messages >= consumed_messages_ && messages <= sent_messages_;
  if (!possible) return false;
  consumed_bytes_ = bytes;
  consumed_messages_ = messages;
  return true;
}

bool ReceiveRing::arrived(std::uint64_t bytes) {
  const auto place = static_cast<std::size_t>(arrived_ % ring_.size());
  if (bytes > ring_.size() - waiting() || bytes > ring_.size() - place) return false;
  arrived_ += bytes;
  return true;
}

std::size_t ReceiveRing::copy_to(std::span<std::byte> to, std::size_t skipped) const {
  const std::size_t bytes = std::min(to.size(), waiting() - std::min(skipped, waiting()));
  const auto place = static_cast<std::size_t>((consumed_ + skipped) % std::max<std::size_t>(ring_.size(), 1));
  const std::size_t first = std::min(bytes, ring_.size() - place);
  if (first != 0) std::memcpy(to.data(), ring_.data() + place, first);
  if (bytes != first) std::memcpy(to.data() + first, ring_.data(), bytes - first);
  return bytes;
}

bool ReceiveRing::credits_due() const {
  return consumed_ - told_consumed_ >= ring_.size() / 4 || posted_ - told_posted_ >= messages_ / 2;
}

void ReceiveRing::told() {
  told_consumed_ = consumed_;
  told_posted_ = posted_;
}

}  // namespace splitnic::rdmacm
