#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fabric/bridge/shm_bridge.h"

/// The messages that two processes exchange on the Unix stream socket before they share memory: one each way, all
/// numbers little-endian. The layout of the first 16 bytes never changes, so that any two versions can identify each
/// other.
///
/// Host's hello:                              Unit's reply, with three descriptors (SCM_RIGHTS) if status is 0:
///
///     0       8         12        16             0       8         12       16
///    +-------+---------+---------+              +-------+---------+--------+
///    | magic | version | reserved|              | magic | version | status |
///    +-------+---------+---------+              +-------+---------+--------+
/// 16 | local bytes     | window bytes |      16 | local bytes     | window bytes |
///    +-----------------+--------------+         +-----------------+--------------+
///
/// Sizes from the host's view: "local" is the memory that the unit writes, "window" the memory that the host writes; 0
/// asks for the unit's default. Descriptors: memfd of the local memory, memfd of the window, the host's end of the
/// doorbell socket.
namespace splitnic::fabric {

inline constexpr std::uint64_t kShmSetupMagic = 0x3143494e544c5053;  // "SPLTNIC1"
inline constexpr std::uint32_t kShmSetupVersion = 1;
inline constexpr std::size_t kShmSetupBytes = 32;
inline constexpr std::size_t kShmSetupDescriptors = 3;

enum class ShmSetupStatus : std::uint32_t {
  ok = 0,
  other_version = 1,
  not_permitted = 2,
  bad_sizes = 3,
  no_resources = 4
};

struct ShmHello {
  boost::endian::little_uint64_buf_t magic;
  boost::endian::little_uint32_buf_t version;
  boost::endian::little_uint32_buf_t reserved;
  boost::endian::little_uint64_buf_t local_bytes;
  boost::endian::little_uint64_buf_t window_bytes;
};
static_assert(sizeof(ShmHello) == kShmSetupBytes && std::is_trivially_copyable_v<ShmHello> && alignof(ShmHello) == 1);
static_assert(offsetof(ShmHello, version) == 8 && offsetof(ShmHello, local_bytes) == 16);

struct ShmReply {
  boost::endian::little_uint64_buf_t magic;
  boost::endian::little_uint32_buf_t version;
  boost::endian::little_uint32_buf_t status;
  boost::endian::little_uint64_buf_t local_bytes;
  boost::endian::little_uint64_buf_t window_bytes;
};
static_assert(sizeof(ShmReply) == kShmSetupBytes && std::is_trivially_copyable_v<ShmReply> && alignof(ShmReply) == 1);
static_assert(offsetof(ShmReply, status) == 12 && offsetof(ShmReply, window_bytes) == 24);

}  // namespace splitnic::fabric
