#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "fabric/adapter/work.h"
#include "fabric/ids.h"
#include "fabric/memory/rights.h"

namespace splitnic::fabric {

/// A connected queue pair through which its peer may place bytes.
struct PlacementUser {
  QpNumber number{};
  QpNumber peer{};
  PathNumber path{};
  ProtectionDomain domain{};
  Rights remote_rights{};
};

/// Bytes of a peer's region, asked for by a connected queue pair.
struct PlacementTarget {
  PathNumber path{};
  QpNumber number{};  ///< the own queue pair
  QpNumber peer{};    ///< the one that it is connected to
  RemoteAddress remote{};
  std::uint64_t bytes = 0;
};

/// Ways past the fabric into memory of peers on this machine: an initiator stores into a peer's region, or loads from
/// it, and the peer's processor is not asked. Called from within verbs and polls; must not call the adapter. Thread:
/// the adapter's owner.
class Placements {
 public:
  /// Longer messages go the general way.
  static constexpr std::uint32_t kMostBytes = 16U << 20U;
  /// So many bytes are moved by posts from one poll to the next, and so many by a poll: what is longer is moved in
  /// parts. Nobody answers other peers meanwhile, and memory that is touched for the first time takes the longest.
  static constexpr std::uint32_t kAtOnceBytes = 1U << 20U;

  virtual ~Placements() = default;

  /// The queue pair is connected, or its rights have changed.
  virtual void admit(const PlacementUser& user) = 0;
  /// It is not connected any more. No placement through it begins after this.
  virtual void dismiss(QpNumber number) = 0;
  /// Whether write() and read() may succeed. False: the request goes the general way.
  [[nodiscard]] virtual bool offers(const PlacementTarget& target) = 0;
  /// Stores all of `from`, in ascending order, the last word last. target: of a message, or of a part of one. False:
  /// the message goes the general way; some bytes may have been stored already.
  [[nodiscard]] virtual bool write(const PlacementTarget& target, std::span<const iovec> from) = 0;
  /// Loads all of `to`. False: likewise.
  [[nodiscard]] virtual bool read(const PlacementTarget& target, std::span<const iovec> to) = 0;
};

}  // namespace splitnic::fabric
