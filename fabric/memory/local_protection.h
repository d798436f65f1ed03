#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace splitnic::fabric {

enum class LocalAccess : std::uint8_t { read, write };

/// Says what the process itself may do with its memory, so that no tag is made for memory that the process may not
/// touch. It records the mappings when a queue pair is opened. Later it asks the kernel about the range in question,
/// and record() adds the range; a registration does not read the whole map again.
///
/// An answer is true at that moment only: any thread may unmap or protect the memory later. Accesses to the memory
/// therefore go through guarded_copy(), which the constructor enables.
///
/// Thread: the adapter's owner. No function faults, whatever the range. Source: S4 Fig. 17 (steps 604 to 612; the
/// record is the segment table, refresh() SegmentTableUpdate, accessible() MapLocalPage).
class LocalProtection {
 public:
  /// Records the process's mappings.
  LocalProtection();

  /// Records them again. Reads /proc/self/maps, which takes 0.3 ms per thousand mappings. False: that could not be read
  /// (no descriptor is free, or /proc isn't mounted), and the record stays as it was.
  bool refresh();

  /// Whether the process may access all of [at, at + bytes). No bytes: true, whatever `at` is.
  ///
  /// The kernel answers, page by page, for ranges up to kExactBytesMax, and for ranges up to kFillBytesMax that the
  /// record does not know. For other ranges the record answers, and is refreshed if it says no; then the kernel
  /// confirms the first and last page of each mapping and looks for gaps. So the cost does not grow with the range, and
  /// a huge untouched range is not filled. If a part in the middle of a mapping was protected after it was recorded,
  /// the access finds that. So it does where the map can't be read: then the kernel confirms the first and last page of
  /// a range that is not recorded, and looks for gaps.
  ///
  /// The pages that the kernel checks are faulted in; for LocalAccess::write, copy-on-write pages are copied.
  [[nodiscard]] bool accessible(const void* at, std::size_t bytes, LocalAccess access);

  /// The same from the record alone, without a system call: binding a memory window makes none, because the memory was
  /// recorded when the queue pair was opened or when its region was registered. A yes may be out of date. A no may be
  /// wrong for memory that was mapped since; ask accessible() then.
  [[nodiscard]] bool recorded(const void* at, std::size_t bytes, LocalAccess access) const;

  /// Adds the pages of [at, at + bytes) to the record, after accessible() has said yes to them. What may be written may
  /// be read. The map is read again after kAddedMax additions, so that ranges that are gone do not stay for ever.
  void record(const void* at, std::size_t bytes, LocalAccess access);

  /// Mappings in the record; neighbours with the same rights and no file behind them count as one.
  [[nodiscard]] std::size_t mappings() const { return mappings_.size(); }
  /// Number of times the map was read.
  [[nodiscard]] std::uint64_t refreshes() const { return refreshes_; }

  static constexpr std::size_t kExactBytesMax = std::size_t{64} << 10U;
  static constexpr std::size_t kFillBytesMax = std::size_t{16} << 20U;  ///< costs about a refresh() of a large map
  static constexpr std::size_t kAddedMax = 1024;

 private:
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  struct Mapping {
    Range range;
    bool readable;
    bool writable;
    bool of_file;
    [[nodiscard]] bool allows(LocalAccess access) const { return access == LocalAccess::read ? readable : writable; }
  };
  enum class Answer : std::uint8_t { no, yes, unknown };

  static std::optional<Range> range_of(const void* at, std::size_t bytes);
  static Answer ask_kernel(Range range, LocalAccess access);
  static Answer ask_kernel_unrecorded(Range range, LocalAccess access);
  void add(const Mapping& mapping);
  [[nodiscard]] std::vector<Mapping>::const_iterator mapping_at(std::uintptr_t address) const;
  [[nodiscard]] bool recorded(Range range, LocalAccess access) const;
  [[nodiscard]] Answer ask_kernel_at_ends(Range range, LocalAccess access) const;

  std::vector<Mapping> mappings_;  ///< ascending, disjoint
  std::uint64_t refreshes_ = 0;
  std::size_t added_ = 0;  ///< by record(), since the map was read
};

}  // namespace splitnic::fabric
