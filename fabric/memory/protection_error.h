#pragma once

#include <cstdint>

namespace splitnic::fabric {

/// Why the table refused. The names follow RFC 5040 section 8.1 and RFC 5041 section 7.1 where they have one.
enum class ProtectionError : std::uint8_t {
  // The checks of an access, in their order: the first failure is reported. S3 adds kind and instance, S4 adds used
  // one-shot entries.
  invalid_stag,         ///< no such index, no valid entry at it, or a one-shot entry that another operation took
  wrong_kind,           ///< this use needs another kind of entry
  stag_not_associated,  ///< the entry belongs to another protection domain
  stale_stag,           ///< the index is in use, but with another instance
  wrong_queue_pair,     ///< the entry is bound to another queue pair
  to_wrap,              ///< address + bytes is beyond 2^64
  base_or_bounds_violation,
  access_rights_violation,
  misaligned_atomic,  ///< not 8 bytes at a multiple of 8
  touched_twice,      ///< a second message ended in a one-touch entry (S3 table D)
  memory_is_gone,     ///< the check passed, but the process does not have the memory any more

  // Invalidation.
  cannot_invalidate,  ///< this entry can't be invalidated, or not by a peer

  // The queue of incoming read requests.
  no_read_resource,     ///< more requests wait than the negotiated depth allows
  unexpected_sequence,  ///< the message sequence number is not the next one

  // The life of tags.
  table_full,
  already_valid,        ///< a type 2 window or fast-registered region must be invalidated first
  windows_bound,        ///< windows are bound to this region
  binding_not_allowed,  ///< the region lacks window binding, or a right that the window's rights need
  options_conflict,     ///< rights or options that this kind of entry can't have, or can't combine
  bad_page_list,        ///< wrong page size, alignment or offsets, or more pages than were allocated
  bad_range,            ///< base + length is beyond 2^64, or the range is not inside the region
};
const char* to_string(ProtectionError error);

/// The operation that was refused. It decides who gets the error (a local completion, a message to the peer), and the
/// error's name.
enum class ProtectedUse : std::uint8_t {
  local_request,  ///< a posted segment (S3 Fig. 15): a completion here, no message
  bind_request,   ///< bind, fast-register, local invalidate: likewise
  receive,        ///< placing a send into a posted receive
  write,
  read_request,
  read_response,
  atomic,
  invalidate,  ///< a send that invalidates a tag
};

/// The completion status of the work request that was refused, by the verbs' names.
enum class RefusedAs : std::uint8_t {
  local_protection_error,
  window_bind_error,
  remote_access_error,           ///< completes at the peer, after the terminate message
  remote_invalid_request_error,  ///< likewise
  remote_operation_error,        ///< likewise; the fault is not the peer's
};
[[nodiscard]] RefusedAs refused_as(ProtectionError error, ProtectedUse use);

/// The content of a terminate message: layer (0 RDMA, 1 DDP), error type and code. Source: RFC 5040 section 4.8, RFC
/// 5041 section 8.2; the numbers are IANA's (registry rddp).
struct TerminateCode {
  std::uint8_t layer = 0;
  std::uint8_t type = 0;
  std::uint8_t code = 0;
  friend constexpr bool operator==(TerminateCode, TerminateCode) = default;
};
/// The terminate code for a refused message of a peer. A local failure is "local catastrophic" to the peer (0, 0, 0).
[[nodiscard]] TerminateCode terminate_code(ProtectionError error, ProtectedUse use);

}  // namespace splitnic::fabric
