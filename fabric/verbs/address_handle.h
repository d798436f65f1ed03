#pragma once

#include "fabric/verbs/types.h"

namespace splitnic::verbs {

/// The address of a path's peer or of a multicast group, for any number of queue pairs
/// (ProtectionDomain::create_address_handle(), create_group_handle()). For connections it is valid for one life of the
/// path; afterwards, connecting by the handle is refused. The path itself may instead lead to a restarted peer, which
/// does not know what was agreed before. Datagrams can be sent by the handle as long as it and the path exist.
class AddressHandle : public Handle<detail::AddressObject> {
 public:
  using Handle::Handle;

  /// True: the path is up, and was not restarted since the handle was made. False for a group.
  [[nodiscard]] bool valid() const;
  /// The port address; 0 in a null handle and in a group's.
  [[nodiscard]] PortAddress port() const;
};

}  // namespace splitnic::verbs
