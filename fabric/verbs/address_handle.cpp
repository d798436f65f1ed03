#include "fabric/verbs/address_handle.h"

#include "fabric/verbs/objects.h"

namespace splitnic::verbs {

Expected<AddressHandle> ProtectionDomain::create_address_handle(const Path& path) {
  const bool own = object_ && path && path.object()->context == object_->context;
  if (!own) return tl::unexpected(Status::bad_argument);
  if (!path.up()) return tl::unexpected(Status::link_down);
  fabric::AddressHandleOptions to;
  to.path = path.number();
  const auto number = object_->context->adapter.create_address_handle(to);
  if (!number) return tl::unexpected(Status::no_resources);
  return AddressHandle(std::make_shared<detail::AddressObject>(object_, path.object(), *number));
}

Expected<AddressHandle> ProtectionDomain::create_group_handle(const Gid& group) {
  if (!object_ || !group.is_group()) return tl::unexpected(Status::bad_argument);
  fabric::AddressHandleOptions to;
  to.group = group;
  const auto number = object_->context->adapter.create_address_handle(to);
  if (!number) return tl::unexpected(Status::no_resources);
  return AddressHandle(std::make_shared<detail::AddressObject>(object_, nullptr, *number));
}

bool AddressHandle::valid() const { return object_ && object_->way() != nullptr; }

PortAddress AddressHandle::port() const { return object_ ? object_->port : PortAddress{}; }

}  // namespace splitnic::verbs
