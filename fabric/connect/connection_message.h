#pragma once

#include <algorithm>
#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tl/expected.hpp>
#include <type_traits>

#include "common/strong_id.h"
#include "fabric/ids.h"

namespace splitnic::fabric {

/// What a listener listens on; 0 is never one. Source: InfiniBand, 12.7 (ServiceID).
using ServiceNumber = StrongId<struct ServiceNumberTag, std::uint64_t>;
/// One end's name of a connection, drawn at random; 0 is never one. Source: InfiniBand, 12.7 (communication ID).
using ConnectionNumber = StrongId<struct ConnectionNumberTag, std::uint32_t>;

/// All messages go from queue pair 1 to queue pair 1, under this queue key. Source: InfiniBand, 3.5.2 and 10.2.5 (the
/// general service interface).
inline constexpr QpNumber kConnectionQueuePair{1};
inline constexpr std::uint32_t kConnectionQueueKey = 0x8001'0000;

/// Bytes of the programs that a message carries. A request leaves less room for them.
inline constexpr std::size_t kMaxPrivateBytes = 196;
inline constexpr std::size_t kMaxRequestPrivateBytes = 188;

/// The bytes that a program gives to the program at the other end, by value.
class PrivateData {
 public:
  PrivateData() = default;
  /// nullopt: more than kMaxPrivateBytes.
  [[nodiscard]] static std::optional<PrivateData> of(std::span<const std::byte> bytes) {
    if (bytes.size() > kMaxPrivateBytes) return std::nullopt;
    PrivateData made;
    made.size_ = static_cast<std::uint8_t>(bytes.size());
    std::ranges::copy(bytes, made.bytes_.begin());
    return made;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }
  [[nodiscard]] std::size_t size() const { return size_; }
  friend bool operator==(const PrivateData& a, const PrivateData& b) {
    return std::ranges::equal(a.bytes(), b.bytes());
  }

