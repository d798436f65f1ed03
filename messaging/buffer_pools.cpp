#include "messaging/buffer_pools.h"

#include <algorithm>

#include "common/check.h"
#include "messaging/wire/immediate.h"

namespace splitnic::messaging {

const char* to_string(PoolFault fault) {
  switch (fault) {
    case PoolFault::none:
      return "none";
    case PoolFault::unknown_pool:
      return "unknown pool";
    case PoolFault::element_out_of_range:
      return "element out of range";
    case PoolFault::element_not_with_peer:
      return "indicated an element that is not the peer's";
    case PoolFault::length_out_of_range:
      return "length out of range";
    case PoolFault::element_not_consumed:
      return "returned an element that was not consumed";
  }
  return "?";
}

OwnedPool::OwnedPool(wire::PoolNumber number, std::uint32_t elements, std::uint32_t element_bytes,
                     fabric::PeerMemory memory, fabric::Stag tag, bool immediate, bool spans)
    : number_(number),
      elements_(elements),
      element_bytes_(element_bytes),
      memory_(memory),
      tag_(tag),
      immediate_(immediate),
      spans_(spans) {
  SPLITNIC_CHECK(elements > 0);
  SPLITNIC_CHECK(memory.contains(0, std::uint64_t{elements} * element_bytes));
  memory_.next_message();
}

PoolFault OwnedPool::indicate(std::uint32_t element, std::uint32_t length, std::uint32_t& lost) {
  lost = 0;
  if (element >= elements_) return PoolFault::element_out_of_range;
  const std::uint64_t most = spans_ ? std::uint64_t{elements_} * element_bytes_ : element_bytes_;
  if (length < wire::kMinFrameBytes || length > most) return PoolFault::length_out_of_range;
  const auto expected = static_cast<std::uint32_t>(indicated_ % elements_);
  const std::uint32_t skipped = (element + elements_ - expected) % elements_;
  const std::uint64_t with_peer = returned_ + elements_ - indicated_;
  const std::uint64_t used = std::uint64_t{skipped} + elements_for(length, element_bytes_);
  if (used > with_peer) return PoolFault::element_not_with_peer;
  lost = skipped;
  indicated_ += used;
  return PoolFault::none;
}

OwnedPool::Bytes OwnedPool::bytes_of(std::uint32_t element, std::uint32_t length) const {
  const std::size_t at = std::size_t{element} * element_bytes_;
  const std::size_t before_end = std::size_t{elements_} * element_bytes_ - at;
  const std::size_t first = std::min<std::size_t>(length, before_end);
  return {memory_.slice(at, first), memory_.slice(0, length - first)};
}

std::optional<wire::ElementRun> OwnedPool::next_return() const {
  const std::uint32_t waiting = unreturned();
  if (waiting == 0) return std::nullopt;
  const auto first = static_cast<std::uint32_t>(returned_ % elements_);
  return wire::ElementRun{number_, first, std::min(waiting, elements_ - first)};
}

std::optional<wire::ElementRun> OwnedPool::take_return() {
  const auto run = next_return();
  if (!run) return run;
  returned_ += run->elements;
  memory_.next_message(std::size_t{run->first} * element_bytes_, std::size_t{run->elements} * element_bytes_);
  return run;
}

PeerPool::PeerPool(const wire::PoolAdvertisement& advertised)
    : number_(advertised.pool),
      elements_(advertised.elements),
      element_bytes_(advertised.element_bytes),
      place_{advertised.address, fabric::Stag{advertised.memory_handle}},
      context_(advertised.context),
      immediate_(wire::uses_immediate(advertised.pool, advertised.elements, advertised.element_bytes)),
      available_(advertised.elements),
      free_(advertised.elements, true) {}

std::optional<std::uint32_t> PeerPool::next() const {
  if (!free_[next_]) return std::nullopt;
  return next_;
}

bool PeerPool::has(std::uint32_t count) {
  if (count > available_) return false;
  while (run_ < count && free_[(next_ + run_) % elements_]) ++run_;
  return run_ >= count;
}

void PeerPool::consume(std::uint32_t count) {
  SPLITNIC_CHECK(has(count));
  for (std::uint32_t used = 0; used < count; ++used) {
    free_[next_] = false;
    next_ = next_ + 1 == elements_ ? 0 : next_ + 1;
  }
  available_ -= count;
  run_ -= count;
}

PoolFault PeerPool::take_back(std::uint32_t first, std::uint32_t count) {
  if (first >= elements_ || count == 0 || count > elements_ - first) return PoolFault::element_out_of_range;
  for (std::uint32_t element = first; element < first + count; ++element) {
    if (free_[element]) return PoolFault::element_not_consumed;
    free_[element] = true;
  }
  available_ += count;
  return PoolFault::none;
}

fabric::RemoteAddress PeerPool::place_of(std::uint32_t element) const {
  return {place_.address + std::uint64_t{element} * element_bytes_, place_.tag};
}

}  // namespace splitnic::messaging
