#include "fabric/memory/protection_table.h"

#include "common/planted.h"

namespace splitnic::fabric {
namespace {

// A drawn base leaves room for any length below 2^63 and keeps the alignment of addresses within the region: it is a
// multiple of 4 KiB in the lower half of the address space.
std::uint64_t draw_base(RandomSource& random) {
  constexpr std::uint64_t kMask = 0x7fff'ffff'ffff'f000;
  for (;;) {
    if (const std::uint64_t base = random.next() & kMask; base != 0) return base;
  }
}

}  // namespace

ProtectionTable::ProtectionTable(std::size_t capacity, RandomSource& random)
    : random_(random), tags_(capacity, random), entries_(tags_.slots()) {
  entries_[0].valid = true;
  entries_[0].kind = EntryKind::reserved;
}

std::optional<Stag> ProtectionTable::insert(ProtectionDomain domain, const RegionMemory& memory, Rights rights,
                                            bool placeable) {
  const auto tag = tags_.allocate();
  if (!tag) return std::nullopt;
  ProtectionEntry& entry = entries_[tag->index()];
  CHECK(!entry.valid);
  entry.valid = true;
  entry.kind = EntryKind::region;
  entry.instance = tag->instance();
  entry.domain = domain;
  entry.base = draw_base(random_);
  entry.length = memory.size();
  entry.rights = rights;
  entry.placeable = placeable;
  entry.memory = memory;
  return tag;
}

void ProtectionTable::forget(std::uint32_t index) {
  tags_.release(Stag::from(index, entries_[index].instance));
  entries_[index] = ProtectionEntry{};
}

bool ProtectionTable::remove(Stag tag) {
  if (find(tag) == nullptr) return false;
  forget(tag.index());
  return true;
}

void ProtectionTable::clear() {
  for (std::uint32_t index = 1; index < entries_.size(); ++index) {
    if (entries_[index].valid) forget(index);
  }
}

const ProtectionEntry* ProtectionTable::find(Stag tag) const {
  if (tag.index() >= entries_.size()) return nullptr;
  const ProtectionEntry& entry = entries_[tag.index()];
  const bool named = entry.valid && entry.kind == EntryKind::region && entry.instance == tag.instance();
  return named ? &entry : nullptr;
}

// S3's order: valid, kind, domain, instance. (The binding to one queue pair comes next, for entries that have one.)
tl::expected<const ProtectionEntry*, ProtectionError> ProtectionTable::identify(const Access& access) const {
  if (access.tag.index() >= entries_.size()) return tl::unexpected(ProtectionError::invalid_stag);
  const ProtectionEntry& entry = entries_[access.tag.index()];
  if (!entry.valid) return tl::unexpected(ProtectionError::invalid_stag);
  if (entry.kind != EntryKind::region) return tl::unexpected(ProtectionError::wrong_kind);
  if (entry.domain != access.domain) return tl::unexpected(ProtectionError::stag_not_associated);
  if (entry.instance != access.tag.instance() && !planted("stale_tag_accepted"))
    return tl::unexpected(ProtectionError::stale_stag);
  return &entry;
}

tl::expected<Placement, ProtectionError> ProtectionTable::check_remote(const Access& access,
                                                                       std::uint64_t address) const {
  const auto entry = identify(access);
  if (!entry) return tl::unexpected(entry.error());
  if (access.bytes != 0 && access.bytes - 1 > ~address) return tl::unexpected(ProtectionError::to_wrap);
  const std::uint64_t offset = address - (*entry)->base;
  const bool inside =
      address >= (*entry)->base && offset <= (*entry)->length && access.bytes <= (*entry)->length - offset;
  if (!inside && !planted("no_bounds_check")) return tl::unexpected(ProtectionError::base_or_bounds_violation);
  if (!(*entry)->rights.has(access.right)) return tl::unexpected(ProtectionError::access_rights_violation);
  return Placement{*entry, offset};
}

tl::expected<Placement, ProtectionError> ProtectionTable::check_local(const Access& access,
                                                                      const std::byte* address) const {
  const auto entry = identify(access);
  if (!entry) return tl::unexpected(entry.error());
  const RegionMemory& memory = (*entry)->memory;
  if (!memory.holds(address, static_cast<std::size_t>(access.bytes))) {
    return tl::unexpected(ProtectionError::base_or_bounds_violation);
  }
  if (!(*entry)->rights.has(access.right)) return tl::unexpected(ProtectionError::access_rights_violation);
  return Placement{*entry, memory.offset_of(address)};
}

const char* to_string(ProtectionError error) {
  switch (error) {
    case ProtectionError::invalid_stag:
      return "invalid_stag";
    case ProtectionError::wrong_kind:
      return "wrong_kind";
    case ProtectionError::stag_not_associated:
      return "stag_not_associated";
    case ProtectionError::stale_stag:
      return "stale_stag";
    case ProtectionError::to_wrap:
      return "to_wrap";
    case ProtectionError::base_or_bounds_violation:
      return "base_or_bounds_violation";
    case ProtectionError::access_rights_violation:
      return "access_rights_violation";
  }
  return "?";
}

}  // namespace splitnic::fabric
