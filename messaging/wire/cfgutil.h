#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <variant>
#include <vector>

#include "common/mac_address.h"
#include "common/time.h"
#include "messaging/wire/layout.h"

/// The contents of CfgUtilRequest and CfgUtilReply as plain values (S1 IV.B.3). The encoding is Cap'n Proto
/// (cfgutil.capnp), which only cfgutil_encode.cpp and cfgutil_decode.cpp use. Control plane: allocates.
namespace splitnic::messaging::wire {

inline constexpr std::size_t kMaxNameBytes = 64;
inline constexpr std::size_t kMaxTextBytes = 256;
inline constexpr std::size_t kMaxUnicastFilters = 64;
/// A host that has joined more groups than this requests all multicast.
inline constexpr std::size_t kMaxMulticastFilters = 256;
inline constexpr std::size_t kMaxCounters = 512;
inline constexpr std::uint16_t kMaxVlan = 4094;
inline constexpr std::uint32_t kMinMtu = 68;
inline constexpr std::uint32_t kMaxMtu = 65'535;
inline constexpr std::uint32_t kMinMessageBytes = 512;
inline constexpr std::uint32_t kMaxMessageBytes = 1U << 20U;
inline constexpr std::uint32_t kMaxListEntries = 65'536;
inline constexpr std::uint32_t kMaxReceiveDepth = 65'536;
inline constexpr std::uint32_t kMinCellBytes = 64;
inline constexpr std::uint32_t kMaxCellBytes = 65'520;
inline constexpr std::uint32_t kMaxQueuePair = 0xff'ffff;
inline constexpr Duration kMaxModerationTime = std::chrono::milliseconds(100);
inline constexpr std::chrono::milliseconds kMaxHeartbeatInterval = std::chrono::minutes(1);

enum class Role : std::uint16_t { host = 1, io_unit = 2 };
/// S1 Fig. 7 (data by RDMA write) and Fig. 6 (data by send/receive).
enum class Mode : std::uint16_t { rdma = 1, send = 2 };

/// Bits of the hello's features. An end offers what it can do; the reply has the bits of both ends.
/// Each frame has a virtio-net header, and may be longer than an element: it then spans the elements that follow. Only
/// in mode R with a data channel.
inline constexpr std::uint64_t kFeatureOffloads = 1U << 0U;
/// Super-frames of UDP may be sent as well. Only with kFeatureOffloads.
inline constexpr std::uint64_t kFeatureUdpSegments = 1U << 1U;

/// One side's offer for the channels. In the reply: the agreed values, never more than the offer, and the replier's
/// end.
struct ChannelTerms {
  std::uint32_t max_message_bytes = 0;  ///< kMinMessageBytes .. kMaxMessageBytes
  std::uint32_t max_list_entries = 0;   ///< 1 .. kMaxListEntries
  std::uint32_t max_frame_bytes = 0;    ///< kMinMtu + 14 .. kMaxFrameBytes
  std::uint32_t cell_bytes = 0;         ///< kMinCellBytes .. kMaxCellBytes
  std::uint32_t receive_depth = 0;      ///< receives kept posted on the control channel, 1 .. kMaxReceiveDepth

