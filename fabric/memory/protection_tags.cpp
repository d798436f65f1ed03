// The life of tags: registering, binding, invalidating. The checks are in protection_table.cpp.
#include "fabric/memory/protection_table.h"

#include <algorithm>

namespace splitnic::fabric {
namespace {

using Error = ProtectionError;

constexpr Rights kRemoteRights = Right::remote_read | Right::remote_write | Right::remote_atomic;
constexpr Rights kIscsiRights = Right::remote_read | Right::remote_write;

bool are_among(Rights rights, Rights allowed) { return (rights.bits & ~allowed.bits) == 0; }

/// Draws a base with the alignment of the memory within 4 KiB, and with room for any length below 2^63.
std::uint64_t draw_base(RandomSource& random, const RegionMemory& memory) {
  constexpr std::uint64_t kInPage = kSmallestPage - 1;
  constexpr std::uint64_t kPage = 0x7fff'ffff'ffff'ffff & ~kInPage;
  const std::uint64_t in_page = memory.first_byte_in_page();
  for (;;) {
    if (const std::uint64_t page = random.next() & kPage; page != 0) return page | in_page;
  }
}

bool reaches_beyond_64_bits(const std::optional<std::uint64_t>& base, std::uint64_t length) {
  return base && length != 0 && length - 1 > ~*base;
}

bool in_conflict(Rights rights, TouchControl touch) {
  return touch != TouchControl::unlimited && rights.has(Right::window_binding);
}

bool in_conflict(const EntryOptions& options) {
  const bool ends_early = options.touch != TouchControl::unlimited || options.invalidatable;
  return (options.placeable && ends_early) || in_conflict(options.rights, options.touch);
}

/// The verbs' rule, extended to reading: a window gives peers no right that the region's owner lacks.
bool may_bind(Rights region, Rights window) {
  const bool writes = window.has(Right::remote_write) || window.has(Right::remote_atomic);
  if (!region.has(Right::window_binding)) return false;
  if (writes && !region.has(Right::local_write)) return false;
  return !window.has(Right::remote_read) || region.has(Right::local_read);
}

}  // namespace

void ProtectionTable::set_rules(ProtectionDomain domain, DomainRules rules) { domains_[domain].rules = rules; }

void ProtectionTable::forget_domain(ProtectionDomain domain) {
  SPLITNIC_CHECK(tags_in(domain) == 0);
  domains_.erase(domain);
}

std::size_t ProtectionTable::tags_in(ProtectionDomain domain) const {
  const auto found = domains_.find(domain);
  return found == domains_.end() ? 0 : found->second.tags;
}

void ProtectionTable::end_bridge_memory(PathNumber path, std::span<const std::uint32_t> indices) {
  const auto ends = [&](std::uint32_t index) {
    const ProtectionEntry& entry = entry_at(index);
    return entry.kind == EntryKind::region && entry.memory.in_bridge() && entry.memory.path() == path;
  };
  if (std::any_of(indices.begin(), indices.end(),
                  [&](auto index) { return ends(index) && entry_at(index).bound != 0; })) {
    for (ProtectionEntry& entry : entries_) {
      if (is_window(entry.kind) && entry.valid && ends(entry.bound)) invalidate(entry);
    }
  }
  for (const std::uint32_t index : indices) {
    if (ends(index)) forget(index);
  }
}

void ProtectionTable::forget(std::uint32_t index) {
  ProtectionEntry& entry = entry_at(index);
  end_uses(entry);
  --domains_[entry.domain].tags;
  tags_.release(Stag::from(index, entry.instance));
  const std::uint32_t generation = entry.generation;
  entry = ProtectionEntry{};
  entry.generation = generation + 1;
}

std::uint32_t ProtectionTable::index_of(const ProtectionEntry& entry) const {
  return tags_.tag_of(static_cast<std::uint32_t>(&entry - entries_.data()), 0).index();
}

Stag ProtectionTable::tag_of(const ProtectionEntry& entry) const { return Stag::from(index_of(entry), entry.instance); }

auto ProtectionTable::allocate(ProtectionDomain domain, EntryKind kind) -> Checked<ProtectionEntry*> {
  const auto tag = tags_.allocate();
  if (!tag) return tl::unexpected(Error::table_full);
  __builtin_prefetch(&entries_[tags_.coming()], 1);
  Domain& of = domains_[domain];
  ++of.tags;
  ProtectionEntry& entry = entry_at(tag->index());
  SPLITNIC_CHECK(entry.kind == EntryKind::reserved && !entry.valid);
  entry.kind = kind;
  entry.instance = tag->instance();
  entry.domain = domain;
  entry.strict = of.rules == DomainRules::strict;
  return &entry;
}

void ProtectionTable::describe(ProtectionEntry& entry, const EntryOptions& options) {
  entry.length = entry.memory.size();
  entry.base = options.base ? *options.base : draw_base(random_, entry.memory);
  entry.rights = options.rights;
  entry.touch = options.touch;
  entry.placeable = options.placeable;
  entry.invalidatable = options.invalidatable;
  entry.queue_pair = options.queue_pair;
  entry.named_by_base = options.named_by_base;
  entry.touched = false;
  entry.valid = true;
  ++entry.generation;
}

/// Makes the entry invalid. The tag and the memory stay, so that the segment that ended the entry can still be placed.
void ProtectionTable::invalidate(ProtectionEntry& entry) {
  end_uses(entry);
  if (is_window(entry.kind) && entry.valid) {
    --entry_at(entry.bound).bound;
    entry.bound = 0;
  }
  entry.valid = false;
  entry.queue_pair = QpNumber{};
  ++entry.generation;
}

// Finds the entry that a tag's owner names: an index in use, the right kind, the right instance. Valid or not.
auto ProtectionTable::named(Stag tag, bool (*is_kind)(EntryKind)) -> Checked<ProtectionEntry*> {
  if (tags_.slot_of(tag.index()) >= entries_.size()) return tl::unexpected(Error::invalid_stag);
  ProtectionEntry& entry = entry_at(tag.index());
  if (entry.kind == EntryKind::reserved) return tl::unexpected(Error::invalid_stag);
  if (!is_kind(entry.kind)) return tl::unexpected(Error::wrong_kind);
  if (entry.instance != tag.instance()) return tl::unexpected(Error::stale_stag);
  return &entry;
}

auto ProtectionTable::named_by(Stag tag, bool (*is_kind)(EntryKind), const Consumer& consumer)
    -> Checked<ProtectionEntry*> {
  const auto entry = named(tag, is_kind);
  // The domain comes before the instance, as in every check.
  const bool exists = entry || entry.error() == Error::stale_stag;
  if (exists && entry_at(tag.index()).domain != consumer.domain) return tl::unexpected(Error::stag_not_associated);
  return entry;
}

std::optional<Stag> ProtectionTable::insert(ProtectionDomain domain, const RegionMemory& memory, Rights rights,
                                            bool placeable) {
  EntryOptions options;
  options.rights = rights;
  options.placeable = placeable;
  const auto tag = register_region(domain, memory, options);
  return tag ? std::optional(*tag) : std::nullopt;
}

auto ProtectionTable::register_region(ProtectionDomain domain, const RegionMemory& memory, const EntryOptions& options)
    -> Checked<Stag> {
  if (in_conflict(options)) return tl::unexpected(Error::options_conflict);
  if (reaches_beyond_64_bits(options.base, memory.size())) return tl::unexpected(Error::bad_range);
  const auto entry = allocate(domain, EntryKind::region);
  if (!entry) return tl::unexpected(entry.error());
  (*entry)->memory = memory;
  describe(**entry, options);
  return tag_of(**entry);
}

auto ProtectionTable::reregister(Stag region, const Reregister& change) -> Checked<Stag> {
  const auto found = named(region, is_region);
  if (!found) return tl::unexpected(found.error());
  ProtectionEntry& entry = **found;
  if (entry.fast) return tl::unexpected(Error::wrong_kind);
  if (!entry.valid) return tl::unexpected(Error::invalid_stag);
  if (entry.bound != 0) return tl::unexpected(Error::windows_bound);
  // The peer would keep its grant, and would continue to store directly.
  if (entry.placeable) return tl::unexpected(Error::options_conflict);
  if (in_conflict(change.rights.value_or(entry.rights), entry.touch)) return tl::unexpected(Error::options_conflict);
  end_uses(entry);
  if (change.domain) {
    --domains_[entry.domain].tags;
    Domain& into = domains_[*change.domain];
    ++into.tags;
    entry.domain = *change.domain;
    entry.strict = into.rules == DomainRules::strict;
  }
  if (change.memory) {
    entry.memory = *change.memory;
    entry.length = entry.memory.size();
    entry.base = change.base ? *change.base : draw_base(random_, entry.memory);
  }
  if (change.rights) entry.rights = *change.rights;
  entry.touched = false;
  ++entry.generation;
  if (change.keeps_tag && !change.memory) return region;
  const Stag renewed = tags_.renew(region);
  entry.instance = renewed.instance();
  return renewed;
}

auto ProtectionTable::deregister(Stag region) -> Checked<void> {
  const auto entry = named(region, is_region);
  if (!entry) return tl::unexpected(entry.error());
  if ((*entry)->bound != 0) return tl::unexpected(Error::windows_bound);
  forget(region.index());
  return {};
}

auto ProtectionTable::allocate_region(ProtectionDomain domain, std::size_t max_pages) -> Checked<Stag> {
  const auto entry = allocate(domain, EntryKind::region);
  if (!entry) return tl::unexpected(entry.error());
  (*entry)->memory = RegionMemory::for_pages(max_pages);
  (*entry)->fast = true;
  return tag_of(**entry);
}

auto ProtectionTable::fast_register(const FastRegister& request, const Consumer& consumer) -> Checked<Stag> {
  const auto found = named_by(request.tag, is_region, consumer);
  if (!found) return tl::unexpected(found.error());
  ProtectionEntry& entry = **found;
  if (!entry.fast) return tl::unexpected(Error::wrong_kind);
  if (entry.valid) return tl::unexpected(Error::already_valid);
  if (request.options.placeable || in_conflict(request.options)) return tl::unexpected(Error::options_conflict);
  const PageList& pages = request.pages;
  const bool fits = well_formed(pages) && pages.pages.size() <= entry.memory.pages()->max_pages();
  if (!fits) return tl::unexpected(Error::bad_page_list);
  if (reaches_beyond_64_bits(request.options.base, bytes_of(pages))) return tl::unexpected(Error::bad_range);
  entry.memory.assign(pages);
  describe(entry, request.options);
  const Stag renamed = tags_.rename(request.tag, request.key);
  entry.instance = renamed.instance();
  return renamed;
}

auto ProtectionTable::allocate_windows(ProtectionDomain domain, EntryKind kind, std::span<Stag> tags) -> Checked<void> {
  SPLITNIC_CHECK(is_window(kind));
  if (tags.size() > tags_.left()) return tl::unexpected(Error::table_full);
  for (Stag& tag : tags) tag = tag_of(**allocate(domain, kind));
  return {};
}

/// The region's side of a bind, in the order of the checks (S3 Fig. 15).
auto ProtectionTable::bindable(const Bind& request, const Consumer& consumer) const -> Checked<const ProtectionEntry*> {
  const Access access{request.region, consumer.domain, request.length, Right::window_binding, consumer.queue_pair, 0};
  const auto region = identify(access, Side::local);
  if (!region) return region;
  if (const auto in_range = range(**region, access, request.address); !in_range) {
    return tl::unexpected(in_range.error());
  }
  if (!may_bind((*region)->rights, request.rights)) return tl::unexpected(Error::binding_not_allowed);
  return region;
}

auto ProtectionTable::bind(const Bind& request, const Consumer& consumer) -> Checked<Stag> {
  const auto found = named_by(request.window, is_window, consumer);
  if (!found) return tl::unexpected(found.error());
  ProtectionEntry& window = **found;
  const bool type_2 = window.kind == EntryKind::window_type_2;
  const bool another_s = window.queue_pair.value != 0 && window.queue_pair != consumer.queue_pair;
  if (type_2 && (another_s || consumer.queue_pair.value == 0)) return tl::unexpected(Error::wrong_queue_pair);
  if (request.length == 0) return unbind(window);
  if (type_2 && window.valid) return tl::unexpected(Error::already_valid);
  const bool conflict = !are_among(request.rights, kRemoteRights) || (request.zero_based && !type_2);
  if (conflict) return tl::unexpected(Error::options_conflict);
  const auto region = bindable(request, consumer);
  if (!region) return tl::unexpected(region.error());

  invalidate(window);  // a type 1 window may be bound elsewhere
  window.base = request.zero_based ? 0 : request.address;
  window.length = request.length;
  window.offset = request.address - (*region)->base;
  window.rights = request.rights;
  window.touch = request.touch;
  window.touched = false;
  window.invalidatable = type_2 && request.invalidatable;
  if (type_2) window.queue_pair = consumer.queue_pair;
  window.bound = index_of(**region);
  ++entry_at(window.bound).bound;
  window.valid = true;
  ++window.generation;
  const Stag tag = type_2 ? tags_.rename(request.window, request.key) : tags_.renew(request.window);
  window.instance = tag.instance();
  return tag;
}

/// A type 1 window takes its next instance, as with every binding; the next binding of type 2 chooses one.
Stag ProtectionTable::unbind(ProtectionEntry& window) {
  invalidate(window);
  if (window.kind == EntryKind::window_type_1) window.instance = tags_.renew(tag_of(window)).instance();
  return tag_of(window);
}

auto ProtectionTable::unbind_for_rebind(Stag window) -> Checked<void> {
  const auto entry = named(window, is_window);
  if (!entry) return tl::unexpected(entry.error());
  invalidate(**entry);
  return {};
}

auto ProtectionTable::deallocate(Stag window) -> Checked<void> {
  const auto entry = named(window, is_window);
  if (!entry) return tl::unexpected(entry.error());
  invalidate(**entry);
  forget(window.index());
  return {};
}

// The order of the checks: valid, kind, domain, instance, binding. Whether the entry may be invalidated comes last.
auto ProtectionTable::to_invalidate(Stag tag, const Consumer& consumer) -> Checked<ProtectionEntry*> {
  if (tags_.slot_of(tag.index()) >= entries_.size()) return tl::unexpected(Error::invalid_stag);
  ProtectionEntry& entry = entry_at(tag.index());
  if (!entry.valid) return tl::unexpected(Error::invalid_stag);
  const bool kind = entry.kind == EntryKind::region || entry.kind == EntryKind::window_type_2;
  if (!kind) return tl::unexpected(Error::wrong_kind);
  if (entry.domain != consumer.domain) return tl::unexpected(Error::stag_not_associated);
  if (entry.instance != tag.instance()) return tl::unexpected(Error::stale_stag);
  const bool bound = entry.queue_pair.value != 0;
  if (bound && entry.queue_pair != consumer.queue_pair) return tl::unexpected(Error::wrong_queue_pair);
  return &entry;
}

auto ProtectionTable::invalidate_local(Stag tag, const Consumer& consumer) -> Checked<void> {
  const auto entry = to_invalidate(tag, consumer);
  if (!entry) return tl::unexpected(entry.error());
  const bool open = (*entry)->fast || (*entry)->kind == EntryKind::window_type_2;
  if (!open) return tl::unexpected(Error::cannot_invalidate);
  if ((*entry)->kind == EntryKind::region && (*entry)->bound != 0) return tl::unexpected(Error::windows_bound);
  invalidate(**entry);
  return {};
}

auto ProtectionTable::invalidate_remote(Stag tag, const Consumer& consumer) -> Checked<void> {
  const auto entry = to_invalidate(tag, consumer);
  if (!entry) return tl::unexpected(entry.error());
  if (!(*entry)->invalidatable) return tl::unexpected(Error::cannot_invalidate);
  if ((*entry)->kind == EntryKind::region && (*entry)->bound != 0) return tl::unexpected(Error::windows_bound);
  invalidate(**entry);
  return {};
}

auto ProtectionTable::register_iscsi(const Consumer& consumer, const RegionMemory& memory, Rights rights,
                                     std::uint64_t send_request) -> Checked<Stag> {
  if (!are_among(rights, kIscsiRights)) return tl::unexpected(Error::options_conflict);
  const auto entry = allocate(consumer.domain, EntryKind::iscsi);
  if (!entry) return tl::unexpected(entry.error());
  (*entry)->memory = memory;
  EntryOptions options;
  options.rights = rights;
  options.queue_pair = consumer.queue_pair;
  options.base = send_request;
  describe(**entry, options);
  return tag_of(**entry);
}

auto ProtectionTable::finish_iscsi(Stag tag, const Consumer& consumer) -> Checked<std::uint64_t> {
  const Access access{tag, consumer.domain, 0, Right::remote_read, consumer.queue_pair, 0};
  const auto entry = identify(access, Side::iscsi);
  if (!entry) return tl::unexpected(entry.error());
  const std::uint64_t send_request = (*entry)->base;
  forget(tag.index());
  return send_request;
}

}  // namespace splitnic::fabric
