#pragma once

#include "fabric/verbs/types.h"

namespace splitnic::verbs {

/// The way to a peer's port, found once for any number of queue pairs (ProtectionDomain::create_address_handle()). It
/// leads to one life of the bridge: where that is over, connecting by the handle is refused, while a port address by
/// itself may lead on to a peer who knows nothing of what was agreed.
class AddressHandle : public Handle<detail::AddressObject> {
 public:
  using Handle::Handle;

  /// The peer is there, and nothing has begun anew since the handle was made.
  [[nodiscard]] bool valid() const;
  /// 0 in a null handle.
  [[nodiscard]] PortAddress port() const;
};

}  // namespace splitnic::verbs
