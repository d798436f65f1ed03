#pragma once

#include "fabric/verbs/types.h"

namespace splitnic::verbs {

/// The address of a peer's port or of a multicast group, for any number of queue pairs
/// (ProtectionDomain::create_address_handle(), create_group_handle()). For connections it is valid for one life of the
/// bridge; afterwards, connecting by the handle is refused. A bare port address may instead reach a restarted peer,
/// which does not know what was agreed before. Datagrams can be sent by it as long as it exists.
class AddressHandle : public Handle<detail::AddressObject> {
 public:
  using Handle::Handle;

  /// True: the link is up, and it was not restarted since the handle was made.
  [[nodiscard]] bool valid() const;
  /// The port address; 0 in a null handle and in a group's.
  [[nodiscard]] PortAddress port() const;
};

}  // namespace splitnic::verbs
