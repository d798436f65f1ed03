#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/bridge/peer_memory.h"
#include "fabric/ids.h"
#include "fabric/memory/page_table.h"
#include "fabric/memory/store_habit.h"

namespace splitnic::fabric {

/// Where the bytes are: in pages, in the bridge's memory, or in one piece of the process's memory. Reference-counted.
struct Translation : boost::intrusive_ref_counter<Translation> {
  std::span<std::byte> process{};
  std::optional<PageTable> pages{};
  PeerMemory bridge{};
  std::size_t bridge_offset = 0;
  PathNumber path{};
  bool in_bridge = false;
  std::uint64_t bytes = 0;

  /// In the one piece of the process's memory. It may be the whole address space, which begins with a null pointer: so
  /// this is no pointer arithmetic.
  [[nodiscard]] std::byte* piece_at(std::uint64_t offset) const {
    const auto first = reinterpret_cast<std::uintptr_t>(process.data());
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<std::byte*>(first + static_cast<std::uintptr_t>(offset));
  }
};

/// The bytes behind table entries: one piece of the process's memory, pages of the process, or a range of the bridge's
/// local memory, which the peer can also write. Does not own the bytes. Copies share one translation, which lives until
/// the last copy is destroyed. Thread: the adapter's owner; any thread may destroy copies.
class RegionMemory {
 public:
  /// No memory.
  RegionMemory() = default;
  static RegionMemory of_process(std::span<std::byte> memory);
  /// offset: where `memory` begins in the local memory of that path's bridge.
  static RegionMemory of_bridge(PeerMemory memory, std::size_t offset, PathNumber path);
  /// nullopt: the list is not well_formed().
  static std::optional<RegionMemory> of_pages(const PageList& list,
                                              std::size_t pages_per_list = PageTable::kPagesPerList);
  /// No bytes yet, but room for max_pages; assign() sets the pages.
  static RegionMemory for_pages(std::size_t max_pages);

  [[nodiscard]] std::size_t size() const { return translation_ ? static_cast<std::size_t>(translation_->bytes) : 0; }
  [[nodiscard]] bool in_bridge() const { return translation_ && translation_->in_bridge; }
  /// Offset of byte 0 in the bridge's local memory. Only if in_bridge().
  [[nodiscard]] std::size_t bridge_offset() const { return translation_->bridge_offset; }
  /// The path of that bridge. Only if in_bridge().
  [[nodiscard]] PathNumber path() const { return translation_->path; }
  /// The page table; null if the memory is in one piece (S3's direct pointer).
  [[nodiscard]] const PageTable* pages() const {
    return translation_ && translation_->pages ? &*translation_->pages : nullptr;
  }
  /// Number of copies that share this translation.
  [[nodiscard]] std::size_t sharers() const { return translation_ ? translation_->use_count() : 0; }

  /// Whether [address, address + bytes), in the process's address space, lies in this memory. False for pages, which
  /// have no such addresses.
  [[nodiscard]] bool holds(const std::byte* address, std::uint64_t bytes) const;
  /// Offset of an address for which holds() returned true.
  [[nodiscard]] std::uint64_t offset_of(const std::byte* address) const;
  /// Offset of byte 0 within its page of 4 KiB.
  [[nodiscard]] std::uint64_t first_byte_in_page() const;

  /// Sets the pages of memory made by for_pages(). list: well-formed, with at most max_pages. Copies that share the
  /// translation keep the old pages.
  void assign(const PageList& list);

  /// For all of the following, the table has checked that the range is inside. False: the process does not have this
  /// memory any more (it was unmapped or protected since); how much was copied is undefined.
  [[nodiscard]] bool store(std::uint64_t offset, std::span<const std::byte> from) const;
  [[nodiscard]] bool store(std::uint64_t offset, const PeerMemory& from) const;
  [[nodiscard]] bool load(std::uint64_t offset, std::span<std::byte> to, StoreHabit* stores = nullptr) const;
  /// One piece of the process's memory.
  [[nodiscard]] bool is_piece() const { return translation_ && !translation_->in_bridge && !translation_->pages; }
  /// The byte at offset, if the memory is one piece of the process's; else null. For guarded_copy() alone.
  [[nodiscard]] std::byte* piece_at(std::uint64_t offset) const {
    return is_piece() ? translation_->piece_at(offset) : nullptr;
  }
  /// Atomic with respect to every access of this process: 8 bytes in host order. offset: can_atomic(). before: gets the
  /// old value.
  [[nodiscard]] bool compare_swap(std::uint64_t offset, std::uint64_t compare, std::uint64_t swap,
                                  std::uint64_t& before) const;
  [[nodiscard]] bool fetch_add(std::uint64_t offset, std::uint64_t add, std::uint64_t& before) const;
  /// Whether the 8 bytes at offset are inside and aligned in memory.
  [[nodiscard]] bool can_atomic(std::uint64_t offset) const;

 private:
  explicit RegionMemory(Translation* made) : translation_(made) {}

  boost::intrusive_ptr<Translation> translation_;
};

}  // namespace splitnic::fabric
