// Verbs of the owner of a table: answered at once, and each answer foretold.
#include <algorithm>

#include "world.h"

namespace splitnic::sim {

using namespace fabric;

namespace {

template <class T>
std::string answer(const ProtectionTable::Checked<T>& result) {
  return result ? "ok" : to_string(result.error());
}

/// What a registration must answer if there is room.
std::string registration_verdict(const EntryOptions& options, std::size_t bytes) {
  if (ProtectionModel::conflict(options)) return "options_conflict";
  const bool wraps = options.base && bytes != 0 && *options.base + (bytes - 1) < *options.base;
  return wraps ? "bad_range" : "ok";
}

}  // namespace

void MemoryWorld::change_table() {
  using Verb = void (MemoryWorld::*)(std::size_t);
  static constexpr Verb kVerbs[] = {
      &MemoryWorld::register_process_memory,
      &MemoryWorld::register_process_memory,
      &MemoryWorld::register_process_memory,
      &MemoryWorld::register_bridge_memory,
      &MemoryWorld::register_bridge_memory,
      &MemoryWorld::register_pages,
      &MemoryWorld::reregister,
      &MemoryWorld::deregister,
      &MemoryWorld::deregister,
      &MemoryWorld::deregister,
      &MemoryWorld::deregister,
      &MemoryWorld::allocate_region,
      &MemoryWorld::allocate_window,
      &MemoryWorld::allocate_window,
      &MemoryWorld::deallocate_window,
      &MemoryWorld::deallocate_window,
      &MemoryWorld::allocate_domain,
      &MemoryWorld::deallocate_domain,
  };
  // The owner has twice as much to do.
  const std::size_t site = below(3) == 0 ? 1 + 2 * below(kPaths) : 2 * below(kPaths);
  (this->*kVerbs[below(std::size(kVerbs))])(site);
}

/// Something to begin with.
void MemoryWorld::stock(std::size_t path) {
  for (const std::size_t site : {2 * path, 2 * path + 1}) {
    for (int i = 0; i < 6; ++i) register_process_memory(site);
    register_bridge_memory(site);
    register_pages(site);
    allocate_region(site);
    for (int i = 0; i < 3; ++i) allocate_window(site);
  }
}

bool MemoryWorld::agree(const char* what, const std::string& says, const std::string& expected) {
  count(what, says);
  remember(std::string(what) + ": " + says);
  if (says != expected) violate(std::string(what) + " answers " + says + ", the model says " + expected);
  return says == expected && says == "ok";
}

/// What is in flight is finished before the meaning of a tag that it uses changes.
void MemoryWorld::make_way(std::size_t site, std::uint32_t index) {
  if (std::ranges::any_of(in_flight_, [&](const Draft& request) { return uses_tag(*request, site, index); })) settle();
}

void MemoryWorld::registered(std::size_t number, const char* what, const ProtectionTable::Checked<Stag>& made,
                             const EntryOptions& options, ProtectionDomain domain, const Pieces& where,
                             std::string expected) {
  Site& site = sites_[number];
  if (expected == "ok" && site.reference.table.entries.size() == kTags) expected = "table_full";
  if (!agree(what, answer(made), expected)) return;
  if (site.reference.table.entries.count(made->index()) != 0) return violate("a tag's index is given out twice");
  site.reference.table.adopt(*made, EntryKind::region, domain);
  site.reference.describe(made->index(), options, site.adapter->region_address(*made), where);
  note(number, *made);
}

void MemoryWorld::register_process_memory(std::size_t number) {
  make_way(number, 0);
  Site& site = sites_[number];
  const EntryOptions options = draw_options(number);
  const ProtectionDomain domain = draw_domain(number);
  // Neither the first nor the last page: nothing may ever change there.
  const std::size_t bytes = one_in(20) ? 0 : 1 + below(one_in(3) ? 200 : 2 * Arena::kPage);
  const std::size_t offset = Arena::kPage + below(Arena::kBytes - 2 * Arena::kPage - bytes);
  const Pieces where{{site.arena_image, offset, bytes}};
  const auto memory = RegionMemory::of_process(arenas_[site.arena_image].memory().subspan(offset, bytes));
  const auto made = site.adapter->table().register_region(domain, memory, options);
  registered(number, "register", made, options, domain, where, registration_verdict(options, bytes));
}

void MemoryWorld::register_bridge_memory(std::size_t number) {
  Site& site = sites_[number];
  if (images_[site.bridge_image].size() == 0) return register_process_memory(number);  // there is no bridge
  make_way(number, 0);
  EntryOptions options;
  options.rights = draw_rights();
  options.placeable = !one_in(3);
  if (one_in(6)) options.queue_pair = site.queues[below(kQueues)].number;
  const ProtectionDomain domain = draw_domain(number);
  const std::size_t lines = images_[site.bridge_image].size() / 64;
  const std::size_t bytes = 64 * (1 + below(32));
  const std::size_t offset = 64 * below(lines - bytes / 64);
  const Piece where{site.bridge_image, offset, bytes};
  const MemoryRange range{paths_[number / 2]->buffers_offset(number % 2) + offset, bytes};
  const bool quarantined = std::ranges::any_of(
      site.reference.quarantine, [&](const Reference::Revoked& revoked) { return overlap(revoked.range, where); });
  if (site.adapter->in_quarantine(range) != quarantined) violate("the model says otherwise about a quarantine");
  const auto made =
      site.adapter->register_bridge_memory(domain, range, options.rights, options.placeable, {}, options.queue_pair);
  if (quarantined) {
    static_cast<void>(agree("register bridge memory", made ? "ok" : "quarantined", "quarantined"));
    return;
  }
  const auto tag = made ? ProtectionTable::Checked<Stag>(*made) : tl::unexpected(ProtectionError::table_full);
  registered(number, "register bridge memory", tag, options, domain, {where}, "ok");
}

void MemoryWorld::register_pages(std::size_t number) {
  make_way(number, 0);
  Site& site = sites_[number];
  const EntryOptions options = draw_options(number);
  const ProtectionDomain domain = draw_domain(number);
  PageList list;
  std::vector<std::byte*> pages;
  const Pieces where = draw_pages(number, 1 + below(3), list, pages);
  const auto made = site.adapter->table().register_region(domain, RegionMemory::of_pages(list).value(), options);
  registered(number, "register pages", made, options, domain, where, registration_verdict(options, bytes_of(where)));
  if (made && verdicts_.clean()) site.reference.table.entries.at(made->index()).max_pages = pages.size();
}

void MemoryWorld::reregister(std::size_t number) {
  const Stag old = draw_tag(number, is_region);
  Site& site = sites_[number];
  // Placeable regions come and go by verbs of their own.
  if (const auto* entry = site.reference.find(old); entry != nullptr && entry->placeable) return;
  make_way(number, old.index());
  Reregister change;
  change.rights = draw_rights();
  if (one_in(3)) change.domain = draw_domain(number);
  Pieces where;
  if (one_in(3)) {
    const std::size_t bytes = 1 + below(2 * Arena::kPage);
    const std::size_t offset = Arena::kPage + below(Arena::kBytes - 2 * Arena::kPage - bytes);
    where = {{site.arena_image, offset, bytes}};
    change.memory = RegionMemory::of_process(arenas_[site.arena_image].memory().subspan(offset, bytes));
  }
  const std::string expected = site.reference.table.reregister(old, *change.rights);
  const auto made = site.adapter->table().reregister(old, change);
  if (!agree("reregister", answer(made), expected)) return;
  if (*made != site.reference.table.reregistered(old, *change.rights)) return violate("not the next instance");
  auto& entry = site.reference.table.entries.at(old.index());
  if (change.domain) entry.domain = *change.domain;
  if (!where.empty()) {
    site.reference.memory[old.index()] = where;
    entry.length = bytes_of(where);
    entry.base = site.adapter->region_address(*made);
    entry.max_pages = 0;
  }
  note(number, *made);
}

void MemoryWorld::deregister(std::size_t number) {
  const Stag gone = draw_tag(number, is_region);
  make_way(number, gone.index());
  Site& site = sites_[number];
  const std::string known = site.reference.table.deregister(gone);
  const std::string expected = known == "ok" ? "ok" : known == "windows_bound" ? "in_use" : "bad_tag";
  if (!agree("deregister", to_string(site.adapter->deregister(gone)), expected)) return;
  const auto entry = site.reference.table.entries.at(gone.index());
  if (entry.placeable && site.reference.memory.at(gone.index()).front().image == site.bridge_image) {
    site.reference.quarantine.push_back({gone, entry, site.reference.memory.at(gone.index()).front()});
  }
  site.reference.forget(gone.index());
}

void MemoryWorld::allocate_region(std::size_t number) {
  make_way(number, 0);
  Site& site = sites_[number];
  const ProtectionDomain domain = draw_domain(number);
  const std::size_t max_pages = 1 + below(2);
  const auto made = site.adapter->table().allocate_region(domain, max_pages);
  const bool full = site.reference.table.entries.size() == kTags;
  if (!agree("allocate region", answer(made), full ? "table_full" : "ok")) return;
  Reference::Entry& entry = site.reference.table.adopt(*made, EntryKind::region, domain);
  entry.fast = true;
  entry.max_pages = max_pages;
  note(number, *made);
}

void MemoryWorld::allocate_window(std::size_t number) {
  make_way(number, 0);
  Site& site = sites_[number];
  const ProtectionDomain domain = draw_domain(number);
  const EntryKind kind = one_in(2) ? EntryKind::window_type_1 : EntryKind::window_type_2;
  std::array<Stag, 2> tags{};
  const auto wanted = std::span(tags).first(1 + below(2));
  const bool full = site.reference.table.entries.size() + wanted.size() > kTags;
  const auto made = site.adapter->table().allocate_windows(domain, kind, wanted);
  if (!agree("allocate windows", answer(made), full ? "table_full" : "ok")) return;
  for (const Stag tag : wanted) {
    site.reference.table.adopt(tag, kind, domain);
    note(number, tag);
  }
}

void MemoryWorld::deallocate_window(std::size_t number) {
  const Stag gone = draw_tag(number, is_window);
  make_way(number, gone.index());
  Site& site = sites_[number];
  const std::string expected = site.reference.table.named(gone, is_window);
  if (!agree("deallocate window", answer(site.adapter->table().deallocate(gone)), expected)) return;
  site.reference.forget(gone.index());
}

void MemoryWorld::allocate_domain(std::size_t number) {
  Site& site = sites_[number];
  if (site.domains.size() == 4) return;
  const ProtectionDomain made = site.adapter->allocate_domain();
  const DomainRules rules = one_in(2) ? DomainRules::strict : DomainRules::verbs;
  site.adapter->table().set_rules(made, rules);
  site.reference.table.rules[made] = rules;
  site.domains.push_back(made);
  count("allocate domain", "ok", made.value);
}

void MemoryWorld::deallocate_domain(std::size_t number) {
  Site& site = sites_[number];
  const std::size_t which = below(site.domains.size());
  const ProtectionDomain gone = site.domains[which];
  const bool in_use = which < 2 || site.reference.table.tags_in(gone) != 0;
  if (!agree("deallocate domain", to_string(site.adapter->deallocate_domain(gone)), in_use ? "in_use" : "ok")) return;
  site.domains.erase(site.domains.begin() + static_cast<std::ptrdiff_t>(which));
  site.reference.table.rules.erase(gone);
}

}  // namespace splitnic::sim