  /// The sender's end of the data channel. Without a data channel, frames travel as SendData on the control channel.
  struct DataChannel {
    std::uint32_t queue_pair = 0;     ///< 1 .. kMaxQueuePair
    std::uint32_t receive_depth = 0;  ///< receives kept posted on it, 1 .. kMaxReceiveDepth
    std::uint32_t initial_psn = 0;    ///< the first packet sequence number that the sender uses
    friend bool operator==(const DataChannel&, const DataChannel&) = default;
  };
  std::optional<DataChannel> data_channel{};
  friend bool operator==(const ChannelTerms&, const ChannelTerms&) = default;
};

struct HelloRequest {
  std::uint16_t lowest_version = kLowestVersion;
  std::uint16_t highest_version = kHighestVersion;
  Role role = Role::host;
  Mode mode = Mode::rdma;
  std::uint64_t features = 0;  ///< kFeature...; other bits are ignored
  std::string name{};          ///< see is_valid_name()
  MacAddress requested_mac{};  ///< zero: the unit chooses
  ChannelTerms terms{};
  friend bool operator==(const HelloRequest&, const HelloRequest&) = default;
};

struct HelloReply {
  std::uint16_t version = kHighestVersion;
  Role role = Role::io_unit;
  Mode mode = Mode::rdma;
  std::uint64_t features = 0;  ///< the intersection
  std::string name{};
  MacAddress assigned_mac{};
  std::uint32_t max_mtu = 0;
  bool link_up = false;
  std::uint32_t link_speed_mbps = 0;  ///< 0: unknown
  ChannelTerms terms{};
  friend bool operator==(const HelloReply&, const HelloReply&) = default;
};

/// The highest version that both ranges contain.
std::optional<std::uint16_t> common_version(const HelloRequest& hello);

struct SetMacAddress {
  MacAddress address{};
  friend bool operator==(const SetMacAddress&, const SetMacAddress&) = default;
};
struct MacAddressReply {
  MacAddress in_force{};
  friend bool operator==(const MacAddressReply&, const MacAddressReply&) = default;
};

struct SetMtu {
  std::uint32_t bytes = 0;  ///< kMinMtu .. kMaxMtu, without the Ethernet header
  friend bool operator==(const SetMtu&, const SetMtu&) = default;
};
struct MtuReply {
  std::uint32_t in_force = 0;
  friend bool operator==(const MtuReply&, const MtuReply&) = default;
};

/// From the I/O unit: the LAN's carrier. From the host: whether its interface is administratively up.
struct LinkState {
  bool up = false;
  std::uint32_t speed_mbps = 0;  ///< 0: unknown
  std::uint32_t max_mtu = 0;     ///< 0: as before
  friend bool operator==(const LinkState&, const LinkState&) = default;
};

/// Replaces the previous filter. Broadcast and the host's own address always pass.
struct ReceiveFilter {
  std::vector<MacAddress> unicast{};    ///< further addresses, at most kMaxUnicastFilters
  std::vector<MacAddress> multicast{};  ///< at most kMaxMulticastFilters; a host with more groups sets all_multicast
  bool all_multicast = false;
  bool promiscuous = false;
  friend bool operator==(const ReceiveFilter&, const ReceiveFilter&) = default;
};

/// Replaces the previous filter. Untagged frames always pass.
struct VlanFilter {
  std::optional<std::vector<std::uint16_t>> only{};  ///< only these, strictly ascending, 1 .. kMaxVlan; nullopt: all
  friend bool operator==(const VlanFilter&, const VlanFilter&) = default;
};

/// The receiver of this request delays its doorbells until it reaches one of these limits; 0: that limit does not
/// apply. All zero, or one entry: no moderation.
struct Moderation {
  std::uint32_t entries = 0;
  std::uint32_t bytes = 0;
  Duration time{0};  ///< at most kMaxModerationTime
  friend bool operator==(const Moderation&, const Moderation&) = default;
};

struct StatisticsReport {
  friend bool operator==(const StatisticsReport&, const StatisticsReport&) = default;
};
struct StatisticsClear {
  friend bool operator==(const StatisticsClear&, const StatisticsClear&) = default;
};
/// Ethernet frames in one direction.
struct Flow {
  std::uint64_t frames = 0;  ///< that arrived intact, or that went out
  std::uint64_t bytes = 0;   ///< of these frames, from the destination address on, without FCS
  std::uint64_t errors = 0;  ///< frames that were damaged, invalid, or lost on the way
  std::uint64_t drops = 0;   ///< valid frames that were not forwarded: no room, not wanted, not permitted
  friend bool operator==(const Flow&, const Flow&) = default;
};

/// The replier's counters, in answer to StatisticsReport or StatisticsClear. The answer to a clear carries the values
/// just before it, so that no increment is lost in between. The replier's interface is the LAN at an I/O unit, the
/// virtual NIC at a host.
struct Statistics {
  struct Counter {
    std::string name{};  ///< see is_valid_name()
    std::uint64_t value = 0;
    friend bool operator==(const Counter&, const Counter&) = default;
  };
  std::vector<Counter> counters{};  ///< the causes of errors and drops; at most kMaxCounters
  Duration counted_for{};           ///< time since all of these were zero, up to the reply; not negative
  Flow from_peer{};                 ///< from the requester
  Flow to_peer{};
  Flow from_interface{};
  Flow to_interface{};
  friend bool operator==(const Statistics&, const Statistics&) = default;
};

/// Codes of status reports.
inline constexpr std::uint32_t kFramesLost = 1;    ///< the sender lost frames for or from its peer
inline constexpr std::uint32_t kNotPermitted = 2;  ///< the sender did not do all that its peer requested

/// A line for the peer's log. The peer logs unknown codes too.
struct StatusReport {
  std::uint32_t code = 0;
  std::string text{};  ///< see is_valid_text()
  friend bool operator==(const StatusReport&, const StatusReport&) = default;
};

struct Heartbeat {
  std::uint64_t sequence = 0;
  /// The sender asks again within this time; whole milliseconds, at most kMaxHeartbeatInterval. Zero: it does not say.
  std::chrono::milliseconds next{0};
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};
struct HeartbeatReply {
  std::uint64_t echo = 0;  ///< the request's sequence
  friend bool operator==(const HeartbeatReply&, const HeartbeatReply&) = default;
};

/// The sender ends the session; both ends start a new one.
struct Reset {
  std::uint32_t code = 0;
  std::string text{};  ///< see is_valid_text()
  friend bool operator==(const Reset&, const Reset&) = default;
};

/// "Done": the reply to requests that need no other answer.
struct Acknowledged {
  friend bool operator==(const Acknowledged&, const Acknowledged&) = default;
};

/// In the order of the codes of CfgRequest.
using RequestBody = std::variant<HelloRequest, SetMacAddress, SetMtu, LinkState, ReceiveFilter, VlanFilter, Moderation,
                                 StatisticsReport, StatisticsClear, StatusReport, Heartbeat, Reset>;
using ReplyBody = std::variant<HelloReply, MacAddressReply, MtuReply, Acknowledged, Statistics, HeartbeatReply>;

inline CfgRequest request_of(const RequestBody& body) { return static_cast<CfgRequest>(body.index() + 1); }

/// Why data does not match its code, with the status to answer: unknown_request, malformed (not a valid Cap'n Proto
/// message) or invalid_parameter (a field is out of its range).
struct CfgFault {
  CfgStatus status = CfgStatus::malformed;
  std::string what{};
};

/// Encodes the data of a CfgUtilRequest or of an ok CfgUtilReply. The values must be ones that decoding accepts.
std::vector<std::byte> encode(const RequestBody& body);
std::vector<std::byte> encode(const ReplyBody& body);
/// Encodes the data of a CfgUtilReply that is not ok: the reason, for display. Cuts the text to kMaxTextBytes and
/// replaces invalid characters.
std::vector<std::byte> encode_refusal(const std::string& text);

/// data: private memory, any alignment. Checks everything in it. Throws nothing.
[[nodiscard]] tl::expected<RequestBody, CfgFault> decode_request(std::uint32_t code, std::span<const std::byte> data);
/// Decodes the ok reply to a request with this code.
[[nodiscard]] tl::expected<ReplyBody, CfgFault> decode_reply(CfgRequest request, std::span<const std::byte> data);
/// Why the peer refused; empty if it gave no readable reason.
[[nodiscard]] std::string decode_refusal(std::span<const std::byte> data);

/// 1 .. kMaxNameBytes bytes of UTF-8 without control characters and '/'.
bool is_valid_name(std::string_view name);
/// At most kMaxTextBytes bytes of UTF-8 without control characters.
bool is_valid_text(std::string_view text);

}  // namespace splitnic::messaging::wire
