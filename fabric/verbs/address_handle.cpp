#include "fabric/verbs/address_handle.h"

#include "fabric/verbs/objects.h"

namespace splitnic::verbs {

Expected<AddressHandle> ProtectionDomain::create_address_handle(PortAddress port) {
  if (!object_) return tl::unexpected(Status::bad_argument);
  const fabric::FabricLink& link = object_->context->link;
  if (!link.up()) return tl::unexpected(Status::link_down);
  if (port != link.peer_port_address()) return tl::unexpected(Status::bad_argument);
  return AddressHandle(std::make_shared<detail::AddressObject>(object_, port, link.incarnation()));
}

bool AddressHandle::valid() const { return object_ && object_->valid(); }

PortAddress AddressHandle::port() const { return object_ ? object_->port : PortAddress{}; }

}  // namespace splitnic::verbs
