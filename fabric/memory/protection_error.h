#pragma once

#include <cstdint>

namespace splitnic::fabric {

/// Why the table refused. Names after RFC 5040 section 8.1 and RFC 5041 section 7.1, where these have one.
enum class ProtectionError : std::uint8_t {
  // The checks of an access, in their order: the first that fails is told. S3 adds kind and instance, S4 what has been
  // used.
  invalid_stag,         ///< no such index, no valid entry there, or a one-shot entry that another operation took
  wrong_kind,           ///< not an entry for this use
  stag_not_associated,  ///< another protection domain's
  stale_stag,           ///< the index lives on, this instance of it does not
  wrong_queue_pair,     ///< bound to another queue pair
  to_wrap,              ///< address + bytes goes beyond 2^64
  base_or_bounds_violation,
  access_rights_violation,
  misaligned_atomic,  ///< not 8 bytes at a multiple of 8
  touched_twice,      ///< a second message ended in a one-touch entry (S3 table D)
  memory_is_gone,     ///< the check passed, but the process has no such memory any more

  // Invalidation.
  cannot_invalidate,  ///< not that kind of entry, or (a peer's) not opened to it

  // The queue of incoming read requests.
  no_read_resource,     ///< its message sequence number lies beyond the negotiated depth
  unexpected_sequence,  ///< its message sequence number has been used

  // The life of tags.
  table_full,
  already_valid,        ///< a type 2 window or fast-registered region must be invalidated first
  windows_bound,        ///< windows index this region's translation
  binding_not_allowed,  ///< the region lacks window binding, or a right that the window's rights build on
  options_conflict,     ///< rights or options that this kind of entry can't have, or not together
  bad_page_list,        ///< page size, alignment, offsets, or longer than was allocated
  bad_range,            ///< base + length goes beyond 2^64, or is not a range of the region
};
const char* to_string(ProtectionError error);

/// What arrived, or what a local request does: decides who is told, and by which name.
enum class ProtectedUse : std::uint8_t {
  local_request,  ///< a posted segment (S3 Fig. 15): a completion here, no message
  bind_request,   ///< bind, fast-register, local invalidate: likewise
  receive,        ///< placing a send into a posted receive
  write,
  read_request,
  read_response,
  atomic,
  invalidate,  ///< a send that names a tag
};

/// How the work request behind a refusal ends, after the verbs' names.
enum class RefusedAs : std::uint8_t {
  local_protection_error,
  window_bind_error,
  remote_access_error,           ///< at the peer, by the terminate message
  remote_invalid_request_error,  ///< likewise
  remote_operation_error,        ///< likewise: not the peer's fault
};
[[nodiscard]] RefusedAs refused_as(ProtectionError error, ProtectedUse use);

/// What a terminate message says: layer (0 RDMA, 1 DDP), error type and code. Source: RFC 5040 section 4.8, RFC 5041
/// section 8.2; the numbers are IANA's (registry rddp).
struct TerminateCode {
  std::uint8_t layer = 0;
  std::uint8_t type = 0;
  std::uint8_t code = 0;
  friend constexpr bool operator==(TerminateCode, TerminateCode) = default;
};
/// For what a peer's message can make fail; a local failure is "local catastrophic" to the peer (0, 0, 0).
[[nodiscard]] TerminateCode terminate_code(ProtectionError error, ProtectedUse use);

}  // namespace splitnic::fabric
