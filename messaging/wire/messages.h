#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <variant>

#include "messaging/wire/entries.h"
#include "messaging/wire/layout.h"

/// The push-push messages as values: what decode() makes of received bytes. Nothing here allocates; lists, frames and
/// CfgUtil data are views of the bytes that decode() was given.
namespace splitnic::messaging::wire {

/// Owner of the memory to its user: these pools are open to your RDMA writes. S1 IV.B.1.
struct BufferRecvPool {
  std::uint64_t transaction = 0;
  ListView<PoolAdvertisement> pools{};
};

/// User of the memory to its owner: I could use `packets` more elements of at least `packet_bytes`. S1 IV.B.1.
struct BufferRecvPoolGet {
  std::uint64_t transaction = 0;
  std::uint32_t packet_bytes = 0;
  std::uint32_t packets = 0;
};

/// Owner of the memory to its user: these elements are free again. S1 IV.A.2, IV.B.1.
struct BufferRecvPoolUpdate {
  std::uint64_t transaction = 0;
  ListView<ElementRun> runs{};
};

/// Either side: these pools are to be used no more. Answered by BufferPoolFlushReply. S1 IV.B.1.
struct BufferPoolFlushRequest {
  std::uint64_t transaction = 0;
  ListView<FlushedPool> pools{};
};

struct BufferPoolFlushReply {
  std::uint64_t transaction = 0;  ///< the request's
};

/// One frame in the message itself. S1 IV.B.2.
struct SendData {
  std::uint64_t transaction = 0;
  std::span<const std::byte> frame{};
};

/// Where the sender's RDMA writes have put frames, for pools that do not fit immediate data. S1 IV.B.2.
struct BufferRdmaIndicate {
  std::uint64_t transaction = 0;
  ListView<Indication> indications{};
};

/// Configuration and utilities, S1 IV.B.3. `code` may be no CfgRequest: that is answered with unknown_request.
struct CfgUtilRequest {
  std::uint64_t transaction = 0;
  std::uint32_t code = 0;
  std::span<const std::byte> data{};
};

struct CfgUtilReply {
  std::uint64_t transaction = 0;  ///< the request's
  CfgStatus status = CfgStatus::ok;
  std::span<const std::byte> data{};
};

/// The sender did not understand a message of ours. Understood in every version.
struct Unsupported {
  std::uint64_t transaction = 0;  ///< the message's that was not understood
  std::uint32_t offending_word = 0;
  std::uint16_t lowest_version = 0;
  std::uint16_t highest_version = 0;
  std::uint32_t reason = 0;  ///< an UnsupportedReason, or one that a later version has added
  friend bool operator==(const Unsupported&, const Unsupported&) = default;
};

using Message =
    std::variant<BufferRecvPool, BufferRecvPoolGet, BufferRecvPoolUpdate, BufferPoolFlushRequest, BufferPoolFlushReply,
                 SendData, BufferRdmaIndicate, CfgUtilRequest, CfgUtilReply, Unsupported>;

/// Which function the message has. The alternatives of Message are in the order of kFunctions.
inline Function function_of(const Message& message) { return kFunctions[message.index()]; }

/// What was negotiated: the most that a message may say. The defaults are the most that this implementation offers.
struct Limits {
  std::uint32_t message_bytes = sizeof(SendDataHead) + kMaxFrameBytes;
  std::uint32_t list_entries = 256;
  std::uint32_t frame_bytes = kMaxFrameBytes;
  std::uint32_t pool_elements = 65'536;
  std::uint32_t element_bytes = kMaxFrameBytes;
  std::uint32_t highest_pool = ~kReceiversPoolBit;
};

enum class DecodeReason : std::uint8_t {
  too_short,          ///< ends before the field is complete
  too_long,           ///< bytes after the message's end, or more bytes than were negotiated
  bad_version,        ///< a version that we do not speak
  unknown_function,   ///< a function that we do not know
  reserved_not_zero,  ///< a field that must be zero is not
  no_entries,         ///< a list without entries
  not_a_multiple,     ///< a list, or element bytes, that is no multiple of its unit
  count_over_limit,   ///< more entries, elements or packets than were negotiated
  bad_length,         ///< a byte count that is not the count of the bytes that follow
  out_of_range,       ///< a value outside its range
  wraps,              ///< an address or element range that passes the end of its space
};

std::string_view to_string(DecodeReason reason);

/// Why bytes are no message: the first field that is wrong, by name (static storage) and place.
struct MessageFault {
  DecodeReason reason = DecodeReason::too_short;
  std::uint32_t offset = 0;  ///< of the field, in bytes from the message's start
  std::string_view field{};
  std::uint32_t word = 0;         ///< the message's first word; 0 if it has no whole header
  std::uint64_t transaction = 0;  ///< the message's; 0 if it has no whole header
};

/// "BufferRecvPool: element bytes at 24: not a multiple", for logs and counters' details.
std::string to_string(const MessageFault& error);

/// Checks a received message completely and returns it as a value, or the first fault. Constant time but for lists,
/// whose every entry is checked. message: private memory (copied out of what the peer can write), any alignment, lent
/// as long as the value is used. No allocation, no exception. Thread: any.
[[nodiscard]] tl::expected<Message, MessageFault> decode(std::span<const std::byte> message, const Limits& limits);

/// The answer that such a fault calls for: only an unknown function or version has one, never a reply and never a code
/// with the top bit set, so that two peers cannot answer each other for ever. The sender limits its rate.
[[nodiscard]] std::optional<Unsupported> unsupported_answer(const MessageFault& error);

}  // namespace splitnic::messaging::wire
