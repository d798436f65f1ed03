#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

/// The bytes of the push-push messages (S1 section IV.B; docs/protocol.md, "Messages"). All numbers are little-endian.
/// The structs below have alignment 1 and no padding; code copies them only from and to private memory.
namespace splitnic::messaging::wire {

/// The protocol versions that this implementation speaks.
inline constexpr std::uint16_t kLowestVersion = 1;
inline constexpr std::uint16_t kHighestVersion = 1;

/// The function code of a message, as on the wire. A receiver never answers a code with the top bit set by Unsupported.
enum class Function : std::uint16_t {
  buffer_recv_pool = 1,
  buffer_recv_pool_get = 2,
  buffer_recv_pool_update = 3,
  buffer_pool_flush_request = 4,
  buffer_pool_flush_reply = 5,
  send_data = 6,
  buffer_rdma_indicate = 7,
  cfg_util_request = 8,
  cfg_util_reply = 9,
  unsupported = 0x8000,
};

inline constexpr std::array kFunctions{
    Function::buffer_recv_pool,        Function::buffer_recv_pool_get,
    Function::buffer_recv_pool_update, Function::buffer_pool_flush_request,
    Function::buffer_pool_flush_reply, Function::send_data,
    Function::buffer_rdma_indicate,    Function::cfg_util_request,
    Function::cfg_util_reply,          Function::unsupported,
};

/// S1's spelling ("BufferRecvPool"), the key of the message counters; "unknown" for any other number.
std::string_view to_string(Function function);

/// The function's index in kFunctions, for arrays of counters. function: must be in kFunctions.
constexpr std::size_t index_of(Function function) {
  return function == Function::unsupported ? kFunctions.size() - 1 : static_cast<std::size_t>(function) - 1;
}

/// The request code of a CfgUtilRequest, as on the wire.
enum class CfgRequest : std::uint32_t {
  hello = 1,
  set_mac_address = 2,
  set_mtu = 3,
  link_state = 4,
  set_receive_filter = 5,
  set_vlan_filter = 6,
  set_moderation = 7,
  statistics_report = 8,
  statistics_clear = 9,
  status_report = 10,
  heartbeat = 11,
  reset = 12,
};

inline constexpr std::uint32_t kLastCfgRequest = static_cast<std::uint32_t>(CfgRequest::reset);

/// The result of a CfgUtilRequest, as on the wire.
enum class CfgStatus : std::uint32_t {
  ok = 0,
  unknown_request = 1,
  invalid_parameter = 2,
  not_permitted = 3,
  busy = 4,
  no_resources = 5,
  malformed = 6,
};

inline constexpr std::uint32_t kLastCfgStatus = static_cast<std::uint32_t>(CfgStatus::malformed);

std::string_view to_string(CfgRequest request);
std::string_view to_string(CfgStatus status);

/// Why the receiver of a message sent Unsupported.
enum class UnsupportedReason : std::uint32_t { unknown_function = 1, version = 2 };

using boost::endian::little_uint16_buf_t;
using boost::endian::little_uint32_buf_t;
using boost::endian::little_uint64_buf_t;

//   31             16 15              0
//  +-----------------+-----------------+
//  |    function     |     version     |   0    one 32-bit word: bytes 0-1 version, bytes 2-3 function
//  +-----------------+-----------------+
//  |        transaction context        |   4    64 bits: chosen by the requester, echoed in the reply,
//  |                                   |   8    0 in a message that is no reply and expects none
//  +-----------------------------------+
struct MessageHeader {
  little_uint16_buf_t version;
  little_uint16_buf_t function;
  little_uint64_buf_t transaction;
};

// BufferRecvPool (1): this head, then n entries.
struct BufferRecvPoolHead {
  MessageHeader header;
  little_uint32_buf_t reserved;
};

//  +-----------------------------------+
//  |               pool                |   0
//  |             elements              |   4    1 .. limit
//  |           element bytes           |   8    a multiple of 64, and the stride
//  |           memory handle           |  12    the region's tag
//  |              address              |  16    64 bits: of element 0
//  |           pool context            |  24    64 bits: only the owner interprets it
//  +-----------------------------------+
struct PoolEntry {
  little_uint32_buf_t pool;
  little_uint32_buf_t elements;
  little_uint32_buf_t element_bytes;
  little_uint32_buf_t memory_handle;
  little_uint64_buf_t address;
  little_uint64_buf_t context;
};

// BufferRecvPoolGet (2)
struct BufferRecvPoolGetBody {
  MessageHeader header;
  little_uint32_buf_t packet_bytes;
  little_uint32_buf_t packets;
};

// BufferRecvPoolUpdate (3): the header, then n entries.
//  +-----------------------------------+
//  |               pool                |   0
//  |           first element           |   4
//  |             elements              |   8    1 .. : this many, starting at the first, are free again
//  +-----------------------------------+
struct UpdateEntry {
  little_uint32_buf_t pool;
  little_uint32_buf_t first;
  little_uint32_buf_t elements;
};

// BufferPoolFlushRequest (4): the header, then n entries.
//  +-+---------------------------------+
//  |R|             pool                |   0    R (bit 31): the pool is the receiver's, else it is the sender's
//  +-+---------------------------------+
struct FlushEntry {
  little_uint32_buf_t pool;
};

inline constexpr std::uint32_t kReceiversPoolBit = 0x8000'0000U;

// BufferPoolFlushReply (5) is a header alone.

// SendData (6): this head, then the frame.
struct SendDataHead {
  MessageHeader header;
  little_uint32_buf_t bytes;
};

// BufferRDMAIndicate (7): the header, then n entries.
//  +-----------------------------------+
//  |               pool                |   0
//  |              element              |   4
//  |              length               |   8    bytes from the element's start
//  +-----------------------------------+
struct IndicateEntry {
  little_uint32_buf_t pool;
  little_uint32_buf_t element;
  little_uint32_buf_t length;
};

// CfgUtilRequest (8) and CfgUtilReply (9): this head, then the data, which starts at a multiple of 8.
//  +-----------------------------------+
//  |       request code / status       |  12
//  |            data bytes             |  16
//  |             reserved              |  20    zero
//  |               data                |  24
struct CfgUtilHead {
  MessageHeader header;
  little_uint32_buf_t code;
  little_uint32_buf_t data_bytes;
  little_uint32_buf_t reserved;
};

// Unsupported (0x8000): every version understands it, so its layout never changes.
//  +-----------------------------------+
//  |          offending word           |  12    the first word of the message that the receiver did not understand
//  +-----------------+-----------------+
//  | highest version | lowest version  |  16    that the sender of Unsupported speaks
//  +-----------------+-----------------+
//  |              reason               |  20    1 unknown function, 2 version
//  +-----------------------------------+
struct UnsupportedBody {
  MessageHeader header;
  little_uint32_buf_t offending_word;
  little_uint16_buf_t lowest_version;
  little_uint16_buf_t highest_version;
  little_uint32_buf_t reason;
};

static_assert(sizeof(MessageHeader) == 12 && alignof(MessageHeader) == 1);
static_assert(offsetof(MessageHeader, function) == 2 && offsetof(MessageHeader, transaction) == 4);
static_assert(sizeof(BufferRecvPoolHead) == 16 && offsetof(BufferRecvPoolHead, reserved) == 12);
static_assert(sizeof(PoolEntry) == 32 && offsetof(PoolEntry, memory_handle) == 12);
static_assert(offsetof(PoolEntry, address) == 16 && offsetof(PoolEntry, context) == 24);
static_assert(sizeof(BufferRecvPoolGetBody) == 20 && offsetof(BufferRecvPoolGetBody, packets) == 16);
static_assert(sizeof(UpdateEntry) == 12 && offsetof(UpdateEntry, elements) == 8);
static_assert(sizeof(FlushEntry) == 4);
static_assert(sizeof(SendDataHead) == 16 && offsetof(SendDataHead, bytes) == 12);
static_assert(sizeof(IndicateEntry) == 12 && offsetof(IndicateEntry, length) == 8);
static_assert(sizeof(CfgUtilHead) == 24 && offsetof(CfgUtilHead, data_bytes) == 16);
static_assert(sizeof(UnsupportedBody) == 24 && offsetof(UnsupportedBody, highest_version) == 18);
static_assert(std::is_trivially_copyable_v<PoolEntry> && std::is_trivially_copyable_v<UpdateEntry> &&
              std::is_trivially_copyable_v<IndicateEntry> && std::is_trivially_copyable_v<FlushEntry> &&
              std::is_trivially_copyable_v<BufferRecvPoolHead> && std::is_trivially_copyable_v<SendDataHead> &&
              std::is_trivially_copyable_v<BufferRecvPoolGetBody> && std::is_trivially_copyable_v<CfgUtilHead> &&
              std::is_trivially_copyable_v<UnsupportedBody>);

}  // namespace splitnic::messaging::wire
