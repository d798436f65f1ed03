#include "fabric/memory/region.h"

#include "common/check.h"
#include "common/range.h"
#include "fabric/memory/guarded_copy.h"

namespace splitnic::fabric {
namespace {

std::uintptr_t number(const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address); }

/// The contiguous memory at offset, at most `most` bytes. Only for memory of the process; offset is inside.
std::span<std::byte> run_at(const Translation& in, std::uint64_t offset, std::size_t most) {
  return in.pages ? in.pages->run_at(offset, most) : std::span(in.piece_at(offset), most);
}

/// The word at offset. Only for memory of the process; can_atomic(offset) is true.
std::uint64_t* word_at(const Translation& in, std::uint64_t offset) {
  return reinterpret_cast<std::uint64_t*>(run_at(in, offset, sizeof(std::uint64_t)).data());
}

}  // namespace

RegionMemory RegionMemory::of_process(std::span<std::byte> memory) {
  RegionMemory result(new Translation);
  result.translation_->process = memory;
  result.translation_->bytes = memory.size();
  return result;
}

RegionMemory RegionMemory::of_bridge(PeerMemory memory, std::size_t offset, PathNumber path) {
  RegionMemory result(new Translation);
  result.translation_->bridge = memory;
  result.translation_->bridge_offset = offset;
  result.translation_->path = path;
  result.translation_->in_bridge = true;
  result.translation_->bytes = memory.size();
  return result;
}

std::optional<RegionMemory> RegionMemory::of_pages(const PageList& list, std::size_t pages_per_list) {
  if (!well_formed(list)) return std::nullopt;
  RegionMemory result(new Translation);
  result.translation_->pages.emplace(list.pages.size(), pages_per_list);
  result.assign(list);
  return result;
}

RegionMemory RegionMemory::for_pages(std::size_t max_pages) {
  RegionMemory result(new Translation);
  result.translation_->pages.emplace(max_pages);
  return result;
}

bool RegionMemory::holds(const std::byte* address, std::uint64_t bytes) const {
  if (!translation_ || translation_->in_bridge || translation_->pages) return false;
  const std::uintptr_t begin = number(translation_->process.data());
  const std::uintptr_t at = number(address);
  return ByteRange{begin, translation_->bytes}.contains({at, bytes});
}

std::uint64_t RegionMemory::offset_of(const std::byte* address) const {
  return number(address) - number(translation_->process.data());
}

std::uint64_t RegionMemory::first_byte_in_page() const {
  if (!translation_ || translation_->bytes == 0 || translation_->in_bridge) return 0;
  return number(run_at(*translation_, 0, 1).data()) % kSmallestPage;
}

void RegionMemory::assign(const PageList& list) {
  SPLITNIC_CHECK(pages() != nullptr);
  if (sharers() > 1) *this = for_pages(pages()->max_pages());
  translation_->pages->assign(list);
  translation_->bytes = bytes_of(list);
}

bool RegionMemory::store(std::uint64_t offset, std::span<const std::byte> from) const {
  if (from.empty()) return true;
  SPLITNIC_CHECK(translation_ && within(translation_->bytes, {offset, from.size()}));
  if (translation_->in_bridge) {
    translation_->bridge.store_bytes(static_cast<std::size_t>(offset), from);
    return true;
  }
  while (!from.empty()) {
    const std::span<std::byte> run = run_at(*translation_, offset, from.size());
    if (!guarded_copy(run.data(), from.data(), run.size())) return false;
    offset += run.size();
    from = from.subspan(run.size());
  }
  return true;
}

bool RegionMemory::store(std::uint64_t offset, const PeerMemory& from) const {
  if (from.size() == 0) return true;
  SPLITNIC_CHECK(translation_ && within(translation_->bytes, {offset, from.size()}));
  if (translation_->in_bridge) {
    translation_->bridge.store_from(static_cast<std::size_t>(offset), from);
    return true;
  }
  const auto copy = [](std::byte* to, const std::byte* at, std::size_t bytes) { return guarded_copy(to, at, bytes); };
  if (!translation_->pages) return from.copy_by(0, run_at(*translation_, offset, from.size()), copy);
  for (std::size_t done = 0; done < from.size();) {
    const std::span<std::byte> run = run_at(*translation_, offset + done, from.size() - done);
    if (!from.copy_by(done, run, copy)) return false;
    done += run.size();
  }
  return true;
}

bool RegionMemory::load(std::uint64_t offset, std::span<std::byte> to, StoreHabit* stores) const {
  if (to.empty()) return true;
  SPLITNIC_CHECK(translation_ && within(translation_->bytes, {offset, to.size()}));
  const auto copy = [stores](std::byte* into, const std::byte* from, std::size_t bytes) {
    return stores != nullptr ? stores->store(into, from, bytes) : guarded_copy(into, from, bytes);
  };
  if (translation_->in_bridge) return translation_->bridge.copy_by(static_cast<std::size_t>(offset), to, copy);
  if (!translation_->pages) return copy(to.data(), translation_->piece_at(offset), to.size());
  while (!to.empty()) {
    const std::span<std::byte> run = run_at(*translation_, offset, to.size());
    if (!copy(to.data(), run.data(), run.size())) return false;
    offset += run.size();
    to = to.subspan(run.size());
  }
  return true;
}

bool RegionMemory::can_atomic(std::uint64_t offset) const {
  if (!translation_ || !within(translation_->bytes, {offset, sizeof(std::uint64_t)})) return false;
  if (translation_->in_bridge) return translation_->bridge.aligned(static_cast<std::size_t>(offset));
  return number(run_at(*translation_, offset, 1).data()) % sizeof(std::uint64_t) == 0;
}

bool RegionMemory::compare_swap(std::uint64_t offset, std::uint64_t compare, std::uint64_t swap,
                                std::uint64_t& before) const {
  SPLITNIC_CHECK(can_atomic(offset));
  if (!translation_->in_bridge) return guarded_compare_swap(word_at(*translation_, offset), compare, swap, before);
  before = translation_->bridge.compare_swap(static_cast<std::size_t>(offset), compare, swap);
  return true;
}

bool RegionMemory::fetch_add(std::uint64_t offset, std::uint64_t add, std::uint64_t& before) const {
  SPLITNIC_CHECK(can_atomic(offset));
  if (!translation_->in_bridge) return guarded_fetch_add(word_at(*translation_, offset), add, before);
  before = translation_->bridge.fetch_add(static_cast<std::size_t>(offset), add);
  return true;
}

}  // namespace splitnic::fabric
