#pragma once

#include <sys/types.h>

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/mac_address.h"
#include "common/time.h"
#include "iounit/shared_addresses.h"

namespace splitnic::iounit {

/// A host's name, the user who owns it, and the address that it used last.
struct OwnedName {
  std::string name;
  std::optional<uid_t> user;      ///< nullopt: the bridge reported no user; every user without a number owns it
  MacAddress address{};           ///< zero: none, or another host has taken it over
  Time held_until = Time::min();  ///< nobody else gets the address before; kNever while the host is attached
  UnitNumber attached_to{};       ///< while it is attached
  /// What it used before `address`, held in the same way: neighbours still send there. Zero: none, or taken over.
  MacAddress previous{};
  Time previous_until = Time::min();
};

/// The names that hosts have brought, and their addresses. A name is its first user's, until that user has brought
/// kNamesPerUser other names since. So a user who invents names displaces only names of its own. Thread: the unit's.
class Ownership {
 public:
  static constexpr std::size_t kNamesPerUser = 64;

  /// Null: nobody has brought this name. Valid until the next change.
  [[nodiscard]] const OwnedName* find(const std::string& name) const;
  /// The name that uses the address, or holds it at this time; null: none.
  [[nodiscard]] const OwnedName* holder_of(const MacAddress& address, Time now) const;
  /// The known name from which the address is derived (stable_mac_for), whether its host is attached or not; null:
  /// none.
  [[nodiscard]] const OwnedName* derived_from(const MacAddress& address) const;

  /// The host of this name is attached to this unit and uses this address. If it used another one, that is held for it
  /// until previous_until, and the one before that is free.
  void attach(const std::string& name, std::optional<uid_t> user, const MacAddress& address, UnitNumber unit = {},
              Time previous_until = Time::min());
  /// The host has hung up.
  void detach(const std::string& name, Time held_until);

  /// Every known name, in alphabetical order.
  [[nodiscard]] std::vector<OwnedName> all() const;
  /// Every name with a user, the longest unused first: what must survive a restart of the unit.
  [[nodiscard]] std::vector<OwnedName> saved() const;
  /// Names from before a restart, in the order of saved(). Their addresses are held until then. Call before attach().
  void restore(const std::vector<OwnedName>& names, Time held_until);
  /// Changes whenever saved() has changed.
  [[nodiscard]] std::uint64_t revision() const { return revision_; }

 private:
  struct Entry {
    OwnedName owned;
    std::uint64_t last_use = 0;  ///< larger: more recent
  };
  Entry& entry_for(const std::string& name, std::optional<uid_t> user);
  void make_room(std::optional<uid_t> user);
  void give_address(Entry& entry, const MacAddress& address, Time previous_until);
  void free_previous(OwnedName& owned);

  std::map<std::string, Entry> names_;
  boost::unordered_flat_map<std::uint64_t, std::string> by_address_;  ///< OwnedName::address -> name
  boost::unordered_flat_map<std::uint64_t, std::string> previous_;    ///< OwnedName::previous -> name
  boost::unordered_flat_map<std::uint64_t, std::string> derived_;     ///< stable_mac_for(name) -> name
  std::uint64_t uses_ = 0;
  std::uint64_t revision_ = 0;
};

}  // namespace splitnic::iounit
