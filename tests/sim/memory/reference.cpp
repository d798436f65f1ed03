#include "reference.h"

#include <algorithm>

namespace splitnic::sim {

using fabric::Access;
using fabric::CompletionStatus;
using fabric::Right;
using fabric::Stag;
using fabric::TouchControl;

Refusal refusal_of(Asked asked, const std::string& why) {
  const auto access_error = [](std::uint8_t layer, std::uint8_t code) {
    return Refusal{CompletionStatus::remote_access_error, {layer, 1, code}};
  };
  // DDP finds what is wrong with tagged segments, but has no code for rights; RDMAP finds the rest.
  const bool ddp = asked == Asked::write;
  const std::uint8_t layer = ddp ? 1 : 0;
  if (asked == Asked::invalidate && (why == "wrong_kind" || why == "cannot_invalidate" || why == "windows_bound")) {
    return access_error(0, 0x09);  // STag cannot be invalidated
  }
  if (why == "invalid_stag" || why == "stale_stag" || why == "wrong_kind") return access_error(layer, 0x00);
  if (why == "base_or_bounds_violation") return access_error(layer, 0x01);
  if (why == "stag_not_associated" || why == "wrong_queue_pair") return access_error(layer, ddp ? 0x02 : 0x03);
  if (why == "to_wrap") return access_error(layer, ddp ? 0x03 : 0x04);
  if (why == "access_rights_violation") return access_error(0, 0x02);
  if (why == "misaligned_atomic") return {CompletionStatus::remote_invalid_request_error, {0, 1, 0xff}};
  return {CompletionStatus::remote_operation_error, {0, 0, 0}};
}

std::string Reference::check(const Access& access, Side side, std::uint64_t address) const {
  const std::string verdict = table.check(access, side, address);
  const bool atomic = side == Side::remote && access.right == Right::remote_atomic;
  if (!atomic || (verdict != "ok" && verdict != "misaligned_atomic")) return verdict;
  // Here memory may begin anywhere: what counts is where the word is.
  const bool word = access.bytes == 8 && address % 8 == 0 && pieces(access.tag, address, 8).front().offset % 8 == 0;
  return word ? "ok" : "misaligned_atomic";
}

const Reference::Entry* Reference::find(Stag tag) const {
  const auto found = table.entries.find(tag.index());
  return found != table.entries.end() && found->second.instance == tag.instance() ? &found->second : nullptr;
}

Pieces Reference::pieces(Stag tag, std::uint64_t address, std::size_t bytes) const {
  const Entry& entry = table.entries.at(tag.index());
  const std::uint32_t region = fabric::is_window(entry.kind) ? entry.region : tag.index();
  return part_of(memory.at(region), static_cast<std::size_t>(table.offset_of(tag, address)), bytes);
}

Pieces Reference::storable(const Access& access, std::uint64_t address) const {
  if (const Entry* entry = find(access.tag); entry != nullptr && entry->placeable) {
    const bool in_bridge = memory.at(access.tag.index()).front().image == bridge_image;
    if (in_bridge && check(access, Side::remote, address) == "ok") return pieces(access.tag, address, access.bytes);
  }
  const Revoked* gone = revoked(access, address);
  if (gone == nullptr) return {};
  return part_of({gone->range}, static_cast<std::size_t>(address - gone->entry.base), access.bytes);
}

const Reference::Revoked* Reference::revoked(const Access& access, std::uint64_t address) const {
  const auto was_granted = [&](const Revoked& revoked) {
    const Entry& entry = revoked.entry;
    const std::uint64_t offset = address - entry.base;
    const bool inside = address >= entry.base && offset <= entry.length && access.bytes <= entry.length - offset;
    const bool usable = entry.domain == access.domain && !table.strict(entry.domain) &&
                        (entry.queue_pair == fabric::QpNumber{} || entry.queue_pair == access.queue_pair);
    return revoked.tag == access.tag && inside && usable && entry.rights.has(access.right);
  };
  const auto found = std::ranges::find_if(quarantine, was_granted);
  return found == quarantine.end() ? nullptr : &*found;
}

bool Reference::touch(const Access& access, bool read_request) {
  const TouchControl touch = table.entries.at(access.tag.index()).touch;
  const bool ends = touch != TouchControl::unlimited && !read_request;
  table.touch(access, ends);
  return ends;
}

void Reference::take(Queue& queue, const Answered& request) {
  queue.answered.push_back(request);
  if (queue.answered.size() <= queue.reads_in) return;
  const Answered displaced = queue.answered.front();
  queue.answered.pop_front();
  const Entry* entry = find(displaced.access.tag);
  const bool its_own = displaced.read && entry != nullptr && entry->valid && entry->touch == TouchControl::one_shot &&
                       entry->touched && entry->taker == displaced.access.queue_pair &&
                       entry->sequence == displaced.access.sequence;
  if (its_own) table.end(displaced.access.tag.index());
}

void Reference::end_taken(Queue& queue) {
  for (const Answered& answered : queue.answered) {
    const Entry* entry = find(answered.access.tag);
    const bool taken = answered.read && entry != nullptr && entry->valid && entry->touch == TouchControl::one_shot &&
                       entry->touched && entry->taker == queue.number;
    if (taken) table.end(answered.access.tag.index());
  }
  queue.answered.clear();
}

void Reference::describe(std::uint32_t index, const fabric::EntryOptions& options, std::uint64_t base,
                         const Pieces& where) {
  table.describe(index, options, base, bytes_of(where));
  memory[index] = where;
}

void Reference::forget(std::uint32_t index) {
  table.entries.erase(index);
  memory.erase(index);
}

void Reference::clear() {
  table.entries.clear();
  memory.clear();
  quarantine.clear();
}

}  // namespace splitnic::sim