 private:
  std::array<std::byte, kMaxPrivateBytes> bytes_{};
  std::uint8_t size_ = 0;
};

/// Source: InfiniBand, 12.6 (attribute IDs of the same messages).
enum class ConnectionMessageKind : std::uint8_t {
  request = 0x10,             ///< REQ: from the end that connects to the service
  received = 0x11,            ///< MRA: the program there still considers the request
  reject = 0x12,              ///< REJ: there is no connection, or no longer
  reply = 0x13,               ///< REP: accepted; the queue pair there is ready
  ready = 0x14,               ///< RTU: the reply has come; messages may flow both ways
  disconnect_request = 0x15,  ///< DREQ: an orderly end
  disconnect_reply = 0x16,    ///< DREP: it was noticed
};

/// Why there is no connection. Source: InfiniBand, table 12-17 (reject reasons); the numbers are the same.
enum class RejectReason : std::uint16_t {
  none = 0,
  no_queue_pair = 1,       ///< the queue pair could not be connected
  no_resources = 3,        ///< the table of connections is full
  timeout = 4,             ///< the sender waited for too long
  unknown_connection = 6,  ///< the sender knows no such connection
  no_listener = 8,         ///< nobody listens on the service number
  by_program = 28,         ///< the program at the other end said no
};
const char* to_string(RejectReason reason);

/// What can be wrong with a message.
enum class ConnectionFault : std::uint8_t {
  length,         ///< too short for its kind, or longer or shorter than it says
  version,        ///< not 1
  kind,           ///< unknown
  flags,          ///< unknown ones, or of another kind
  sender,         ///< connection 0, where the kind needs one
  receiver,       ///< connection 0, or one in a request
  queue_pair,     ///< not one that connects
  unused,         ///< a field that the kind does not use is not zero
  reason,         ///< unknown, or none in a reject
  service,        ///< 0
  private_bytes,  ///< more than the kind carries
};
inline constexpr std::size_t kConnectionFaults = 11;
const char* to_string(ConnectionFault fault);

/// Begins every message, little-endian. "own": of the message's sender.
///
///      0 version 8 (1) | kind 8 | flags 8 | private bytes 8
///      4 own connection 32              0 in a reject of a request
///      8 receiver's connection 32       0 in a request
///     12 own queue pair 32 (24 used)    request, reply
///     16 first PSN 32                   request, reply: of the packets that the sender will send
///     20 reads in 16 | reads out 16     request, reply: that the sender answers, or has outstanding, at a time
///     24 reason 16 | reserved 16        reject
///     28 service number 64              request only
///        private data                   0 .. 196 bytes; 188 in a request
///
/// flags: 1 in a request means an unacknowledged connection.
struct ConnectionHead {
  boost::endian::little_uint8_buf_t version;
  boost::endian::little_uint8_buf_t kind;
  boost::endian::little_uint8_buf_t flags;
  boost::endian::little_uint8_buf_t private_bytes;
  boost::endian::little_uint32_buf_t sender;
  boost::endian::little_uint32_buf_t receiver;
  boost::endian::little_uint32_buf_t queue_pair;
  boost::endian::little_uint32_buf_t first_psn;
  boost::endian::little_uint16_buf_t reads_in;
  boost::endian::little_uint16_buf_t reads_out;
  boost::endian::little_uint16_buf_t reason;
  boost::endian::little_uint16_buf_t reserved;
};
static_assert(sizeof(ConnectionHead) == 28 && alignof(ConnectionHead) == 1 &&
              std::is_trivially_copyable_v<ConnectionHead>);
static_assert(offsetof(ConnectionHead, sender) == 4 && offsetof(ConnectionHead, queue_pair) == 12 &&
              offsetof(ConnectionHead, reads_in) == 20 && offsetof(ConnectionHead, reason) == 24);
struct ConnectionService {
  boost::endian::little_uint64_buf_t service;
};
static_assert(sizeof(ConnectionService) == 8 && std::is_trivially_copyable_v<ConnectionService>);

inline constexpr std::uint8_t kConnectionVersion = 1;
inline constexpr std::uint8_t kConnectionUnacknowledged = 1;
/// The longest message; it fits a datagram in a cell of 256 bytes.
inline constexpr std::size_t kMaxConnectionMessage = sizeof(ConnectionHead) + kMaxPrivateBytes;
static_assert(kMaxConnectionMessage == 224);
static_assert(kMaxConnectionMessage == sizeof(ConnectionHead) + sizeof(ConnectionService) + kMaxRequestPrivateBytes);

/// What an end says about its queue pair.
struct ConnectionEnd {
  QpNumber queue_pair{};
  std::uint32_t first_psn = 0;
  std::uint16_t reads_in = 0;
  std::uint16_t reads_out = 0;
  bool acknowledged = true;  ///< in a request; in a reply it is the request's
  friend bool operator==(const ConnectionEnd&, const ConnectionEnd&) = default;
};

struct ConnectionMessage {
  ConnectionMessageKind kind = ConnectionMessageKind::request;
  ConnectionNumber sender{};
  ConnectionNumber receiver{};
  ConnectionEnd end{};  ///< request, reply
  RejectReason reason = RejectReason::none;
  ServiceNumber service{};
  PrivateData data{};
  friend bool operator==(const ConnectionMessage&, const ConnectionMessage&) = default;
};

/// Bytes of a message.
struct ConnectionMessageBytes {
  std::array<std::byte, kMaxConnectionMessage> bytes{};
  std::size_t size = 0;
  [[nodiscard]] std::span<std::byte> span() { return std::span(bytes).first(size); }
};

[[nodiscard]] ConnectionMessageBytes encode_connection(const ConnectionMessage& message);
/// A message, or one of the faults that it has.
[[nodiscard]] tl::expected<ConnectionMessage, ConnectionFault> decode_connection(std::span<const std::byte> bytes);
/// Bytes of a message of the kind with so many bytes of the program.
[[nodiscard]] constexpr std::size_t connection_message_bytes(ConnectionMessageKind kind, std::size_t private_bytes) {
  const bool request = kind == ConnectionMessageKind::request;
  return sizeof(ConnectionHead) + (request ? sizeof(ConnectionService) : 0) + private_bytes;
}

}  // namespace splitnic::fabric
