#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "fabric/memory/protection_table.h"

// GCC takes the moves of these short strings for overflows, so what is returned stays const.
// NOLINTBEGIN(performance-no-automatic-move)
namespace splitnic::fabric {

/// The protection table once more, as the plainest reading of its rules: a map, no sharing, nothing kept that can be
/// counted. Answers what the table must answer, "ok" or the refusal's name, and is then told what was allowed, with
/// what the table drew (tags, bases).
class ProtectionModel {
 public:
  struct Entry {
    EntryKind kind = EntryKind::region;
    bool fast = false;
    bool valid = false;
    std::uint8_t instance = 0;
    ProtectionDomain domain{};
    std::uint64_t base = 0;
    std::uint64_t length = 0;
    std::uint64_t offset = 0;
    int memory = 0;  ///< which of the test's memories; windows: their region's
    std::size_t max_pages = 0;
    Rights rights{};
    QpNumber queue_pair{};
    TouchControl touch = TouchControl::unlimited;
    bool touched = false;
    QpNumber taker{};
    std::uint32_t sequence = 0;
    bool placeable = false;
    bool invalidatable = false;
    std::uint32_t region = 0;  ///< a valid window's
  };
  enum class Side { local, remote, response, iscsi };

  std::map<std::uint32_t, Entry> entries;
  std::map<ProtectionDomain, DomainRules> rules;

  bool strict(ProtectionDomain domain) const { return rules.at(domain) == DomainRules::strict; }
  std::size_t windows_of(std::uint32_t region) const {
    return static_cast<std::size_t>(std::count_if(entries.begin(), entries.end(), [&](const auto& entry) {
      return is_window(entry.second.kind) && entry.second.valid && entry.second.region == region;
    }));
  }

  std::string identify(const Access& access, Side side) const {
    if (access.tag.index() == 0) return "wrong_kind";
    const auto found = entries.find(access.tag.index());
    if (found == entries.end() || !found->second.valid) return "invalid_stag";
    const Entry& entry = found->second;
    const bool same_operation = entry.taker == access.queue_pair && entry.sequence == access.sequence;
    const bool taken = entry.touch == TouchControl::one_shot && entry.touched;
    if (side != Side::local && taken && !same_operation) return "invalid_stag";
    if (!fits(entry, side)) return "wrong_kind";
    if (entry.domain != access.domain) return "stag_not_associated";
    if (entry.instance != access.tag.instance()) return "stale_stag";
    if (entry.queue_pair != QpNumber{} && entry.queue_pair != access.queue_pair) return "wrong_queue_pair";
    return "ok";
  }

  std::string range(const Access& access, std::uint64_t address) const {
    const Entry& entry = entries.at(access.tag.index());
    __extension__ using Wide = unsigned __int128;  // nothing wraps here
    const Wide first = entry.kind == EntryKind::iscsi ? 0 : entry.base;
    const Wide end = Wide{address} + access.bytes;
    if (end > Wide{1} << 64U) return "to_wrap";
    return address >= first && end <= first + entry.length ? "ok" : "base_or_bounds_violation";
  }

  std::string check(const Access& access, Side side, std::uint64_t address) const {
    if (const std::string known = identify(access, side); known != "ok") return known;
    if (const std::string inside = range(access, address); inside != "ok") return inside;
    const Entry& entry = entries.at(access.tag.index());
    Right right = access.right;
    if (side == Side::response) right = strict(entry.domain) ? Right::remote_write : Right::local_write;
    if (!entry.rights.has(right)) return "access_rights_violation";
    const bool word = access.bytes == 8 && address % 8 == 0 && offset_of(access.tag, address) % 8 == 0;
    return right == Right::remote_atomic && !word ? "misaligned_atomic" : "ok";
  }
  std::uint64_t offset_of(Stag tag, std::uint64_t address) const {
    const Entry& entry = entries.at(tag.index());
    return entry.offset + address - (entry.kind == EntryKind::iscsi ? 0 : entry.base);
  }

