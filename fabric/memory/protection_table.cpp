#include "fabric/memory/protection_table.h"

#include "common/range.h"

namespace splitnic::fabric {
namespace {

using Error = ProtectionError;

bool wraps(std::uint64_t address, std::uint64_t bytes) { return bytes != 0 && bytes - 1 > ~address; }

/// Whether another operation has taken the one-shot entry. S4: the translation is disabled for all others.
bool used_up(const ProtectionEntry& entry, const Access& access) {
  if (entry.touch != TouchControl::one_shot || !entry.touched) return false;
  const bool same_side = access.by == (entry.by_answer ? AccessBy::answer : AccessBy::peer);
  return entry.taker != access.queue_pair || entry.sequence != access.sequence || !same_side;
}

/// An iSCSI entry is zero-based; its base field holds something else.
std::uint64_t first_address(const ProtectionEntry& entry) { return entry.kind == EntryKind::iscsi ? 0 : entry.base; }

Right right_of_response(const ProtectionEntry& entry) {
  return entry.strict ? Right::remote_write : Right::local_write;
}

bool is_whole_word(const Access& access, std::uint64_t address, const Placement& placement) {
  return access.bytes == 8 && address % 8 == 0 && placement.memory->can_atomic(placement.offset);
}

}  // namespace

ProtectionTable::ProtectionTable(std::size_t capacity, RandomSource& random, std::uint32_t first_index)
    : random_(random), tags_(capacity, random, first_index), entries_(tags_.slots()) {
  entries_[0].valid = true;
}

const ProtectionEntry* ProtectionTable::find(Stag tag) const {
  if (tags_.slot_of(tag.index()) >= entries_.size()) return nullptr;
  const ProtectionEntry& entry = entry_at(tag.index());
  return entry.kind != EntryKind::reserved && entry.instance == tag.instance() ? &entry : nullptr;
}

const ProtectionEntry* ProtectionTable::at(std::uint32_t index) const {
  if (tags_.slot_of(index) >= entries_.size()) return nullptr;
  const ProtectionEntry& entry = entry_at(index);
  return entry.kind != EntryKind::reserved ? &entry : nullptr;
}

std::optional<std::uint64_t> ProtectionTable::address_of(Stag region, const std::byte* byte) const {
  const ProtectionEntry* entry = find(region);
  if (entry == nullptr || entry->kind != EntryKind::region || !entry->memory.holds(byte, 0)) return std::nullopt;
  return entry->base + entry->memory.offset_of(byte);
}

const RegionMemory& ProtectionTable::memory_of(const ProtectionEntry& entry) const {
  if (!is_window(entry.kind)) return entry.memory;
  const ProtectionEntry& region = entry_at(entry.bound);
  SPLITNIC_CHECK(region.valid && region.kind == EntryKind::region);
  return region.memory;
}

bool ProtectionTable::usable(const ProtectionEntry& entry, Side side) {
  const bool region = entry.kind == EntryKind::region;
  const bool window = is_window(entry.kind);
  switch (side) {
    case Side::local:
      return region;
    case Side::remote:
      return window || (region && !entry.strict);
    case Side::response:
      return entry.strict ? window : region;
    case Side::iscsi:
      return entry.kind == EntryKind::iscsi;
  }
  return false;
}

// S3's order: valid, kind, domain, instance; then the binding to one queue pair, if the entry has one.
auto ProtectionTable::identify(const Access& access, Side side) const -> Checked<const ProtectionEntry*> {
  if (tags_.slot_of(access.tag.index()) >= entries_.size()) return tl::unexpected(Error::invalid_stag);
  const ProtectionEntry& entry = entry_at(access.tag.index());
  if (!entry.valid) return tl::unexpected(Error::invalid_stag);
  if (side != Side::local && used_up(entry, access)) return tl::unexpected(Error::invalid_stag);
  if (!usable(entry, side)) return tl::unexpected(Error::wrong_kind);
  if (entry.domain != access.domain) return tl::unexpected(Error::stag_not_associated);
  if (entry.instance != access.tag.instance()) return tl::unexpected(Error::stale_stag);
  const bool bound = entry.queue_pair.value != 0;
  if (bound && entry.queue_pair != access.queue_pair) return tl::unexpected(Error::wrong_queue_pair);
  return &entry;
}

auto ProtectionTable::range(const ProtectionEntry& entry, const Access& access, std::uint64_t address) const
    -> Checked<void> {
  if (wraps(address, access.bytes)) return tl::unexpected(Error::to_wrap);
  const std::uint64_t first = first_address(entry);
  const bool in_bounds = ByteRange{first, entry.length}.contains({address, access.bytes});
  if (!in_bounds) return tl::unexpected(Error::base_or_bounds_violation);
  return {};
}

auto ProtectionTable::check(const Access& access, Side side, std::uint64_t address) const -> Checked<Placement> {
  const auto identified = identify(access, side);
  if (!identified) return tl::unexpected(identified.error());
  const ProtectionEntry& entry = **identified;
  if (const auto in_range = range(entry, access, address); !in_range) return tl::unexpected(in_range.error());
  const Right right = side == Side::response ? right_of_response(entry) : access.right;
  if (!entry.rights.has(right)) return tl::unexpected(Error::access_rights_violation);
  const Placement placement{&entry, &memory_of(entry), entry.offset + (address - first_address(entry))};
  if (right == Right::remote_atomic && !is_whole_word(access, address, placement)) {
    return tl::unexpected(Error::misaligned_atomic);
  }
  return placement;
}

auto ProtectionTable::check_remote(const Access& access, std::uint64_t address) const -> Checked<Placement> {
  return check(access, Side::remote, address);
}

auto ProtectionTable::check_response(const Access& access, std::uint64_t address) const -> Checked<Placement> {
  return check(access, Side::response, address);
}

auto ProtectionTable::check_iscsi(const Access& access, std::uint64_t offset) const -> Checked<Placement> {
  return check(access, Side::iscsi, offset);
}

auto ProtectionTable::check_local(const Access& access, std::uint64_t address) const -> Checked<Placement> {
  return check(access, Side::local, address);
}

auto ProtectionTable::check_local(const Access& access, const std::byte* address) const -> Checked<Placement> {
  const auto entry = identify(access, Side::local);
  if (!entry) return tl::unexpected(entry.error());
  const RegionMemory& memory = (*entry)->memory;
  if (!memory.holds(address, access.bytes)) return tl::unexpected(Error::base_or_bounds_violation);
  if (!(*entry)->rights.has(access.right)) return tl::unexpected(Error::access_rights_violation);
  return Placement{*entry, &memory, memory.offset_of(address)};
}

TouchAction ProtectionTable::touch(const Access& access, const SegmentPosition& segment) {
  SPLITNIC_CHECK(find(access.tag) != nullptr);
  ProtectionEntry& entry = entry_at(access.tag.index());
  SPLITNIC_CHECK(entry.valid);
  if (entry.touch == TouchControl::one_shot) return take(entry, access, segment.last);
  const bool touches = entry.touch == TouchControl::one_touch && access.right != Right::remote_read;
  const TouchAction action = table_d(touches, entry.touched, segment);
  switch (action) {
    case TouchAction::place_and_remember:
      entry.touched = true;
      entry.sequence = segment.sequence;
      break;
    case TouchAction::place_and_invalidate:
    case TouchAction::invalidate_and_terminate:
      invalidate(entry);
      break;
    case TouchAction::place:
    case TouchAction::drop:
      break;
  }
  return action;
}

TouchAction ProtectionTable::take(ProtectionEntry& entry, const Access& access, bool last) {
  if (last) {
    invalidate(entry);
    return TouchAction::place_and_invalidate;
  }
  entry.touched = true;
  entry.taker = access.queue_pair;
  entry.sequence = access.sequence;
  entry.by_answer = access.by == AccessBy::answer;
  return TouchAction::place;
}

void ProtectionTable::end_taken(Stag tag, QpNumber taker) {
  if (find(tag) == nullptr) return;
  ProtectionEntry& entry = entry_at(tag.index());
  const bool taken = entry.valid && entry.touch == TouchControl::one_shot && entry.touched && entry.taker == taker;
  if (taken) invalidate(entry);
}

bool ProtectionTable::catch_up(Stag tag, std::uint32_t next_expected) {
  if (find(tag) == nullptr) return true;
  ProtectionEntry& entry = entry_at(tag.index());
  if (!entry.valid || entry.touch != TouchControl::one_touch || !entry.touched) return true;
  if (!caught_up(entry.sequence, next_expected)) return false;
  invalidate(entry);
  return true;
}

}  // namespace splitnic::fabric
