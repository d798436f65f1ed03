#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tl/expected.hpp>
#include <vector>

#include "fabric/memory/region.h"
#include "fabric/memory/tag_space.h"

namespace splitnic::fabric {

/// Why the table refused, in the order of the checks: the first that fails is told. Names after RFC 5040 section 8.1
/// and RFC 5041 section 7.1; S3 adds kind and instance.
enum class ProtectionError : std::uint8_t {
  invalid_stag,         ///< no such index, or no valid entry there
  wrong_kind,           ///< not an entry for this use
  stag_not_associated,  ///< another protection domain's
  stale_stag,           ///< the index lives on, this instance of it does not
  to_wrap,              ///< address + bytes goes beyond 2^64
  base_or_bounds_violation,
  access_rights_violation,
};
const char* to_string(ProtectionError error);

/// What somebody wants to do with memory.
struct Access {
  Stag tag{};
  ProtectionDomain domain{};  ///< of the queue pair that asks
  std::uint64_t bytes = 0;
  Right right = Right::remote_write;
};

/// Where a checked access leads.
struct Placement {
  const ProtectionEntry* entry = nullptr;  ///< until the table changes
  std::uint64_t offset = 0;                ///< of the first byte, in entry->memory
};

/// The owner's authoritative table of what its tags allow (TPT). Entries stay where they are; looking one up is one
/// index. Thread: the adapter's owner. Source: S3 Figs. 13, 15, 18; design, "Protection".
class ProtectionTable {
 public:
  ProtectionTable(std::size_t capacity, RandomSource& random);

  /// Takes the memory in under a new tag; a base address is drawn. nullopt: the table is full.
  [[nodiscard]] std::optional<Stag> insert(ProtectionDomain domain, const RegionMemory& memory, Rights rights,
                                           bool placeable);
  /// False if the tag names nothing.
  bool remove(Stag tag);
  /// Forgets every entry.
  void clear();
  /// The live entry of exactly this tag, or null.
  [[nodiscard]] const ProtectionEntry* find(Stag tag) const;

  /// A peer's access to [address, address + access.bytes).
  [[nodiscard]] tl::expected<Placement, ProtectionError> check_remote(const Access& access,
                                                                      std::uint64_t address) const;
  /// The own process's access to [address, address + access.bytes).
  [[nodiscard]] tl::expected<Placement, ProtectionError> check_local(const Access& access,
                                                                     const std::byte* address) const;

 private:
  [[nodiscard]] tl::expected<const ProtectionEntry*, ProtectionError> identify(const Access& access) const;
  void forget(std::uint32_t index);

  RandomSource& random_;
  TagSpace tags_;
  std::vector<ProtectionEntry> entries_;
};

}  // namespace splitnic::fabric
