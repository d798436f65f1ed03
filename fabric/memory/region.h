#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/bridge/peer_memory.h"
#include "fabric/memory/page_table.h"

namespace splitnic::fabric {

/// Where the bytes are: in pages, in the bridge's memory, or in the process's memory in one piece. Shared by counting.
struct Translation : boost::intrusive_ref_counter<Translation> {
  std::span<std::byte> process{};
  std::optional<PageTable> pages{};
  PeerMemory bridge{};
  std::size_t bridge_offset = 0;
  bool in_bridge = false;
  std::uint64_t bytes = 0;
};

/// The bytes behind table entries: memory of the process in one piece, memory of the process as pages, or a range of
/// the bridge's local memory, which the peer can write besides. Does not own the bytes. Copies share one translation,
/// which lives as long as the last of them. Thread: the adapter's owner; copies may be dropped anywhere.
class RegionMemory {
 public:
  /// No memory.
  RegionMemory() = default;
  static RegionMemory of_process(std::span<std::byte> memory);
  /// offset: of `memory` in the bridge's local memory.
  static RegionMemory of_bridge(PeerMemory memory, std::size_t offset);
  /// nullopt: not well_formed().
  static std::optional<RegionMemory> of_pages(const PageList& list,
                                              std::size_t pages_per_list = PageTable::kPagesPerList);
  /// No bytes yet, room for the pages to come (see assign()).
  static RegionMemory for_pages(std::size_t max_pages);

  [[nodiscard]] std::size_t size() const { return translation_ ? static_cast<std::size_t>(translation_->bytes) : 0; }
  [[nodiscard]] bool in_bridge() const { return translation_ && translation_->in_bridge; }
  /// Of byte 0, in the bridge's local memory. Only in_bridge().
  [[nodiscard]] std::size_t bridge_offset() const { return translation_->bridge_offset; }
  /// The page table; null where the memory is in one piece ("direct pointer" to all of it).
  [[nodiscard]] const PageTable* pages() const {
    return translation_ && translation_->pages ? &*translation_->pages : nullptr;
  }
  /// How many share this translation.
  [[nodiscard]] std::size_t sharers() const { return translation_ ? translation_->use_count() : 0; }

  /// Whether [address, address + bytes) are bytes of this, by address within the process. Pages have no such addresses.
  [[nodiscard]] bool holds(const std::byte* address, std::uint64_t bytes) const;
  /// Of an address that holds() has found inside.
  [[nodiscard]] std::uint64_t offset_of(const std::byte* address) const;
  /// Of byte 0, within a page of 4 KiB.
  [[nodiscard]] std::uint64_t first_byte_in_page() const;

  /// New pages for memory made by for_pages(): a well-formed list of no more than there is room for. What other sharers
  /// see stays as it was.
  void assign(const PageList& list);

  /// All of these: the range is inside, the table checked it. False: the process has no such memory any more (it was
  /// unmapped or protected since); what was moved by then is undefined.
  [[nodiscard]] bool store(std::uint64_t offset, std::span<const std::byte> from) const;
  [[nodiscard]] bool load(std::uint64_t offset, std::span<std::byte> to) const;
  /// Atomic with respect to every access of this process; 8 bytes in host order, can_atomic(offset). before: what was
  /// there.
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
