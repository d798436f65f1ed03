#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace splitnic::fabric {

inline constexpr std::uint64_t kSmallestPage = std::uint64_t{1} << 12U;
inline constexpr std::uint64_t kLargestPage = std::uint64_t{1} << 28U;

/// Memory as physical pages, which need not be contiguous. It starts first_offset bytes into the first page and ends
/// end_offset bytes into the last. Source: S3 Figs. 13 and 15 (iSCSI data segments).
struct PageList {
  std::span<std::byte* const> pages;         ///< at multiples of kSmallestPage, not null; copied
  std::uint64_t page_bytes = kSmallestPage;  ///< a power of two, kSmallestPage .. kLargestPage
  std::uint64_t first_offset = 0;            ///< below page_bytes
  std::uint64_t end_offset = kSmallestPage;  ///< 1 .. page_bytes; greater than first_offset if there is one page
};
/// False: the list breaks a rule above, or has no page.
[[nodiscard]] bool well_formed(const PageList& list);
/// The bytes that a well-formed list describes.
[[nodiscard]] std::uint64_t bytes_of(const PageList& list);

/// How an entry finds its pages: one list of pages; a list of page lists; a list of lists of page lists. Source: S3
/// Fig. 13, ATT control.
enum class Indirection : std::uint8_t { direct, one_level, two_levels };

/// S3's address translation table: where each byte of an entry's memory is. No list is longer than pages_per_list,
/// except the outermost list of two levels. The constructor allocates memory for max_pages; assign() allocates none.
/// Thread: the owner.
class PageTable {
 public:
  /// Pointers in one page of 4 KiB.
  static constexpr std::size_t kPagesPerList = 512;

  /// pages_per_list: a power of two, at least 2.
  explicit PageTable(std::size_t max_pages, std::size_t pages_per_list = kPagesPerList);

  [[nodiscard]] Indirection indirection() const { return indirection_; }
  [[nodiscard]] std::size_t max_pages() const { return max_pages_; }
  [[nodiscard]] std::uint64_t size() const { return bytes_; }

  /// Replaces the pages by those of the list. list: well-formed, with at most max_pages.
  void assign(const PageList& list);
  void clear() { bytes_ = 0; }

  /// The contiguous memory at offset, at most `bytes` long. offset: below size().
  [[nodiscard]] std::span<std::byte> run_at(std::uint64_t offset, std::size_t bytes) const;

 private:
  /// Walks the lists to a page. Table: PageTable or const PageTable.
  template <class Table>
  [[nodiscard]] static auto& slot(Table& table, std::size_t page);

  using Pages = std::vector<std::byte*>;
  Indirection indirection_ = Indirection::direct;
  unsigned list_shift_ = 0;
  unsigned page_shift_ = 0;
  std::size_t max_pages_ = 0;
  std::uint64_t first_offset_ = 0;
  std::uint64_t bytes_ = 0;
  Pages pages_;
  std::vector<Pages> lists_;
  std::vector<std::vector<Pages>> lists_of_lists_;
};

}  // namespace splitnic::fabric
