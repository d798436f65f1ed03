#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>

/// The messages that two processes exchange on the Unix stream socket before they share memory: one each way, all
/// numbers little-endian. The layout of the first 16 bytes never changes, so that any two versions can identify each
/// other.
///
/// Host's hello:                                 Unit's reply, with four descriptors (SCM_RIGHTS) if status is 0:
///
///     0       8         12        16                0       8         12       16
///    +-------+---------+---------+                 +-------+---------+--------+
///    | magic | version | reserved|                 | magic | version | status |
///    +-------+---------+---------+                 +-------+---------+--------+
/// 16 | local bytes     | window bytes |         16 | local bytes     | window bytes |
///    +---------+-------+--------------+            +-----------------+--------------+
/// 32 | purpose | reser.| cookie       |         32 | cookie          | features     |
///    +---------+-------+--------------+            +-----------------+--------------+
/// 48 | features        | reserved     |         48 | reserved                       |
///    +-----------------+--------------+            +--------------------------------+
/// 64 | name, 64 bytes, padded by zeros|         64
///    +--------------------------------+
/// 128
///
/// Sizes from the host's view: "local" is the memory that the unit writes, "window" the memory that the host writes; 0
/// asks for the unit's size. Descriptors: memfd of the local memory, memfd of the window, the socket on which the host
/// hears doorbells, the eventfd by which it rings.
namespace splitnic::fabric {

inline constexpr std::uint64_t kShmSetupMagic = 0x3143494e544c5053;  // "SPLTNIC1"
inline constexpr std::uint32_t kShmSetupVersion = 2;
/// Of the part that has the same layout in every version.
inline constexpr std::size_t kShmIdentityBytes = 16;
inline constexpr std::size_t kShmHelloBytes = 128;
inline constexpr std::size_t kShmReplyBytes = 64;
inline constexpr std::size_t kShmNameBytes = 64;
inline constexpr std::size_t kShmSetupDescriptors = 4;

enum class ShmSetupStatus : std::uint32_t {
  ok = 0,
  other_version = 1,
  not_permitted = 2,
  bad_sizes = 3,
  no_resources = 4,
  no_place = 5,         ///< the unit has as many hosts as it may have
  user_limit = 6,       ///< one user's hosts or memory, or one session's queues, are as many as may be
  purpose_refused = 7,  ///< the unit does not serve this purpose
  no_session = 8,       ///< the cookie is not that of a session of this user
};

/// What a connection is for.
enum class ShmPurpose : std::uint32_t {
  session = 1,        ///< a host's session; the reply brings its cookie
  further_queue = 2,  ///< one more bridge for the session whose cookie the hello brings
  endnode = 3,        ///< a verbs endnode
};

/// Abilities, one bit each. An end sets those that it has; the reply names those that both have. A receiver ignores
/// bits that it does not know.
inline constexpr std::uint64_t kShmFeatureFurtherQueues = 1;

struct ShmHello {
  boost::endian::little_uint64_buf_t magic;
  boost::endian::little_uint32_buf_t version;
  boost::endian::little_uint32_buf_t reserved;
  boost::endian::little_uint64_buf_t local_bytes;
  boost::endian::little_uint64_buf_t window_bytes;
  boost::endian::little_uint32_buf_t purpose;
  boost::endian::little_uint32_buf_t reserved_2;
  boost::endian::little_uint64_buf_t cookie;
  boost::endian::little_uint64_buf_t features;
  boost::endian::little_uint64_buf_t reserved_3;
  std::array<char, kShmNameBytes> name;
};
static_assert(sizeof(ShmHello) == kShmHelloBytes && std::is_trivially_copyable_v<ShmHello> && alignof(ShmHello) == 1);
static_assert(offsetof(ShmHello, version) == 8 && offsetof(ShmHello, local_bytes) == 16);
static_assert(offsetof(ShmHello, purpose) == 32 && offsetof(ShmHello, cookie) == 40);
static_assert(offsetof(ShmHello, features) == 48 && offsetof(ShmHello, name) == 64);

struct ShmReply {
  boost::endian::little_uint64_buf_t magic;
  boost::endian::little_uint32_buf_t version;
  boost::endian::little_uint32_buf_t status;
  boost::endian::little_uint64_buf_t local_bytes;
  boost::endian::little_uint64_buf_t window_bytes;
  boost::endian::little_uint64_buf_t cookie;
  boost::endian::little_uint64_buf_t features;
  std::array<boost::endian::little_uint64_buf_t, 2> reserved;
};
static_assert(sizeof(ShmReply) == kShmReplyBytes && std::is_trivially_copyable_v<ShmReply> && alignof(ShmReply) == 1);
static_assert(offsetof(ShmReply, status) == 12 && offsetof(ShmReply, window_bytes) == 24);
static_assert(offsetof(ShmReply, cookie) == 32 && offsetof(ShmReply, features) == 40);

/// A hello that has been checked.
struct ShmHelloFields {
  std::uint64_t local_bytes = 0;  ///< any; the unit's options limit it
  std::uint64_t window_bytes = 0;
  ShmPurpose purpose = ShmPurpose::session;
  std::uint64_t cookie = 0;  ///< not 0 for a further queue, 0 for all others
  std::uint64_t features = 0;
  std::string name{};  ///< see is_valid_shm_name
};

enum class ShmHelloFault {
  incomplete,     ///< so far these can be the first bytes of a hello
  garbage,        ///< not a hello
  other_version,  ///< a hello of another version
};

struct ShmHelloError {
  ShmHelloFault fault = ShmHelloFault::garbage;
  const char* field = "";  ///< the first field that is wrong; empty if the hello is incomplete
};

/// At most kShmNameBytes bytes without control characters (bytes below 32, and 127). Empty: the host gives no name.
[[nodiscard]] bool is_valid_shm_name(std::string_view name);
/// fields: valid.
[[nodiscard]] ShmHello encode_shm_hello(const ShmHelloFields& fields);
/// received: what has come so far; bytes after the hello are ignored.
[[nodiscard]] tl::expected<ShmHelloFields, ShmHelloError> decode_shm_hello(std::span<const std::byte> received);

}  // namespace splitnic::fabric
