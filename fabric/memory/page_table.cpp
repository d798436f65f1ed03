#include "fabric/memory/page_table.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace splitnic::fabric {
namespace {

bool is_page(const std::byte* page) {
  return page != nullptr && std::bit_cast<std::uintptr_t>(page) % kSmallestPage == 0;
}

std::size_t lists_for(std::size_t entries, std::size_t per_list) { return (entries + per_list - 1) / per_list; }

}  // namespace

bool well_formed(const PageList& list) {
  const std::uint64_t page = list.page_bytes;
  if (!std::has_single_bit(page) || page < kSmallestPage || page > kLargestPage) return false;
  if (list.pages.empty() || list.first_offset >= page || list.end_offset == 0 || list.end_offset > page) return false;
  if (list.pages.size() == 1 && list.end_offset <= list.first_offset) return false;
  return std::all_of(list.pages.begin(), list.pages.end(), is_page);
}

std::uint64_t bytes_of(const PageList& list) {
  return (list.pages.size() - 1) * list.page_bytes + list.end_offset - list.first_offset;
}

PageTable::PageTable(std::size_t max_pages, std::size_t pages_per_list)
    : list_shift_(static_cast<unsigned>(std::countr_zero(pages_per_list))), max_pages_(max_pages) {
  SPLITNIC_CHECK(pages_per_list >= 2 && std::has_single_bit(pages_per_list));
  if (max_pages <= pages_per_list) {
    pages_.resize(max_pages);
    return;
  }
  const std::size_t lists = lists_for(max_pages, pages_per_list);
  if (lists <= pages_per_list) {
    indirection_ = Indirection::one_level;
    lists_.assign(lists, Pages(pages_per_list));
    return;
  }
  indirection_ = Indirection::two_levels;
  lists_of_lists_.assign(lists_for(lists, pages_per_list), std::vector<Pages>(pages_per_list, Pages(pages_per_list)));
}

template <class Table>
auto& PageTable::slot(Table& table, std::size_t page) {
  const std::size_t mask = (std::size_t{1} << table.list_shift_) - 1;
  const std::size_t list = page >> table.list_shift_;
  switch (table.indirection_) {
    case Indirection::direct:
      break;
    case Indirection::one_level:
      return table.lists_[list][page & mask];
    case Indirection::two_levels:
      return table.lists_of_lists_[list >> table.list_shift_][list & mask][page & mask];
  }
  return table.pages_[page];
}

void PageTable::assign(const PageList& list) {
  SPLITNIC_CHECK(well_formed(list) && list.pages.size() <= max_pages_);
  page_shift_ = static_cast<unsigned>(std::countr_zero(list.page_bytes));
  first_offset_ = list.first_offset;
  bytes_ = bytes_of(list);
  for (std::size_t i = 0; i < list.pages.size(); ++i) slot(*this, i) = list.pages[i];
}

std::span<std::byte> PageTable::run_at(std::uint64_t offset, std::size_t bytes) const {
  SPLITNIC_CHECK(offset < bytes_);
  const std::uint64_t at = first_offset_ + offset;
  const std::uint64_t page_bytes = std::uint64_t{1} << page_shift_;
  const std::uint64_t in_page = at & (page_bytes - 1);
  const std::uint64_t run = std::min<std::uint64_t>(std::min(page_bytes - in_page, bytes_ - offset), bytes);
  std::byte* const page = slot(*this, static_cast<std::size_t>(at >> page_shift_));
  return {page + in_page, static_cast<std::size_t>(run)};
}

}  // namespace splitnic::fabric
