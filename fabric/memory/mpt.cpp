#include "fabric/memory/mpt.h"

#include <algorithm>
#include <utility>

#include "common/range.h"

namespace splitnic::fabric {
namespace {

struct SetRange {
  std::size_t first = 0;
  std::size_t ways = 0;
};

/// Where the set of a tag's index or a queue pair's number is. Both ends compute it.
SetRange set_range(std::size_t places, std::uint32_t of) {
  const std::size_t ways = std::min(places, kMptWays);
  if (ways == 0) return {};
  return {of % (places / ways) * ways, ways};
}

std::size_t slots_in(const MemoryRange& mpt) { return mpt.bytes / sizeof(MptSlot); }

std::size_t places_in(const MemoryRange& admissions) {
  return admissions.bytes < kMptPlacesAt ? 0 : (admissions.bytes - kMptPlacesAt) / sizeof(MptPlace);
}

/// The owner may be hostile: the grant must lie in the owner's buffers, and in this end's mapping of them.
bool is_believable(DirectAccess& direct, const MptGrant& grant) {
  return direct.peer_buffers.contains({grant.window_offset, grant.length}) &&
         direct.bridge.peer_window().contains(grant.window_offset, grant.length) && grant.length <= ~grant.address;
}

}  // namespace

void MptPublisher::start(DirectAccess& direct) {
  slots_.assign(slots_in(direct.peer_mpt), Slot{});
  places_.assign(places_in(direct.peer_admissions), Place{});
  refusing_.clear();
  for_one_ = 0;
  changes_ = 0;
}

std::span<MptPublisher::Slot> MptPublisher::set_of(Stag tag) {
  const SetRange range = set_range(slots_.size(), tag.index());
  return std::span(slots_).subspan(range.first, range.ways);
}

std::span<MptPublisher::Place> MptPublisher::set_of(QpNumber queue_pair) {
  const SetRange range = set_range(places_.size(), queue_pair.value);
  return std::span(places_).subspan(range.first, range.ways);
}

/// Null: it is not admitted.
MptPublisher::Place* MptPublisher::place_of(QpNumber queue_pair) {
  const std::span<Place> set = set_of(queue_pair);
  const auto place =
      std::ranges::find_if(set, [&](const Place& each) { return each.admission.queue_pair == queue_pair; });
  return place == set.end() ? nullptr : &*place;
}

std::size_t MptPublisher::offset_of(const DirectAccess& direct, const Slot& slot) const {
  return direct.peer_mpt.offset + static_cast<std::size_t>(&slot - slots_.data()) * sizeof(MptSlot);
}

std::size_t MptPublisher::offset_of(const DirectAccess& direct, const Place& place) const {
  return direct.peer_admissions.offset + kMptPlacesAt +
         static_cast<std::size_t>(&place - places_.data()) * sizeof(MptPlace);
}

/// M1 (publish): a change before its number; pairs with A1 in MptView::claim. Without it the initiator could look under
/// the new number, find what was there before, and remember that for as long as nothing else changes.
void MptPublisher::count_change(DirectAccess& direct) {
  direct.bridge.publish();
  direct.bridge.peer_window().write_word<std::uint64_t>(direct.peer_admissions.offset, ++changes_);
}

bool MptPublisher::grant(DirectAccess& direct, const MptGrant& grant) {
  for (Slot& slot : set_of(grant.tag)) {
    if (slot.used) continue;
    slot.used = true;
    const std::uint32_t last = slot.grant.generation;
    slot.grant = grant;
    slot.grant.generation = last;
    for_one_ += grant.queue_pair.value != 0 ? 1U : 0U;
    put(direct, slot);
    return true;
  }
  return false;
}

/// Publishes the slot, which is empty to the peer, under its next generation.
void MptPublisher::put(DirectAccess& direct, Slot& slot) {
  if (++slot.grant.generation == 0) slot.grant.generation = 1;
  slot.readable = is_readable(slot.grant);
  MptGrant published = slot.grant;
  if (!slot.readable) published.rights = published.rights.without(Right::remote_read);
  const MptSlot wire = encode_mpt_slot(published, direct.tag_out);
  PeerWindow& window = direct.bridge.peer_window();
  const std::size_t at = offset_of(direct, slot);
  // The generation is written last: a reader that sees it sees the rest; to any other reader the slot is empty.
  window.write(at + sizeof wire.generation, std::as_bytes(std::span(&wire, 1)).subspan(sizeof wire.generation));
  direct.bridge.publish();
  window.write_word<std::uint32_t>(at, slot.grant.generation);
  count_change(direct);
}

void MptPublisher::clear(DirectAccess& direct, const Slot& slot) {
  direct.bridge.peer_window().write_word<std::uint32_t>(offset_of(direct, slot), 0);
  count_change(direct);
}

bool MptPublisher::is_readable(const MptGrant& grant) {
  if (!grant.rights.has(Right::remote_read)) return false;
  if (grant.queue_pair.value == 0) return !refusing_.contains(grant.domain);
  const Place* user = place_of(grant.queue_pair);
  return user == nullptr || user->admission.reads;
}

/// A queue pair of the domain, which lets its peer not read, has a place from now on, or has one and did. Only the
/// first and the last of a domain make a difference, and those that slots are for alone: so many of them cost no more.
void MptPublisher::refuse_reads(DirectAccess& direct, ProtectionDomain domain) {
  if (++refusing_[domain] == 1 || for_one_ != 0) follow_readers(direct, domain);
}

/// It has left, or lets its peer read now.
void MptPublisher::permit_reads(DirectAccess& direct, ProtectionDomain domain) {
  const bool last = --refusing_[domain] == 0;
  if (last) refusing_.erase(domain);
  if (last || for_one_ != 0) follow_readers(direct, domain);
}

void MptPublisher::follow_readers(DirectAccess& direct, ProtectionDomain domain) {
  for (Slot& slot : slots_) {
    if (!slot.used || slot.grant.domain != domain || slot.readable == is_readable(slot.grant)) continue;
    clear(direct, slot);
    put(direct, slot);
  }
}

void MptPublisher::revoke(DirectAccess& direct, Stag tag) {
  for (Slot& slot : set_of(tag)) {
    if (!slot.used || slot.grant.tag != tag) continue;
    slot.used = false;
    for_one_ -= slot.grant.queue_pair.value != 0 ? 1U : 0U;
    return clear(direct, slot);
  }
}

bool MptPublisher::admit(DirectAccess& direct, const MptAdmission& admission) {
  const std::span<Place> set = set_of(admission.queue_pair);
  const auto same = [&](const Place& place) { return place.admission == admission; };
  if (std::ranges::any_of(set, same)) return true;
  for (Place& place : set) {
    MptAdmission changed = place.admission;
    changed.reads = admission.reads;
    if (changed != admission) continue;
    place.admission.reads = admission.reads;
    admission.reads ? permit_reads(direct, admission.domain) : refuse_reads(direct, admission.domain);
    return true;
  }
  for (Place& place : set) {
    if (place.admission.queue_pair.value != 0) continue;
    place.admission = admission;
    // Before the place: the peer may believe what a slot says as soon as it finds the queue pair.
    if (!admission.reads) refuse_reads(direct, admission.domain);
    if (++place.generation == 0) place.generation = 1;
    PeerWindow& window = direct.bridge.peer_window();
    const std::size_t at = offset_of(direct, place);
    // The half with the generation is written last, as in a slot.
    window.write_word<std::uint64_t>(at + offsetof(MptPlace, ends),
                                     connection_ends(admission.queue_pair, admission.peer));
    direct.bridge.publish();
    window.write_word<std::uint64_t>(at, mpt_place_head(place.generation, admission.domain));
    count_change(direct);
    return true;
  }
  return false;
}

bool MptPublisher::dismiss(DirectAccess& direct, QpNumber queue_pair) {
  for (Place& place : set_of(queue_pair)) {
    if (place.admission.queue_pair != queue_pair) continue;
    const MptAdmission left = std::exchange(place.admission, {});
    direct.bridge.peer_window().write_word<std::uint64_t>(offset_of(direct, place), 0);
    count_change(direct);
    if (!left.reads) permit_reads(direct, left.domain);
    return std::ranges::any_of(slots_, [&](const Slot& slot) { return slot.used && slot.grant.domain == left.domain; });
  }
  return false;
}

void MptView::start() { remembered_ = {}; }

/// The protection domain of the owner's end of a connection; nullopt: it is not admitted. A place that changes
/// meanwhile is not whole: its head differs before and after.
std::optional<ProtectionDomain> MptView::find_domain(DirectAccess& direct, const MptWriter& writer, MptSource& source) {
  const MemoryRange& admissions = direct.admissions;
  const std::uint64_t ends = connection_ends(writer.peer, writer.queue_pair);
  const SetRange set = set_range(places_in(admissions), writer.peer.value);
  const PeerMemory memory = direct.bridge.local_memory();
  for (std::size_t way = 0; way < set.ways; ++way) {
    const std::size_t at = admissions.offset + kMptPlacesAt + (set.first + way) * sizeof(MptPlace);
    const auto head = memory.watch<std::uint64_t>(at);
    const auto generation = static_cast<std::uint32_t>(head);
    if (generation == 0 || memory.watch<std::uint64_t>(at + offsetof(MptPlace, ends)) != ends) continue;
    if (memory.watch<std::uint64_t>(at) != head) continue;
    source.place_at = at;
    source.place_generation = generation;
    return ProtectionDomain{static_cast<std::uint32_t>(head >> 32U)};
  }
  return std::nullopt;
}

std::optional<MptGrant> MptView::find_grant(DirectAccess& direct, Stag tag, MptSource& source) {
  const SetRange set = set_range(slots_in(direct.mpt), tag.index());
  const PeerMemory memory = direct.bridge.local_memory();
  for (std::size_t way = 0; way < set.ways; ++way) {
    const std::size_t at = direct.mpt.offset + (set.first + way) * sizeof(MptSlot);
    std::array<std::byte, sizeof(MptSlot)> copy;
    memory.next_message(at, copy.size());
    memory.copy_out(at, copy);
    const auto grant = decode_mpt_slot(copy, direct.tag_in);
    if (!grant || grant->tag != tag) continue;
    source.slot_at = at;
    source.slot_generation = grant->generation;
    return grant;
  }
  return std::nullopt;
}

ReadGrant MptView::find_readable(DirectAccess& direct, MptWriter reader, Stag tag, std::uint64_t address,
                                 std::uint64_t bytes) {
  const Remembered& known = recall(direct, reader, tag);
  const std::uint64_t offset = address - known.address;
  const bool inside = known.readable && address >= known.address && within(known.length, {offset, bytes});
  if (!inside) return {};
  return {WindowPlace(static_cast<std::size_t>(known.window_offset + offset)), known.source};
}

void MptView::look_up(DirectAccess& direct, Remembered& known) {
  known.granted = known.readable = false;
  const auto domain = find_domain(direct, known.writer, known.source);
  const auto grant = domain ? find_grant(direct, known.tag, known.source) : std::nullopt;
  if (!grant || !is_believable(direct, *grant)) return;
  const bool of_its_domain = grant->domain == *domain;
  const bool of_its_queue_pair = grant->queue_pair.value == 0 || grant->queue_pair == known.writer.peer;
  const bool usable = of_its_domain && of_its_queue_pair;
  known.granted = usable && grant->rights.has(Right::remote_write);
  known.readable = usable && grant->rights.has(Right::remote_read);
  known.address = grant->address;
  known.length = grant->length;
  known.window_offset = grant->window_offset;
}

}  // namespace splitnic::fabric
