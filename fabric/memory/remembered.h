#pragma once

#include <cstdint>
#include <optional>

#include "common/range.h"
#include "fabric/memory/protection_table.h"

namespace splitnic::fabric {

/// What a check granted, remembered by the generation of its entry: nothing that decided the check has changed while
/// the generation is the same. That holds for a window too, because a region with windows keeps its memory and stays
/// valid. Source: design, "Check once".
class RememberedEntry {
 public:
  RememberedEntry() = default;
  explicit RememberedEntry(const ProtectionEntry& entry) : entry_(&entry), generation_(entry.generation) {}

  /// The entry, if something is remembered and still holds; else null.
  [[nodiscard]] const ProtectionEntry* current() const {
    return entry_ != nullptr && entry_->generation == generation_ ? entry_ : nullptr;
  }

 private:
  const ProtectionEntry* entry_ = nullptr;  // entries do not move
  std::uint32_t generation_ = 0;
};

/// The memory that a peer's writes through one queue pair were for last, likewise. Thread: the adapter's owner.
class RememberedTarget {
 public:
  /// The entry, if a check of this range would grant the same; else null.
  [[nodiscard]] const ProtectionEntry* find(Stag tag, const ByteRange& range) const {
    const ProtectionEntry* entry = remembered_.current();
    const bool inside = entry != nullptr && tag == tag_ && ByteRange{first_, entry->length}.contains(range);
    return inside ? entry : nullptr;
  }
  /// Of a range that find() has found, or that was remembered since: where its first byte is, if the memory is one
  /// piece of the process's. Null: it is not. For guarded_copy() alone.
  [[nodiscard]] std::byte* place(std::uint64_t address) const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a region may be the whole address space, which begins with null
    return in_piece_ ? reinterpret_cast<std::byte*>(piece_ + static_cast<std::uintptr_t>(address - first_)) : nullptr;
  }
  /// granted: for the write to this address, of an entry without touch control.
  void remember(Stag tag, std::uint64_t address, const Placement& granted) {
    remembered_ = RememberedEntry(*granted.entry);
    tag_ = tag;
    first_ = address - (granted.offset - granted.entry->offset);
    in_piece_ = granted.memory->is_piece();
    piece_ = reinterpret_cast<std::uintptr_t>(granted.memory->piece_at(granted.entry->offset));
  }

 private:
  RememberedEntry remembered_;
  Stag tag_{};
  bool in_piece_ = false;
  std::uint64_t first_ = 0;   // as peers address the entry's first byte
  std::uintptr_t piece_ = 0;  // where that byte is
};

/// The region that a user, one queue pair or shared receive queue, has used last, so that its next use needs no look
/// into the table. Thread: the adapter's owner.
class RememberedRegion {
 public:
  /// The same placement as a check of this access would give; nullopt: ask the table. address: as the segment names it.
  [[nodiscard]] std::optional<Placement> find(Stag tag, std::uint64_t address, std::uint64_t bytes, Right right) const {
    const ProtectionEntry* entry = remembered_.current();
    if (entry == nullptr || tag != tag_) return std::nullopt;
    const std::uint64_t at = address - first_;
    const bool inside = at <= entry->length && bytes <= entry->length - at;
    if (!inside || !entry->rights.has(right)) return std::nullopt;
    return Placement{entry, &entry->memory, at};
  }
  /// find(), where the memory is one piece of the process's: its byte at that address. Null: ask find(). For
  /// guarded_copy() alone.
  [[nodiscard]] std::byte* place(Stag tag, std::uint64_t address, std::uint64_t bytes, Right right) const {
    const std::uint64_t at = address - first_;
    const bool granted = tag == tag_ && remembered_.current() != nullptr && at <= bytes_in_piece_ &&
                         bytes <= bytes_in_piece_ - at && rights_.has(right);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a region may be the whole address space, which begins with null
    return granted ? reinterpret_cast<std::byte*>(piece_ + static_cast<std::uintptr_t>(at)) : nullptr;
  }
  /// Of memory that place() has found: whether an answer to an own read goes there as any local access does, because
  /// the region is no strict domain's, and does not count how often it is touched.
  [[nodiscard]] bool takes_answers() const { return takes_answers_; }
  /// granted: for the access at this address, of a region.
  void remember(Stag tag, std::uint64_t address, const Placement& granted) {
    const ProtectionEntry& entry = *granted.entry;
    remembered_ = RememberedEntry(entry);
    tag_ = tag;
    first_ = address - granted.offset;
    rights_ = entry.rights;
    takes_answers_ = !entry.strict && entry.touch == TouchControl::unlimited;
    piece_ = reinterpret_cast<std::uintptr_t>(entry.memory.piece_at(0));
    bytes_in_piece_ = entry.memory.is_piece() ? entry.length : 0;
  }

 private:
  RememberedEntry remembered_;
  Stag tag_{};
  Rights rights_{};
  bool takes_answers_ = false;
  std::uint64_t first_ = 0;  // the address of the region's first byte
  std::uintptr_t piece_ = 0;
  std::uint64_t bytes_in_piece_ = 0;  // 0: it is not one piece
};

}  // namespace splitnic::fabric