  /// For verbs of the owner: which entry is meant, valid or not.
  std::string named(Stag tag, bool (*is_kind)(EntryKind)) const {
    const auto found = entries.find(tag.index());
    if (found == entries.end()) return "invalid_stag";
    if (!is_kind(found->second.kind)) return "wrong_kind";
    return found->second.instance == tag.instance() ? "ok" : "stale_stag";
  }
  std::string named_by(Stag tag, bool (*is_kind)(EntryKind), ProtectionDomain domain) const {
    const std::string known = named(tag, is_kind);
    const bool looked = known == "ok" || known == "stale_stag";
    return looked && entries.at(tag.index()).domain != domain ? "stag_not_associated" : known;
  }

  std::string deregister(Stag tag) const {
    const std::string known = named(tag, is_region);
    return known == "ok" && windows_of(tag.index()) != 0 ? "windows_bound" : known;
  }

  std::string reregister(Stag tag, Rights rights) const {
    if (const std::string known = named(tag, is_region); known != "ok") return known;
    const Entry& entry = entries.at(tag.index());
    if (entry.fast) return "wrong_kind";
    if (!entry.valid) return "invalid_stag";
    if (windows_of(tag.index()) != 0) return "windows_bound";
    if (entry.placeable) return "options_conflict";
    return entry.touch != TouchControl::unlimited && rights.has(Right::window_binding) ? "options_conflict" : "ok";
  }

  static bool conflict(const EntryOptions& options) {
    const bool limited = options.touch != TouchControl::unlimited;
    if (limited && options.rights.has(Right::window_binding)) return true;
    return options.placeable && (limited || options.invalidatable);
  }

  std::string fast_register(const FastRegister& request, const Consumer& by) const {
    if (const std::string known = named_by(request.tag, is_region, by.domain); known != "ok") return known;
    const Entry& entry = entries.at(request.tag.index());
    if (!entry.fast) return "wrong_kind";
    if (entry.valid) return "already_valid";
    if (request.options.placeable || conflict(request.options)) return "options_conflict";
    return request.pages.pages.size() <= entry.max_pages ? "ok" : "bad_page_list";
  }

  std::string bind(const Bind& request, const Consumer& by) const {
    if (const std::string known = named_by(request.window, is_window, by.domain); known != "ok") return known;
    const Entry& window = entries.at(request.window.index());
    const bool type_2 = window.kind == EntryKind::window_type_2;
    if (type_2 && window.valid && window.queue_pair != by.queue_pair) return "wrong_queue_pair";
    if (request.length == 0) return "ok";
    if (type_2 && window.valid) return "already_valid";
    if ((request.rights.bits & 0x23U) != 0 || (request.zero_based && !type_2)) return "options_conflict";
    const Access access{request.region, by.domain, request.length, Right::window_binding, by.queue_pair, 0};
    if (const std::string known = identify(access, Side::local); known != "ok") return known;
    if (const std::string inside = range(access, request.address); inside != "ok") return inside;
    const Rights has = entries.at(request.region.index()).rights;
    const bool writes = request.rights.has(Right::remote_write) || request.rights.has(Right::remote_atomic);
    const bool reads = request.rights.has(Right::remote_read);
    const bool may = has.has(Right::window_binding) && (!writes || has.has(Right::local_write)) &&
                     (!reads || has.has(Right::local_read));
    return may ? "ok" : "binding_not_allowed";
  }

