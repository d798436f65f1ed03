#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "common/mac_address.h"
#include "fabric/bridge/link.h"
#include "fabric/wire/cell.h"
#include "messaging/received_frame.h"
#include "messaging/session_counters.h"
#include "messaging/wire/cfgutil.h"
#include "messaging/wire/messages.h"

namespace splitnic::messaging {

/// Frames go into pools, not through the payload rings. Short ones do, and an I/O unit has two for each host.
[[nodiscard]] inline fabric::LinkOptions session_link() {
  fabric::LinkOptions options;
  options.payload_bytes[static_cast<std::size_t>(fabric::VirtualLane::data)] = 256U << 10U;
  return options;
}

struct SessionOptions {
  wire::Role role = wire::Role::host;
  std::string name;                    ///< see wire::is_valid_name
  wire::Mode mode = wire::Mode::rdma;  ///< the host's preference; the unit may override it (insist_on_mode)
  bool insist_on_mode = false;         ///< unit: answer with `mode`, whatever the host requested
  bool data_channel = true;            ///< false: frames as SendData on the control channel
  bool offloads = false;               ///< frames with metadata, and super-frames of TCP: mode R with a data channel
  bool udp_segments = false;           ///< super-frames of UDP too; only with offloads
  MacAddress mac;                      ///< host: requested address; zero: the unit chooses
  std::uint32_t max_mtu = 1500;        ///< maximum layer-3 bytes that this end accepts
  std::uint32_t pool_elements = 256;   ///< a pool that can't hold two of the longest super-frames means no offloads
  std::uint32_t cell_bytes = fabric::kDefaultCellPayload;
  /// Unit: how often it asks the peer whether it is there, 1 s to wire::kMaxHeartbeatInterval in steps of 250 ms.
  std::chrono::milliseconds heartbeat_interval = std::chrono::seconds(1);
  /// Unit: it asks at times of the clock that are so much past a multiple of the interval; in steps of 250 ms.
  std::chrono::milliseconds heartbeat_phase{0};
  wire::Moderation moderation;  ///< what this end requests of the peer; all zero: none
  fabric::LinkOptions link = session_link();
};

/// Throws StartupError, with the reason, if the name is invalid or pool_elements is 0. The drivers call it in their
/// constructors, because they create their sessions later, when a bridge exists.
void require_valid(const SessionOptions& options);

/// Frame bytes in addition to the MTU: the Ethernet header and two VLAN tags.
inline constexpr std::uint32_t kFrameOverheadBytes = 14 + 2 * 4;

/// Why the receiver of a request refused it.
struct Refusal {
  wire::CfgStatus status = wire::CfgStatus::invalid_parameter;
  std::string text;
};
using Answer = tl::expected<wire::ReplyBody, Refusal>;

/// What the I/O unit grants in answer to a host's hello.
struct HelloGrant {
  MacAddress mac;
  std::uint32_t max_mtu = 1500;
  bool link_up = false;
};

/// The driver above a session. Only the session's own member functions make these calls, on the session's thread. None
/// of them may destroy the session.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  /// Unit: accepts or refuses the host. Host: never called.
  virtual tl::expected<HelloGrant, Refusal> on_hello(const wire::HelloRequest& hello) = 0;
  /// The session is up and carries frames. reply: the unit's reply at the host; null at the unit.
  virtual void on_up(const wire::HelloReply* reply) = 0;
  /// The session was up or coming up, and is now down. It reconnects by itself.
  virtual void on_down(std::string_view reason) = 0;
  virtual void on_frame(const ReceivedFrame& frame) = 0;
  /// Answers a request of the peer. The session itself answers hello, heartbeat, moderation and reset.
  virtual Answer on_request(const wire::RequestBody& request) = 0;
  /// The peer's answer to a request() of this end.
  virtual void on_reply(wire::CfgRequest request, const Answer& answer) = 0;
};

/// Elements of the peer's pools: all of them, and those that this end may fill now. Both are 0 if frames use no pools.
struct Credits {
  std::uint32_t elements = 0;
  std::uint32_t free = 0;
  std::uint32_t first_pool = 0;  ///< of `elements`, those of the oldest pool, which stays when there is little to do
  /// Less than a quarter of the writes is left that this end may make before the peer acknowledges some. A peer with
  /// many pools has more elements than that.
  bool few_writes = false;
};

}  // namespace splitnic::messaging
