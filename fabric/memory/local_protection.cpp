#include "fabric/memory/local_protection.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <string>

#include "common/range.h"
#include "fabric/memory/guarded_copy.h"

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

/// The readable part of /proc/self/maps; empty where /proc isn't mounted.
std::string read_maps() {
  std::string text;
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  std::array<char, 16 * 1024> part;
  for (;;) {
    const ssize_t got = read(file, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  close(file);
  return text;
}

}  // namespace

LocalProtection::LocalProtection() { refresh(); }

void LocalProtection::refresh() {
  enable_guarded_copy();
  const std::string text = read_maps();
  mappings_.clear();
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (const auto mapping = parse(rest.substr(0, end))) add(*mapping);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  ++refreshes_;
}

/// "55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0   [heap]"; see proc_pid_maps(5). Inode 0: no file.
std::optional<LocalProtection::Mapping> LocalProtection::parse(std::string_view line) {
  const char* at = line.data();
  const char* const end = at + line.size();
  const auto number = [&](std::uintptr_t& value, int base, char after) {
    const auto parsed = std::from_chars(at, end, value, base);
    if (parsed.ec != std::errc{} || parsed.ptr == end || *parsed.ptr != after) return false;
    at = parsed.ptr + 1;
    return true;
  };
  Range range{};
  if (!number(range.begin, 16, '-') || !number(range.end, 16, ' ') || range.begin >= range.end) return std::nullopt;
  if (end - at < 5) return std::nullopt;
  const std::string_view rights(at, 4);
  at += 5;
  std::uintptr_t offset = 0;
  std::uintptr_t major = 0;
  std::uintptr_t minor = 0;
  if (!number(offset, 16, ' ') || !number(major, 16, ':') || !number(minor, 16, ' ')) return std::nullopt;
  const bool of_file = at != end && *at != '0';
  return Mapping{range, rights[0] == 'r', rights[1] == 'w', of_file};
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

bool LocalProtection::accessible(const void* at, std::size_t bytes, LocalAccess access) {
  if (bytes == 0) return true;
  const auto range = range_of(at, bytes);
  if (!range) return false;
  const bool known = recorded(*range, access);
  Answer answer = Answer::unknown;
  if (bytes <= kExactBytesMax || mappings_.empty() || (!known && bytes <= kFillBytesMax)) {
    answer = ask_kernel(*range, access);
  } else if (known) {
    answer = ask_kernel_at_ends(*range, access);
  }
  if (answer != Answer::unknown) return answer == Answer::yes;
  // The record may be out of date. Also, only the map distinguishes a missing right from special memory.
  refresh();
  return recorded(*range, access) && ask_kernel_at_ends(*range, access) != Answer::no;
}

}  // namespace splitnic::fabric