  std::string invalidate(Stag tag, const Consumer& by, bool by_peer) const {
    if (tag.index() == 0) return "wrong_kind";
    const auto found = entries.find(tag.index());
    if (found == entries.end() || !found->second.valid) return "invalid_stag";
    const Entry& entry = found->second;
    if (entry.kind != EntryKind::region && entry.kind != EntryKind::window_type_2) return "wrong_kind";
    if (entry.domain != by.domain) return "stag_not_associated";
    if (entry.instance != tag.instance()) return "stale_stag";
    if (entry.queue_pair != QpNumber{} && entry.queue_pair != by.queue_pair) return "wrong_queue_pair";
    const bool open = by_peer ? entry.invalidatable : entry.fast || entry.kind == EntryKind::window_type_2;
    if (!open) return "cannot_invalidate";
    return entry.kind == EntryKind::region && windows_of(tag.index()) != 0 ? "windows_bound" : "ok";
  }

  std::size_t tags_in(ProtectionDomain domain) const {
    return static_cast<std::size_t>(std::count_if(entries.begin(), entries.end(),
                                                  [&](const auto& entry) { return entry.second.domain == domain; }));
  }

  // What was allowed, and happened.

  Entry& adopt(Stag tag, EntryKind kind, ProtectionDomain domain) {
    Entry entry;
    entry.kind = kind;
    entry.instance = tag.instance();
    entry.domain = domain;
    return entries[tag.index()] = entry;
  }
  /// A region is valid from now on. base: the one asked for, or else the table's choice.
  void describe(std::uint32_t index, const EntryOptions& options, std::uint64_t base, std::uint64_t length) {
    Entry& entry = entries.at(index);
    entry.valid = true;
    entry.base = base;
    entry.length = length;
    entry.rights = options.rights;
    entry.touch = options.touch;
    entry.touched = false;
    entry.placeable = options.placeable;
    entry.invalidatable = options.invalidatable;
    entry.queue_pair = options.queue_pair;
  }
  /// Returns the tag that the bind must answer.
  Stag bound(const Bind& request, const Consumer& by) {
    const std::uint32_t index = request.window.index();
    Entry& window = entries.at(index);
    const bool type_2 = window.kind == EntryKind::window_type_2;
    if (!type_2) {
      ++window.instance;
    } else if (request.length != 0) {
      window.instance = request.key;
    }
    const Stag made = Stag::from(index, window.instance);
    end(index);
    if (request.length == 0) return made;
    const Entry& region = entries.at(request.region.index());
    window.valid = true;
    window.base = request.zero_based ? 0 : request.address;
    window.length = request.length;
    window.offset = request.address - region.base;
    window.memory = region.memory;
    window.rights = request.rights;
    window.touch = request.touch;
    window.touched = false;
    window.invalidatable = request.invalidatable && type_2;
    window.region = request.region.index();
    if (type_2) window.queue_pair = by.queue_pair;
    return made;
  }
  /// Returns the tag that the reregistration must answer.
  Stag reregistered(Stag old, Rights rights) {
    Entry& entry = entries.at(old.index());
    ++entry.instance;
    entry.rights = rights;
    entry.touched = false;
    return Stag::from(old.index(), entry.instance);
  }
  /// A checked access was carried out. ends: it was the last that the entry allows.
  void touch(const Access& access, bool ends) {
    Entry& entry = entries.at(access.tag.index());
    if (ends) return end(access.tag.index());
    if (entry.touch != TouchControl::one_shot) return;
    entry.touched = true;
    entry.taker = access.queue_pair;
    entry.sequence = access.sequence;
  }
  void end(std::uint32_t index) {
    Entry& entry = entries.at(index);
    entry.valid = false;
    entry.queue_pair = QpNumber{};
  }

 private:
  bool fits(const Entry& entry, Side side) const {
    const bool region = entry.kind == EntryKind::region;
    switch (side) {
      case Side::local:
        return region;
      case Side::remote:
        return is_window(entry.kind) || (region && !strict(entry.domain));
      case Side::response:
        return strict(entry.domain) ? is_window(entry.kind) : region;
      case Side::iscsi:
        return entry.kind == EntryKind::iscsi;
    }
    return false;
  }
};

}  // namespace splitnic::fabric
// NOLINTEND(performance-no-automatic-move)
