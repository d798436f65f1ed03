#include "fabric/memory/protection_error.h"

#include <boost/describe.hpp>

namespace splitnic::fabric {
namespace {

constexpr std::uint8_t kRdmaLayer = 0;
constexpr std::uint8_t kDdpLayer = 1;
constexpr TerminateCode kLocalCatastrophic{kRdmaLayer, 0, 0};
constexpr std::uint8_t kRemoteProtection = 1;
constexpr std::uint8_t kTaggedBuffer = 1;
constexpr std::uint8_t kUntaggedBuffer = 2;

bool is_local(ProtectedUse use) {
  return use == ProtectedUse::local_request || use == ProtectedUse::bind_request || use == ProtectedUse::receive;
}

/// DDP places tagged segments and reports their errors. It has no code for rights; RDMAP reports those.
bool by_ddp(ProtectedUse use) { return use == ProtectedUse::write || use == ProtectedUse::read_response; }

TerminateCode by(bool ddp, std::uint8_t ddp_code, std::uint8_t rdma_code) {
  return ddp ? TerminateCode{kDdpLayer, kTaggedBuffer, ddp_code}
             : TerminateCode{kRdmaLayer, kRemoteProtection, rdma_code};
}

}  // namespace

BOOST_DESCRIBE_ENUM(ProtectionError, invalid_stag, wrong_kind, stag_not_associated, stale_stag, wrong_queue_pair,
                    to_wrap, base_or_bounds_violation, access_rights_violation, misaligned_atomic, touched_twice,
                    memory_is_gone, cannot_invalidate, no_read_resource, unexpected_sequence, table_full, already_valid,
                    windows_bound, binding_not_allowed, options_conflict, bad_page_list, bad_range)
const char* to_string(ProtectionError error) { return boost::describe::enum_to_string(error, "?"); }

RefusedAs refused_as(ProtectionError error, ProtectedUse use) {
  if (use == ProtectedUse::bind_request) return RefusedAs::window_bind_error;
  if (is_local(use)) return RefusedAs::local_protection_error;
  switch (error) {
    case ProtectionError::memory_is_gone:
      return RefusedAs::remote_operation_error;
    case ProtectionError::misaligned_atomic:
    case ProtectionError::no_read_resource:
    case ProtectionError::unexpected_sequence:
      return RefusedAs::remote_invalid_request_error;
    default:
      return RefusedAs::remote_access_error;
  }
}

TerminateCode terminate_code(ProtectionError error, ProtectedUse use) {
  if (is_local(use)) return kLocalCatastrophic;
  const bool ddp = by_ddp(use);
  switch (error) {
    case ProtectionError::wrong_kind:
      if (use == ProtectedUse::invalidate) return {kRdmaLayer, kRemoteProtection, 0x09};
      return by(ddp, 0x00, 0x00);
    case ProtectionError::invalid_stag:
    case ProtectionError::stale_stag:
      return by(ddp, 0x00, 0x00);
    case ProtectionError::base_or_bounds_violation:
      return by(ddp, 0x01, 0x01);
    case ProtectionError::stag_not_associated:
    case ProtectionError::wrong_queue_pair:
      return by(ddp, 0x02, 0x03);
    case ProtectionError::to_wrap:
      return by(ddp, 0x03, 0x04);
    case ProtectionError::access_rights_violation:
    case ProtectionError::touched_twice:
      return {kRdmaLayer, kRemoteProtection, 0x02};
    case ProtectionError::misaligned_atomic:
      return {kRdmaLayer, kRemoteProtection, 0xff};
    case ProtectionError::cannot_invalidate:
    case ProtectionError::windows_bound:
      return {kRdmaLayer, kRemoteProtection, 0x09};
    case ProtectionError::no_read_resource:
      return {kDdpLayer, kUntaggedBuffer, 0x02};
    case ProtectionError::unexpected_sequence:
      return {kDdpLayer, kUntaggedBuffer, 0x03};
    default:
      return kLocalCatastrophic;
  }
}

}  // namespace splitnic::fabric
