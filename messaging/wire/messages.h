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

/// The push-push messages as values, which decode() makes from received bytes. Nothing here allocates; lists, frames
/// and CfgUtil data are views of the bytes that decode() was given.
namespace splitnic::messaging::wire {

/// From the owner of the memory to its user: the user may write into these pools by RDMA. S1 IV.B.1.
struct BufferRecvPool {
  std::uint64_t transaction = 0;
  ListView<PoolAdvertisement> pools{};
};

/// From the user of the memory to its owner: the user requests `packets` more elements of at least `packet_bytes`. S1
/// IV.B.1.
struct BufferRecvPoolGet {
  std::uint64_t transaction = 0;
  std::uint32_t packet_bytes = 0;
  std::uint32_t packets = 0;
};

/// From the owner of the memory to its user: these elements are free again. S1 IV.A.2, IV.B.1.
struct BufferRecvPoolUpdate {
  std::uint64_t transaction = 0;
  ListView<ElementRun> runs{};
};

/// From either side: the use of these pools ends. The receiver answers with BufferPoolFlushReply. S1 IV.B.1.
struct BufferPoolFlushRequest {
  std::uint64_t transaction = 0;
  ListView<FlushedPool> pools{};
};

struct BufferPoolFlushReply {
  std::uint64_t transaction = 0;  ///< the request's
};

/// One frame, inside the message. S1 IV.B.2.
struct SendData {
  std::uint64_t transaction = 0;
  std::span<const std::byte> frame{};
};

/// The places of frames that the sender wrote by RDMA, for pools that do not fit immediate data. S1 IV.B.2.
struct BufferRdmaIndicate {
  std::uint64_t transaction = 0;
  ListView<Indication> indications{};
};

/// Configuration and utilities, S1 IV.B.3. `code` may be outside CfgRequest; the receiver answers that with
/// unknown_request.
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

/// The sender did not understand a message of this end. Every version understands Unsupported.
struct Unsupported {
  std::uint64_t transaction = 0;  ///< that of the message that the sender did not understand
  std::uint32_t offending_word = 0;
  std::uint16_t lowest_version = 0;
  std::uint16_t highest_version = 0;
  std::uint32_t reason = 0;  ///< an UnsupportedReason, or one that a later version has added
  friend bool operator==(const Unsupported&, const Unsupported&) = default;
};

using Message =
    std::variant<BufferRecvPool, BufferRecvPoolGet, BufferRecvPoolUpdate, BufferPoolFlushRequest, BufferPoolFlushReply,
                 SendData, BufferRdmaIndicate, CfgUtilRequest, CfgUtilReply, Unsupported>;

/// The function of the message. The alternatives of Message are in the order of kFunctions.
inline Function function_of(const Message& message) { return kFunctions[message.index()]; }

/// The negotiated maximum values of a message. The defaults are the maximum values that this implementation offers.
struct Limits {
  std::uint32_t message_bytes = sizeof(SendDataHead) + kMaxFrameBytes;
  std::uint32_t list_entries = 256;
  std::uint32_t frame_bytes = kMaxFrameBytes;
  std::uint32_t pool_elements = 65'536;
  std::uint32_t element_bytes = kMaxFrameBytes;
  std::uint32_t highest_pool = ~kReceiversPoolBit;
};

enum class DecodeReason : std::uint8_t {
  too_short,          ///< the message ends before the field is complete
  too_long,           ///< bytes after the message's end, or more bytes than were negotiated
  bad_version,        ///< a version that this implementation does not speak
  unknown_function,   ///< a function that this implementation does not know
  reserved_not_zero,  ///< a field that must be zero is not
  no_entries,         ///< a list without entries
  not_a_multiple,     ///< a list, or element bytes, that is not a multiple of its unit
  count_over_limit,   ///< more entries, elements or packets than were negotiated
  bad_length,         ///< a byte count that differs from the bytes that follow
  out_of_range,       ///< a value outside its range
  wraps,              ///< an address or element range that passes the end of its space
};

std::string_view to_string(DecodeReason reason);

/// Why decode() rejected a message: the first wrong field, by name (static storage) and offset.
struct MessageFault {
  DecodeReason reason = DecodeReason::too_short;
  std::uint32_t offset = 0;  ///< of the field, in bytes from the message's start
  std::string_view field{};
  std::uint32_t word = 0;         ///< the message's first word; 0 if it has no whole header
  std::uint64_t transaction = 0;  ///< the message's; 0 if it has no whole header
};

/// "BufferRecvPool: element bytes at 24: not a multiple", for logs and counters' details.
std::string to_string(const MessageFault& error);

/// Checks a received message completely; returns it as a value, or the first fault. Takes constant time, except for
/// lists, of which it checks every entry. message: private memory (a copy of what the peer can write), any alignment;
/// must outlive the value. No allocation, no exception. Thread: any.
[[nodiscard]] tl::expected<Message, MessageFault> decode(std::span<const std::byte> message, const Limits& limits);

/// The Unsupported that answers such a fault. Only an unknown function or version has one, never a reply and never a
/// code with the top bit set, so that two peers cannot answer each other for ever. The sender limits its rate.
[[nodiscard]] std::optional<Unsupported> unsupported_answer(const MessageFault& error);

}  // namespace splitnic::messaging::wire
