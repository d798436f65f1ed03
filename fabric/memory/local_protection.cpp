#include "fabric/memory/local_protection.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>

#include "common/range.h"
#include "fabric/memory/guarded_copy.h"
#include "fabric/memory/mapped_area.h"

namespace splitnic::fabric {
namespace {

std::uintptr_t page_bytes() {
  static const auto bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::uintptr_t page_of(std::uintptr_t address) { return address & ~(page_bytes() - 1); }

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): the kernel's own numbers
}

}  // namespace

LocalProtection::LocalProtection() { refresh(); }

bool LocalProtection::refresh() {
  enable_guarded_copy();
  std::vector<Mapping> before;
  before.swap(mappings_);
  visit_mapped_areas([this](const MappedArea& area) {
    add({{area.begin, area.end}, area.readable, area.writable, area.inode != 0});
    return true;
  });
  if (mappings_.empty()) {
    mappings_.swap(before);
    return false;
  }
  added_ = 0;
  ++refreshes_;
  return true;
}

/// The kernel lists mappings in ascending order. If the map changes during the read, an address may be listed twice;
/// then the first line counts.
void LocalProtection::add(const Mapping& mapping) {
  Mapping next = mapping;
  if (!mappings_.empty()) {
    Mapping& last = mappings_.back();
    next.range.begin = std::max(next.range.begin, last.range.end);
    if (next.range.begin >= next.range.end) return;
    if (!next.of_file && !last.of_file && next.range.begin == last.range.end && next.readable == last.readable &&
        next.writable == last.writable) {
      last.range.end = next.range.end;
      return;
    }
  }
  mappings_.push_back(next);
}

/// nullopt: the range begins at null, wraps around, or lies in the kernel's half of the address space.
std::optional<LocalProtection::Range> LocalProtection::range_of(const void* at, std::size_t bytes) {
  constexpr auto kUserEnd = static_cast<std::uintptr_t>(std::numeric_limits<std::intptr_t>::max());
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  if (begin == 0 || !within(kUserEnd, {begin, bytes})) return std::nullopt;
  return Range{begin, begin + bytes};
}

/// The first mapping that ends after the address.
std::vector<LocalProtection::Mapping>::const_iterator LocalProtection::mapping_at(std::uintptr_t address) const {
  return std::upper_bound(mappings_.begin(), mappings_.end(), address,
                          [](std::uintptr_t value, const Mapping& mapping) { return value < mapping.range.end; });
}

bool LocalProtection::recorded(Range range, LocalAccess access) const {
  for (auto mapping = mapping_at(range.begin); mapping != mappings_.end(); ++mapping) {
    if (mapping->range.begin > range.begin || !mapping->allows(access)) return false;
    if (mapping->range.end >= range.end) return true;
    range.begin = mapping->range.end;
  }
  return false;
}

bool LocalProtection::recorded(const void* at, std::size_t bytes, LocalAccess access) const {
  if (bytes == 0) return true;
  const auto range = range_of(at, bytes);
  return range && recorded(*range, access);
}

/// Faults in every page of the range, as the access would. Where the access would raise a signal, madvise() fails.
LocalProtection::Answer LocalProtection::ask_kernel(Range range, LocalAccess access) {
  const std::uintptr_t first = page_of(range.begin);
  const int advice = access == LocalAccess::read ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  for (;;) {
    if (madvise(pointer(first), range.end - first, advice) == 0) return Answer::yes;
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
      case EINVAL:  // a right is missing, or device memory (which can't be populated), or a kernel before 5.14
        return Answer::unknown;
      default:  // ENOMEM: not mapped; EFAULT: beyond the file's end; EHWPOISON
        return Answer::no;
    }
  }
}

/// As above for the first and last page of each recorded mapping in the range. Finds mappings that were protected
/// since, and the end of a file.
LocalProtection::Answer LocalProtection::ask_kernel_at_ends(Range range, LocalAccess access) const {
  // MS_ASYNC writes nothing back on any kernel since 2.6.19; the call only finds gaps.
  const std::uintptr_t first = page_of(range.begin);
  if (msync(pointer(first), range.end - first, MS_ASYNC) != 0) return Answer::no;
  Answer answer = Answer::yes;
  for (auto mapping = mapping_at(range.begin); mapping != mappings_.end() && mapping->range.begin < range.end;
       ++mapping) {
    const std::uintptr_t begin = std::max(mapping->range.begin, range.begin);
    const std::uintptr_t last = std::min(mapping->range.end, range.end) - 1;
    for (const std::uintptr_t at : {begin, last}) {
      const Answer here = ask_kernel(Range{at, at + 1}, access);
      if (here == Answer::no) return here;
      if (here == Answer::unknown) answer = here;
    }
  }
  return answer;
}

/// As above for a range that is not recorded, with its own first and last page alone.
LocalProtection::Answer LocalProtection::ask_kernel_unrecorded(Range range, LocalAccess access) {
  const std::uintptr_t first = page_of(range.begin);
  if (msync(pointer(first), range.end - first, MS_ASYNC) != 0) return Answer::no;
  const Answer answer = ask_kernel({range.begin, range.begin + 1}, access);
  return answer == Answer::yes ? ask_kernel({range.end - 1, range.end}, access) : answer;
}

bool LocalProtection::accessible(const void* at, std::size_t bytes, LocalAccess access) {
  if (bytes == 0) return true;
  const auto range = range_of(at, bytes);
  if (!range) return false;
  const bool known = recorded(*range, access);
  Answer answer = Answer::unknown;
  if (bytes <= kExactBytesMax || (!known && bytes <= kFillBytesMax)) {
    answer = ask_kernel(*range, access);
  } else if (known) {
    answer = ask_kernel_at_ends(*range, access);
  }
  if (answer != Answer::unknown) return answer == Answer::yes;
  // The record may be out of date. Also, only the map distinguishes a missing right from special memory.
  if (!refresh() && !known) return ask_kernel_unrecorded(*range, access) == Answer::yes;
  return recorded(*range, access) && ask_kernel_at_ends(*range, access) != Answer::no;
}

/// A process without a map keeps an empty record, which accessible() recognises.
void LocalProtection::record(const void* at, std::size_t bytes, LocalAccess access) {
  const auto range = range_of(at, bytes);
  if (mappings_.empty() || bytes == 0 || !range || recorded(*range, access)) return;
  if (added_ == kAddedMax && !refresh()) return;
  ++added_;
  const Range pages{page_of(range->begin), page_of(range->end + page_bytes() - 1)};
  const auto first = mapping_at(pages.begin);
  const auto last =
      std::find_if(first, mappings_.cend(), [&](const Mapping& mapping) { return mapping.range.begin >= pages.end; });
  std::vector<Mapping> parts;
  if (first != last && first->range.begin < pages.begin) {
    parts.push_back(*first);
    parts.back().range.end = pages.begin;
  }
  // As if of a file: nobody has said where the mappings of the range begin and end.
  parts.push_back({pages, true, access == LocalAccess::write, true});
  if (first != last && std::prev(last)->range.end > pages.end) {
    parts.push_back(*std::prev(last));
    parts.back().range.begin = pages.end;
  }
  mappings_.insert(mappings_.erase(first, last), parts.begin(), parts.end());
}

}  // namespace splitnic::fabric
