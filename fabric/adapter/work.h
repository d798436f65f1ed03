#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/ids.h"

namespace splitnic::fabric {

/// What a verb answers at once. Everything else comes as a completion.
enum class [[nodiscard]] Status : std::uint8_t{
    ok,         queue_full, bad_queue_pair, bad_state,
    bad_tag,  ///< a local segment's tag is unknown, stale, of another domain, out of bounds or lacks the right
    bad_length, link_down,  no_resources,
};
const char* to_string(Status status);

/// What a work request does.
enum class Operation : std::uint8_t { send, rdma_write, rdma_write_with_immediate };

/// How a work request ended. Names after the verbs.
enum class CompletionStatus : std::uint8_t {
  success,
  local_length_error,  ///< a message longer than the posted receive
  local_protection_error,
  remote_access_error,  ///< the owner's table refused
  remote_operation_error,
  receiver_not_ready,  ///< retries exhausted, no receive was posted
  retry_exceeded,      ///< no acknowledgement
  flushed,             ///< queue pair in error
  outcome_unknown,     ///< an epoch went by while it was in flight
};
const char* to_string(CompletionStatus status);

/// Memory of this process, inside a region with local rights. Lent to the adapter until completion.
struct LocalSegment {
  std::byte* address = nullptr;
  std::uint32_t bytes = 0;
  Stag tag{};
};
inline constexpr std::size_t kMaxSegments = 4;

struct RemoteAddress {
  std::uint64_t address = 0;
  Stag tag{};
};

struct WorkRequest {
  std::uint64_t id = 0;  ///< the caller's, returned in the completion
  Operation operation = Operation::send;
  bool signalled = true;  ///< false: a completion only on failure
  std::array<LocalSegment, kMaxSegments> segments{};
  std::size_t segment_count = 0;
  RemoteAddress remote{};  ///< RDMA writes
  std::uint32_t immediate = 0;
  /// RDMA writes whose bytes the caller has stored through the peer window already (ChannelAdapter::claim_direct):
  /// their number; segments are empty then. 0: the adapter moves the segments.
  std::uint32_t placed_bytes = 0;
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  LocalSegment segment{};
};

struct Completion {
  std::uint64_t id = 0;
  QpNumber queue_pair{};
  CompletionStatus status = CompletionStatus::success;
  bool receive = false;        ///< of a receive request (or of a write with immediate, which consumes one)
  bool has_immediate = false;  ///< a write with immediate arrived: id is that of the receive it consumed
  std::uint32_t immediate = 0;
  std::uint32_t bytes = 0;  ///< received
};

}  // namespace splitnic::fabric
