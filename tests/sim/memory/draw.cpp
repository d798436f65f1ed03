// What to ask for: mostly what is allowed, often what nearly is.
#include <algorithm>
#include <bit>
#include <iterator>

#include "world.h"

namespace splitnic::sim {

using namespace fabric;

/// Mostly a live tag, mostly of the kind that is asked for; at times a dead one, another adapter's, or a guess.
Stag MemoryWorld::draw_tag(std::size_t number, bool (*is_kind)(EntryKind)) {
  const Site& site = sites_[number];
  if (one_in(40)) return Stag{draws_.next32() % (1U << 14U)};
  if (one_in(40)) return sites_[below(kSites)].known[below(site.known.size())];
  if (one_in(12)) return site.known[below(site.known.size())];
  const auto& entries = site.reference.table.entries;
  if (entries.empty()) return Stag{draws_.next32()};
  for (int attempt = 0;; ++attempt) {
    const auto& [index, entry] = *std::next(entries.begin(), static_cast<std::ptrdiff_t>(below(entries.size())));
    if (is_kind == nullptr || is_kind(entry.kind) || attempt == 6) return Stag::from(index, entry.instance);
  }
}

/// Often the one that the tag has: what was known of its last binding must not matter to the next.
std::uint8_t MemoryWorld::draw_key(Stag tag) {
  return one_in(3) ? tag.instance() : static_cast<std::uint8_t>(below(256));
}

Rights MemoryWorld::draw_rights(bool remote_only) {
  const auto mask = static_cast<std::uint16_t>(remote_only ? 0x1c : 0x3f);
  if (!one_in(3)) return Rights{mask};
  return Rights{static_cast<std::uint16_t>(below(64) & mask)};
}

ProtectionDomain MemoryWorld::draw_domain(std::size_t number) {
  const Site& site = sites_[number];
  return site.domains[one_in(8) ? below(site.domains.size()) : below(3) == 0 ? 1 : 0];
}

EntryOptions MemoryWorld::draw_options(std::size_t number) {
  EntryOptions options;
  options.rights = draw_rights();
  if (one_in(5)) {
    options.touch = one_in(2) ? TouchControl::one_touch : TouchControl::one_shot;
    if (!one_in(8)) options.rights.bits &= 0x1f;  // bindable ones are refused with it
  }
  options.placeable = one_in(60);
  options.invalidatable = one_in(3);
  if (one_in(6)) options.queue_pair = sites_[number].queues[below(kQueues)].number;
  if (one_in(8)) options.base = Arena::kPage * below(3);
  if (one_in(16)) options.base = ~std::uint64_t{0} - below(2 * Arena::kPage);
  return options;
}

/// A range of the entry, mostly inside; of nothing in particular where there is none.
MemoryWorld::Range MemoryWorld::draw_range(const Reference::Entry* entry, std::uint64_t most) {
  if (entry == nullptr) return {draws_.next(), std::min<std::uint64_t>(most, 64)};
  if (one_in(30)) return draw_edge(*entry, most);
  const std::uint64_t scale = one_in(2) ? 64 : std::max<std::uint64_t>(most, 1);
  const std::uint64_t bytes = one_in(24) ? 0 : std::min({1 + below(scale), most, entry->length});
  std::uint64_t offset = below(entry->length - bytes + 1);
  if (one_in(2)) offset = offset / 8 * 8;
  return {entry->base + offset, bytes};
}

/// At the edges of the entry, one byte beyond them, around 2^64.
MemoryWorld::Range MemoryWorld::draw_edge(const Reference::Entry& entry, std::uint64_t most) {
  const std::uint64_t base = entry.base;
  const std::uint64_t length = entry.length;
  const std::uint64_t fits = std::min(most, length);
  switch (below(7)) {
    case 0:
      return {base - 1, std::max<std::uint64_t>(1, below(fits + 1))};
    case 1:
      return {base, std::min(most, length + 1)};
    case 2:
      return {base + length, below(2)};
    case 3:
      return {base + length - fits, fits};
    case 4:
      return {base + (length - fits) + 1, fits};
    case 5:
      return {base, fits};
    default:
      return {~std::uint64_t{0} - below(16), 1 + below(32)};
  }
}

/// A part of a gather or scatter list.
MemoryWorld::Segment MemoryWorld::draw_segment(std::size_t number, const Queue& queue, std::uint64_t most, bool exactly,
                                               Right right, bool sink) {
  Site& site = sites_[number];
  Segment drawn;
  const int attempts = one_in(50) ? 1 : 12;
  for (int attempt = 0; attempt < attempts && !drawn.good(); ++attempt) {
    const Stag tag = draw_tag(number);
    const Reference::Entry* entry = site.reference.find(tag);
    if (exactly && entry != nullptr && entry->length < most && attempt + 1 != attempts) continue;
    auto [address, bytes] = draw_range(entry, most);
    if (exactly && bytes != most) {
      bytes = most;
      if (entry != nullptr && entry->length >= most) address = entry->base + below(entry->length - most + 1);
    }
    const Access access{tag, queue.domain, bytes, right, queue.number, 0};
    const auto side = sink ? Reference::Side::response : Reference::Side::local;
    drawn.verdict = site.reference.check(access, side, address);
    if (drawn.good()) drawn.pieces = site.reference.pieces(tag, address, bytes);
    // Bridge memory, pages and windows go by the peers' addresses; other memory by the process's own.
    std::uint64_t local = address;
    const auto memory = site.reference.memory.find(tag.index());
    const bool by_pointer =
        entry == nullptr || (entry->kind == EntryKind::region && entry->max_pages == 0 &&
                             memory != site.reference.memory.end() && memory->second.front().image == site.arena_image);
    if (by_pointer) {
      const auto start = std::bit_cast<std::uintptr_t>(arenas_[site.arena_image].at(0));
      local = entry == nullptr ? start + Arena::kPage : start + memory->second.front().offset + (address - entry->base);
    }
    drawn.local = LocalSegment::at(local, static_cast<std::uint32_t>(bytes), tag);
  }
  return drawn;
}

/// The bytes that a request in flight before this one writes, in cells or directly: the order of the two shows.
bool MemoryWorld::draw_same_target(Request& request) {
  const auto before = std::find_if(in_flight_.rbegin(), in_flight_.rend(), [&](const Draft& other) {
    const bool writes = !other->answered() && !other->local() && other->work.remote.tag != Stag{};
    return writes && other->from == request.from && other->queue == request.queue;
  });
  if (before == in_flight_.rend()) return false;
  request.work.remote = (*before)->work.remote;
  request.bytes = (*before)->bytes;
  return true;
}

/// Memory that was revoked and may still be in use: its grant may not have ended for the peer yet.
bool MemoryWorld::draw_revoked(Request& request, std::uint64_t most) {
  const auto& quarantine = to(request).reference.quarantine;
  if (quarantine.empty() || !one_in(3)) return false;
  const Reference::Revoked& revoked = quarantine[below(quarantine.size())];
  const auto [address, bytes] = draw_range(&revoked.entry, most);
  request.work.remote = {address, revoked.tag};
  request.bytes = static_cast<std::uint32_t>(bytes);
  return true;
}

/// What a peer asks for: tag, address and length.
void MemoryWorld::draw_target(Request& request, Right right, std::uint64_t most) {
  const std::size_t owner = request.from ^ 1U;
  const Queue& queue = sites_[owner].queues[request.queue];
  const int attempts = one_in(16) ? 1 : 12;
  const bool edge = one_in(12);
  if (right == Right::remote_write && one_in(6) && draw_same_target(request)) return;
  if (right == Right::remote_read && draw_revoked(request, most)) return;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const Stag tag = draw_tag(owner);
    const Reference::Entry* entry = sites_[owner].reference.find(tag);
    auto [address, bytes] = entry != nullptr && edge ? draw_edge(*entry, most) : draw_range(entry, most);
    if (right == Right::remote_atomic) {
      if (!one_in(12)) address = address / 8 * 8;
      bytes = 8;
    }
    request.work.remote = {address, tag};
    request.bytes = static_cast<std::uint32_t>(bytes);
    const Access access{tag, queue.domain, bytes, right, queue.number, static_cast<std::uint32_t>(request.number)};
    const std::string verdict = sites_[owner].reference.check(access, Reference::Side::remote, address);
    if (verdict == "ok" || (edge && verdict == "base_or_bounds_violation")) return;
  }
}

/// Pages of the process's memory, none twice, in any order.
Pieces MemoryWorld::draw_pages(std::size_t number, std::size_t count, PageList& list, std::vector<std::byte*>& pages) {
  const Site& site = sites_[number];
  std::array<std::size_t, Arena::kPages - 2> order{};
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i + 1;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(i)]);
  list.first_offset = one_in(2) ? 0 : below(Arena::kPage - 64);
  list.end_offset = one_in(2) ? Arena::kPage : list.first_offset + 1 + below(Arena::kPage - list.first_offset);
  Pieces where;
  for (std::size_t i = 0; i < count; ++i) {
    pages.push_back(arenas_[site.arena_image].at(order[i] * Arena::kPage));
    const std::size_t begin = i == 0 ? list.first_offset : 0;
    const std::size_t end = i + 1 == count ? list.end_offset : Arena::kPage;
    where.push_back({site.arena_image, order[i] * Arena::kPage + begin, end - begin});
  }
  list.pages = pages;
  return where;
}

}  // namespace splitnic::sim
