#include "fabric/verbs/address_handle.h"

#include "fabric/verbs/objects.h"

namespace splitnic::verbs {

Expected<AddressHandle> ProtectionDomain::create_address_handle(PortAddress port) {
  if (!object_) return tl::unexpected(Status::bad_argument);
  const fabric::FabricLink& link = object_->context->link;
  if (!link.up()) return tl::unexpected(Status::link_down);
  if (port != link.peer_port_address()) return tl::unexpected(Status::bad_argument);
  const auto number = object_->context->adapter.create_address_handle({});
  if (!number) return tl::unexpected(Status::no_resources);
  return AddressHandle(std::make_shared<detail::AddressObject>(object_, port, link.incarnation(), *number));
}

Expected<AddressHandle> ProtectionDomain::create_group_handle(const Gid& group) {
  if (!object_ || !group.is_group()) return tl::unexpected(Status::bad_argument);
  fabric::AddressHandleOptions to;
  to.group = group;
  const auto number = object_->context->adapter.create_address_handle(to);
  if (!number) return tl::unexpected(Status::no_resources);
  const std::uint64_t life = object_->context->link.incarnation();
  return AddressHandle(std::make_shared<detail::AddressObject>(object_, PortAddress{}, life, *number));
}

bool AddressHandle::valid() const { return object_ && object_->valid(); }

PortAddress AddressHandle::port() const { return object_ ? object_->port : PortAddress{}; }

}  // namespace splitnic::verbs
