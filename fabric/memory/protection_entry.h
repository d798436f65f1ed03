#pragma once

#include <cstdint>

#include "fabric/ids.h"
#include "fabric/memory/region.h"
#include "fabric/memory/rights.h"
#include "fabric/memory/touch.h"

namespace splitnic::fabric {

/// S3's entry type; the verbs have two types of windows.
enum class EntryKind : std::uint8_t {
  reserved,  ///< index 0, so that a zero tag never names memory, and every index without a tag
  region,
  window_type_1,  ///< usable by the domain's queue pairs; each binding takes the next instance
  window_type_2,  ///< bound to one queue pair; the consumer chooses the instance
  iscsi,          ///< zero-based; the base field says which send request it belongs to
};
constexpr bool is_region(EntryKind kind) { return kind == EntryKind::region; }
constexpr bool is_window(EntryKind kind) {
  return kind == EntryKind::window_type_1 || kind == EntryKind::window_type_2;
}

/// Which entries remote and local accesses of a protection domain may use.
enum class DomainRules : std::uint8_t {
  verbs,   ///< peers use regions and windows by their rights
  strict,  ///< S3: regions are local, windows are remote
};

/// An entry of the protection table: one cache line. Source: S3 Fig. 13.
struct alignas(64) ProtectionEntry {
  std::uint64_t base = 0;  ///< the address that peers use for byte 0: opaque or chosen, not one of this process
  std::uint64_t length = 0;
  RegionMemory memory{};     ///< a window has none of its own: it refers to its region's
  std::uint64_t offset = 0;  ///< of byte 0 in the memory
  ProtectionDomain domain{};
  QpNumber queue_pair{};       ///< the only queue pair that may use the entry; 0: any of the domain
  QpNumber taker{};            ///< the queue pair whose operation took a one-shot entry
  std::uint32_t sequence = 0;  ///< touched entry: S3's stored sequence number; taken one-shot entry: the taker's packet
  std::uint32_t bound = 0;     ///< region: number of windows bound to it; bound window: its region's index
  /// Changes with everything that decides a check: with registering, binding, invalidating and forgetting. What was
  /// granted and remembered holds for as long as it is the same.
  std::uint32_t generation = 0;
  Rights rights{};
  EntryKind kind = EntryKind::reserved;
  std::uint8_t instance = 0;
  TouchControl touch = TouchControl::unlimited;
  bool valid : 1 = false;  ///< false with an allocated tag: a window that is not bound, a region that is not registered
  bool strict : 1 = false;
  bool placeable : 1 = false;      ///< peers may store through their peer window; such stores pass no check here
  bool invalidatable : 1 = false;  ///< by a peer's message
  bool fast : 1 = false;           ///< a region for registration through the send queue
  bool touched : 1 = false;
  bool by_answer : 1 = false;  ///< taken one-shot entry: by the answer to an own request, not by the peer's request
  bool named_by_base : 1 = false;
};

static_assert(sizeof(ProtectionEntry) == 64);

}  // namespace splitnic::fabric
