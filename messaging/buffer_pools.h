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

/// Why a peer's indication or return can't be true. Each ends the session.
enum class PoolFault : std::uint8_t {
  none,
  unknown_pool,
  element_out_of_range,
  element_not_with_peer,  ///< indicated, but it belongs to the owner
  length_out_of_range,
  element_not_consumed,  ///< returned, but the user had not used it
};
const char* to_string(PoolFault fault);

/// A pool in this end's memory, filled by the peer. An element belongs to the peer from its advertisement until it is
/// indicated, to this end from then until it is returned. The peer takes elements in ring order and this end is done
/// with a frame when the call that handed it over returns, so two counters are the whole state, and it is private.
/// Thread: the session's owner. Source: S1 IV.A.2, IV.B.1; design, "Elements are credits".
class OwnedPool {
 public:
  /// number: not used before in this epoch. memory: elements * element_bytes, peer-written. elements >= 1.
  OwnedPool(wire::PoolNumber number, std::uint32_t elements, std::uint32_t element_bytes, fabric::PeerMemory memory,
            fabric::Stag tag, bool immediate);

  /// The peer says that it has filled element with length bytes. Elements skipped before it were lost on the way: they
  /// are this end's again, and are returned with the rest. lost: how many.
  [[nodiscard]] PoolFault indicate(std::uint32_t element, std::uint32_t length, std::uint32_t& lost);
  /// The bytes of an indicated element.
  [[nodiscard]] fabric::PeerMemory bytes_of(std::uint32_t element, std::uint32_t length) const;

  /// Elements indicated (or lost) and not yet returned.
  [[nodiscard]] std::uint32_t unreturned() const { return static_cast<std::uint32_t>(indicated_ - returned_); }
  /// The next run to return, at most to the ring's end; nullopt when all are with the peer.
  [[nodiscard]] std::optional<wire::ElementRun> next_return() const;
  /// The same, and from now on its elements are the peer's.
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
  std::uint64_t indicated_ = 0;  // elements the peer has used up since the start, lost ones included
  std::uint64_t returned_ = 0;   // of these, given back; the peer holds [indicated_, returned_ + elements_)
};

/// A pool in the peer's memory, as advertised, used by this end in ring order. Thread: the session's owner.
class PeerPool {
 public:
  explicit PeerPool(const wire::PoolAdvertisement& advertised);

  /// The element that comes next in the ring, if this end may use it now.
  [[nodiscard]] std::optional<std::uint32_t> next() const;
  /// Uses up next().
  void consume();
  /// The owner gives elements back. Anything that this end had not consumed is a fault.
  [[nodiscard]] PoolFault take_back(std::uint32_t first, std::uint32_t count);

  [[nodiscard]] fabric::RemoteAddress place_of(std::uint32_t element) const;
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
  std::uint32_t available_;
  std::vector<bool> free_;  // by element
};

}  // namespace splitnic::messaging
