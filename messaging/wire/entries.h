#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>

#include "common/check.h"
#include "common/frame/frame_offload.h"
#include "common/strong_id.h"
#include "messaging/wire/layout.h"

namespace splitnic::messaging::wire {

/// The number of a buffer pool, below 2^31. Its owner chooses it and does not reuse it within an epoch.
using PoolNumber = StrongId<struct PoolNumberTag, std::uint32_t>;

/// The smallest Ethernet frame: the two addresses and the type.
inline constexpr std::uint32_t kMinFrameBytes = 14;
/// Element bytes are a multiple of this (a cache line).
inline constexpr std::uint32_t kElementGrain = 64;
/// The largest frame: 65535 bytes of payload, 14 of header, two VLAN tags of 4, a virtio-net header of 10; rounded up
/// to the grain of elements.
inline constexpr std::uint32_t kMaxFrameBytes = 65'600;
static_assert(kMaxFrameBytes % kElementGrain == 0);
/// The virtio-net header in front of each frame, where the hello agreed on offloads.
inline constexpr std::uint32_t kOffloadHeaderBytes = sizeof(frame::VirtioNetHeader);
/// The longest super-frame, without that header.
inline constexpr std::uint32_t kMaxSuperFrameBytes = kMaxFrameBytes - kOffloadHeaderBytes;

/// A pool that its owner opens to the peer's RDMA writes: `elements` contiguous buffers of `element_bytes` each,
/// starting at `address`, in the region that `memory_handle` (its tag) names. S1 IV.B.1, BufferRecvPool.
struct PoolAdvertisement {
  using Wire = PoolEntry;
  PoolNumber pool{};
  std::uint32_t elements = 0;
  std::uint32_t element_bytes = 0;
  std::uint32_t memory_handle = 0;
  std::uint64_t address = 0;
  std::uint64_t context = 0;
  friend bool operator==(const PoolAdvertisement&, const PoolAdvertisement&) = default;

  static PoolAdvertisement from(const Wire& entry) {
    return {.pool = PoolNumber{entry.pool.value()},
            .elements = entry.elements.value(),
            .element_bytes = entry.element_bytes.value(),
            .memory_handle = entry.memory_handle.value(),
            .address = entry.address.value(),
            .context = entry.context.value()};
  }
  [[nodiscard]] Wire to_wire() const {
    return {little_uint32_buf_t(pool.value),    little_uint32_buf_t(elements), little_uint32_buf_t(element_bytes),
            little_uint32_buf_t(memory_handle), little_uint64_buf_t(address),  little_uint64_buf_t(context)};
  }
};

/// Elements first .. first + elements - 1 of a pool, which its owner returns to the peer. BufferRecvPoolUpdate.
struct ElementRun {
  using Wire = UpdateEntry;
  PoolNumber pool{};
  std::uint32_t first = 0;
  std::uint32_t elements = 0;
  friend bool operator==(const ElementRun&, const ElementRun&) = default;

  static ElementRun from(const Wire& entry) {
    return {.pool = PoolNumber{entry.pool.value()}, .first = entry.first.value(), .elements = entry.elements.value()};
  }
  [[nodiscard]] Wire to_wire() const {
    return {little_uint32_buf_t(pool.value), little_uint32_buf_t(first), little_uint32_buf_t(elements)};
  }
};

/// The place of a frame that an RDMA write delivered: `length` bytes from the start of the element. Sent in
/// BufferRDMAIndicate, or in the immediate data of the write (immediate.h).
struct Indication {
  using Wire = IndicateEntry;
  PoolNumber pool{};
  std::uint32_t element = 0;
  std::uint32_t length = 0;
  friend constexpr bool operator==(const Indication&, const Indication&) = default;

  static Indication from(const Wire& entry) {
    return {.pool = PoolNumber{entry.pool.value()}, .element = entry.element.value(), .length = entry.length.value()};
  }
  [[nodiscard]] Wire to_wire() const {
    return {little_uint32_buf_t(pool.value), little_uint32_buf_t(element), little_uint32_buf_t(length)};
  }
};

/// True if the indication lies inside a pool of this shape and its length is possible for a frame. The pool's owner
/// checks this first.
constexpr bool fits_pool(const Indication& indication, std::uint32_t elements, std::uint32_t element_bytes) {
  return indication.element < elements && indication.length >= kMinFrameBytes && indication.length <= element_bytes;
}

/// A pool whose use ends: the receiver's own, or the sender's. BufferPoolFlushRequest.
struct FlushedPool {
  using Wire = FlushEntry;
  PoolNumber pool{};
  bool receivers_pool = false;
  friend bool operator==(const FlushedPool&, const FlushedPool&) = default;

  static FlushedPool from(const Wire& entry) {
    const std::uint32_t word = entry.pool.value();
    return {.pool = PoolNumber{word & ~kReceiversPoolBit}, .receivers_pool = (word & kReceiversPoolBit) != 0};
  }
  [[nodiscard]] Wire to_wire() const {
    return {little_uint32_buf_t(pool.value | (receivers_pool ? kReceiversPoolBit : 0U))};
  }
};

/// The entries of a list message, read in place: each access makes a value. Refers to the bytes that decode() was
/// given, whole entries that it has checked; valid as long as those bytes are.
template <class Value>
class ListView {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Value;
    using pointer = const Value*;
    using reference = Value;

    Iterator() = default;
    explicit Iterator(const std::byte* at) : at_(at) {}
    Value operator*() const { return load(at_); }
    Iterator& operator++() {
      at_ += sizeof(typename Value::Wire);
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const std::byte* at_ = nullptr;
  };

  ListView() = default;
  explicit ListView(std::span<const std::byte> entries) : bytes_(entries) {}

  [[nodiscard]] std::size_t size() const { return bytes_.size() / sizeof(typename Value::Wire); }
  [[nodiscard]] Value operator[](std::size_t index) const {
    SPLITNIC_CHECK_OP(index, <, size());
    return load(bytes_.data() + index * sizeof(typename Value::Wire));
  }
  [[nodiscard]] Iterator begin() const { return Iterator(bytes_.data()); }
  [[nodiscard]] Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

 private:
  static Value load(const std::byte* at) {
    typename Value::Wire entry;
    std::memcpy(&entry, at, sizeof(entry));
    return Value::from(entry);
  }

  std::span<const std::byte> bytes_;
};

}  // namespace splitnic::messaging::wire
