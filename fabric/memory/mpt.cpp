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
    slot.tag = grant.tag;
    slot.domain = grant.domain;
    if (++slot.generation == 0) slot.generation = 1;
    MptGrant with_generation = grant;
    with_generation.generation = slot.generation;
    const MptSlot wire = encode_mpt_slot(with_generation, direct.tag_out);
    PeerWindow& window = direct.bridge.peer_window();
    const std::size_t at = offset_of(direct, slot);
    // The generation is written last: a reader that sees it sees the rest; to any other reader the slot is empty.
    window.write(at + sizeof wire.generation, std::as_bytes(std::span(&wire, 1)).subspan(sizeof wire.generation));
    direct.bridge.publish();
    window.write_word<std::uint32_t>(at, slot.generation);
    count_change(direct);
    return true;
  }
  return false;
}

void MptPublisher::revoke(DirectAccess& direct, Stag tag) {
  for (Slot& slot : set_of(tag)) {
    if (!slot.used || slot.tag != tag) continue;
    slot.used = false;
    direct.bridge.peer_window().write_word<std::uint32_t>(offset_of(direct, slot), 0);
    return count_change(direct);
  }
}

bool MptPublisher::admit(DirectAccess& direct, const MptAdmission& admission) {
  const std::span<Place> set = set_of(admission.queue_pair);
  const auto same = [&](const Place& place) { return place.admission == admission; };
  if (std::ranges::any_of(set, same)) return true;
  for (Place& place : set) {
    if (place.admission.queue_pair.value != 0) continue;
    place.admission = admission;
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
    const ProtectionDomain domain = std::exchange(place.admission, {}).domain;
    direct.bridge.peer_window().write_word<std::uint64_t>(offset_of(direct, place), 0);
    count_change(direct);
    return std::ranges::any_of(slots_, [&](const Slot& slot) { return slot.used && slot.domain == domain; });
  }
  return false;
}

void MptView::start() { remembered_ = {}; }

/// The protection domain of the owner's end of a connection; nullopt: it is not admitted. A place that changes
/// meanwhile is not whole: its head differs before and after.
std::optional<ProtectionDomain> MptView::find_domain(DirectAccess& direct, const MptWriter& writer) {
  const MemoryRange& admissions = direct.admissions;
  const std::uint64_t ends = connection_ends(writer.peer, writer.queue_pair);
  const SetRange set = set_range(places_in(admissions), writer.peer.value);
  const PeerMemory memory = direct.bridge.local_memory();
  for (std::size_t way = 0; way < set.ways; ++way) {
    const std::size_t at = admissions.offset + kMptPlacesAt + (set.first + way) * sizeof(MptPlace);
    const auto head = memory.watch<std::uint64_t>(at);
    const bool empty = static_cast<std::uint32_t>(head) == 0;
    if (empty || memory.watch<std::uint64_t>(at + offsetof(MptPlace, ends)) != ends) continue;
    if (memory.watch<std::uint64_t>(at) == head) return ProtectionDomain{static_cast<std::uint32_t>(head >> 32U)};
  }
  return std::nullopt;
}

std::optional<MptGrant> MptView::find_grant(DirectAccess& direct, Stag tag) {
  const SetRange set = set_range(slots_in(direct.mpt), tag.index());
  const PeerMemory memory = direct.bridge.local_memory();
  for (std::size_t way = 0; way < set.ways; ++way) {
    const std::size_t at = direct.mpt.offset + (set.first + way) * sizeof(MptSlot);
    std::array<std::byte, sizeof(MptSlot)> copy;
    memory.next_message(at, copy.size());
    memory.copy_out(at, copy);
    const auto grant = decode_mpt_slot(copy, direct.tag_in);
    if (grant && grant->tag == tag) return grant;
  }
  return std::nullopt;
}

void MptView::look_up(DirectAccess& direct, Remembered& known) {
  known.granted = false;
  const auto domain = find_domain(direct, known.writer);
  const auto grant = domain ? find_grant(direct, known.tag) : std::nullopt;
  if (!grant || !is_believable(direct, *grant)) return;
  const bool of_its_domain = grant->domain == *domain;
  const bool of_its_queue_pair = grant->queue_pair.value == 0 || grant->queue_pair == known.writer.peer;
  known.granted = of_its_domain && of_its_queue_pair && grant->rights.has(Right::remote_write);
  known.address = grant->address;
  known.length = grant->length;
  known.window_offset = grant->window_offset;
}

}  // namespace splitnic::fabric
