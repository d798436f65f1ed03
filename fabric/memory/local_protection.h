#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace splitnic::fabric {

enum class LocalAccess : std::uint8_t { read, write };

/// What the process itself may do with its memory, so that no tag is ever made for memory that it may not touch:
/// recorded when a queue pair is opened, kept current by asking the kernel about the range at hand, never by reading
/// the whole map for each registration.
///
/// A promise made here holds at that moment: the process may unmap or protect memory later, from any thread. What uses
/// the memory goes through guarded_copy(), which this makes ready.
///
/// Thread: the adapter's owner. Nothing here faults, whatever the range. Source: S4 Fig. 17 (steps 604 to 612; the
/// record is the segment table, refresh() SegmentTableUpdate, accessible() MapLocalPage).
class LocalProtection {
 public:
  /// Records the process's mappings.
  LocalProtection();

  /// Records them anew. Reads /proc/self/maps, which takes 0.3 ms per thousand mappings.
  void refresh();

  /// Whether the process may access all of [at, at + bytes). No bytes: true, whatever `at` is.
  ///
  /// Up to kExactBytesMax, and up to kFillBytesMax what the record does not know: the kernel's answer, page by page.
  /// Otherwise the record's, read again if it says no, then the kernel's for the first and last page of each mapping
  /// and for gaps between. So the cost does not grow with the range, and an enormous untouched one is not filled; what
  /// was protected in the middle of a mapping since it was recorded is found at use.
  ///
  /// Pages that were looked at have been faulted in, for writing if `access` is (a copy-on-write page is copied).
  [[nodiscard]] bool accessible(const void* at, std::size_t bytes, LocalAccess access);

  /// The record's answer alone, without a system call (binding a memory window makes none). A yes may be stale; a no
  /// may be memory that was mapped since: then accessible() knows.
  [[nodiscard]] bool recorded(const void* at, std::size_t bytes, LocalAccess access) const;

  /// Mappings in the record; neighbours with the same rights and no file behind them count as one.
  [[nodiscard]] std::size_t mappings() const { return mappings_.size(); }
  /// How often the map has been read.
  [[nodiscard]] std::uint64_t refreshes() const { return refreshes_; }

  static constexpr std::size_t kExactBytesMax = std::size_t{64} << 10U;
  static constexpr std::size_t kFillBytesMax = std::size_t{16} << 20U;  ///< about what reading a large map costs

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
  static std::optional<Mapping> parse(std::string_view line);
  static Answer ask_kernel(Range range, LocalAccess access);
  void add(const Mapping& mapping);
  [[nodiscard]] std::vector<Mapping>::const_iterator mapping_at(std::uintptr_t address) const;
  [[nodiscard]] bool recorded(Range range, LocalAccess access) const;
  [[nodiscard]] Answer ask_kernel_at_ends(Range range, LocalAccess access) const;

  std::vector<Mapping> mappings_;  ///< ascending, disjoint
  std::uint64_t refreshes_ = 0;
};

}  // namespace splitnic::fabric
