#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fabric/adapter/work.h"
#include "fabric/bridge/peer_memory.h"
#include "fabric/ids.h"
#include "messaging/wire/entries.h"

namespace splitnic::messaging {

/// What is wrong with an indication or return from the peer. Each fault ends the session.
enum class PoolFault : std::uint8_t {
  none,
  unknown_pool,
  element_out_of_range,
  element_not_with_peer,  ///< the peer indicated an element that the owner holds
  length_out_of_range,
  element_not_consumed,  ///< the owner returned an element that the user has not consumed
};
const char* to_string(PoolFault fault);

/// Elements of element_bytes that hold a frame of `bytes`. bytes > 0.
constexpr std::uint32_t elements_for(std::uint32_t bytes, std::uint32_t element_bytes) {
  return (bytes - 1) / element_bytes + 1;
}

/// A pool in this end's memory, which the peer fills. The peer holds an element from its advertisement to its
/// indication; then this end holds it until its return. The peer uses elements in ring order, and this end has finished
/// with a frame when the call that delivers it returns. Two counters in private memory are therefore the whole state.
/// Thread: the session's owner. Source: S1 IV.A.2, IV.B.1; design, "Elements are credits".
class OwnedPool {
 public:
  /// number: not used before in this epoch. memory: elements * element_bytes bytes, peer-written. elements >= 1. spans:
  /// a frame may be longer than an element; it then spans the elements that follow in the ring.
  OwnedPool(wire::PoolNumber number, std::uint32_t elements, std::uint32_t element_bytes, fabric::PeerMemory memory,
            fabric::Stag tag, bool immediate, bool spans = false);

  /// The peer reports that it filled `length` bytes from the start of `element` on. Frames for the elements that it
  /// skipped were lost on the way; this end holds those elements again and returns them with the others. lost: the
  /// number of skipped elements. The peer must hold every element that the frame spans.
  [[nodiscard]] PoolFault indicate(std::uint32_t element, std::uint32_t length, std::uint32_t& lost);
  /// The bytes of an indicated frame. rest: what continues at the start of the ring; empty for most frames.
  struct Bytes {
    fabric::PeerMemory first;
    fabric::PeerMemory rest;
  };
  [[nodiscard]] Bytes bytes_of(std::uint32_t element, std::uint32_t length) const;

  /// Elements indicated (or lost) and not yet returned.
  [[nodiscard]] std::uint32_t unreturned() const { return static_cast<std::uint32_t>(indicated_ - returned_); }
  /// The next run to return, which ends at the ring's end at the latest. nullopt: the peer holds every element.
  [[nodiscard]] std::optional<wire::ElementRun> next_return() const;
  /// The same, and gives the run's elements to the peer.
  std::optional<wire::ElementRun> take_return();

  [[nodiscard]] wire::PoolNumber number() const { return number_; }
  [[nodiscard]] std::uint32_t elements() const { return elements_; }
  [[nodiscard]] std::uint32_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] fabric::Stag tag() const { return tag_; }
  [[nodiscard]] bool immediate() const { return immediate_; }

 private:
  wire::PoolNumber number_;
  std::uint32_t elements_;
  std::uint32_t element_bytes_;
  fabric::PeerMemory memory_;
  fabric::Stag tag_;
  bool immediate_;
  bool spans_;
  std::uint64_t indicated_ = 0;  // elements that the peer indicated or skipped since the start
  std::uint64_t returned_ = 0;   // how many of these were returned; the peer holds [indicated_, returned_ + elements_)
};

/// A pool that the peer advertised in its memory. This end uses its elements in ring order. Thread: the session's
/// owner.
class PeerPool {
 public:
  explicit PeerPool(const wire::PoolAdvertisement& advertised);

  /// The next element in the ring, if this end may use it now.
  [[nodiscard]] std::optional<std::uint32_t> next() const;
  /// Whether this end may use the next `count` elements in the ring now. count >= 1.
  [[nodiscard]] bool has(std::uint32_t count);
  /// Marks the next `count` elements as used; has(count).
  void consume(std::uint32_t count = 1);
  /// The owner returns elements. It is a fault to return an element that this end has not consumed.
  [[nodiscard]] PoolFault take_back(std::uint32_t first, std::uint32_t count);

  [[nodiscard]] fabric::RemoteAddress place_of(std::uint32_t element) const;
  /// Bytes from the start of an element to the end of the ring.
  [[nodiscard]] std::uint64_t bytes_from(std::uint32_t element) const {
    return std::uint64_t{elements_ - element} * element_bytes_;
  }
  [[nodiscard]] wire::PoolNumber number() const { return number_; }
  [[nodiscard]] std::uint32_t elements() const { return elements_; }
  [[nodiscard]] std::uint32_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] std::uint32_t available() const { return available_; }
  [[nodiscard]] bool immediate() const { return immediate_; }
  [[nodiscard]] std::uint64_t context() const { return context_; }

 private:
  wire::PoolNumber number_;
  std::uint32_t elements_;
  std::uint32_t element_bytes_;
  fabric::RemoteAddress place_;
  std::uint64_t context_;
  bool immediate_;
  std::uint32_t next_ = 0;
  std::uint32_t run_ = 0;  // so many elements from next_ on are known to be free; there may be more
  std::uint32_t available_;
  std::vector<bool> free_;  // by element
};

}  // namespace splitnic::messaging
