#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/frame/ethernet.h"
#include "common/frame/flow.h"
#include "common/frame/software_offload.h"
#include "common/mac_address.h"
#include "fabric/bridge/bridge.h"
#include "iounit/fair_share.h"
#include "iounit/flow_queues.h"
#include "iounit/forwarding_table.h"
#include "iounit/frame_in_hand.h"
#include "iounit/further_queue.h"
#include "iounit/policy_rules.h"
#include "iounit/receive_filter.h"
#include "iounit/receiver_share.h"
#include "iounit/token_bucket.h"
#include "iounit/vlan_membership.h"
#include "messaging/loss_report.h"
#include "messaging/session.h"
#include "messaging/statistics_schedule.h"

namespace splitnic::iounit {

/// Why the I/O unit dropped a frame from one host, or a copy for it. Each cause has a counter per host; every dropped
/// frame or copy counts under exactly one (see IoUnitCounters for the sum).
enum class HostDrop : std::uint8_t {
  to_host_not_up,          ///< for the host while its session comes up or ends
  to_host_interface_down,  ///< its interface is administratively down
  to_host_filtered,        ///< for an address last heard from it, but its receive or VLAN filter refuses the frame
  to_host_no_element,      ///< the host's pool is exhausted: the host handles frames more slowly than they arrive
  to_host_too_long,        ///< longer than its elements
  to_host_over_rate,       ///< beyond the rate at which the policy lets it receive
  from_host_malformed,     ///< no Ethernet header, or a super-frame with damaged headers
  from_host_bad_source,    ///< multicast or zero source address
  from_host_not_allowed,   ///< the source address is not the host's own, and the policy allows it no other
  from_host_forged,        ///< the source address is another host's
  from_host_lan_source,    ///< the source address is a LAN station's
  from_host_link_local,    ///< for a group between neighbours on one link (01:80:c2:00:00:00 to 0f)
  from_host_vlan,          ///< with the tag of a VLAN that the host is not in, or without a tag where it needs one
  from_host_group,         ///< for a group, and the policy permits it none
  from_host_ip_address,    ///< an ARP, IP or neighbour discovery message that claims an address that is not its own
  from_host_dhcp_server,   ///< from the port of a DHCP server or to a client's, and the host may be none
  from_host_router,        ///< an IPv6 router advertisement or redirect, and the host may be no router
  from_host_over_rate,     ///< beyond the rate at which the policy lets it send
  from_host_broadcasts,    ///< beyond the rate of broadcasts
  from_host_multicasts,    ///< beyond the rate of frames to groups
  from_host_copies,        ///< for another host, beyond the rate of frames to groups that the unit copies to hosts
  from_host_to_itself,     ///< for an address last heard from the sender
  from_host_over_share,    ///< for a host whose elements are short because of this host's frames, and others send there
  from_host_too_long,      ///< longer than the LAN's maximum
  from_host_lan_refused,   ///< the LAN engine refused it (no carrier, error)
  from_host_bad_offload,   ///< the metadata of its checksum or segmentation does not fit it (frame::OffloadFault)
};
inline constexpr std::size_t kHostDrops = 26;
/// The counter's name, as `splitnic stats` and CfgUtil's statistics report it.
std::string_view to_string(HostDrop cause);
/// True: the frame was damaged, invalid, or lost on its way. False: it was valid, but there was no room or no
/// permission for it.
[[nodiscard]] bool is_error(HostDrop cause);
/// Whether the cause says that the host sent what no host may send, or what this one may not.
[[nodiscard]] bool is_refusal(HostDrop cause);

class AttachedHost;

/// A host's place in HostTurns, which alone uses it.
struct HostTurn {
  bool busy = true;
  bool watched = false;   ///< its doorbell is
  std::size_t at = 0;     ///< its position in the list
  Time worked_at{};       ///< when it last had work, while busy
  Time busy_since{};      ///< when it became busy
  Time due = kNever;      ///< while quiet
  bool quiet_up = false;  ///< it was up when it became quiet
};

/// The I/O unit's interface for its attached hosts.
class AttachedHostOwner {
 public:
  virtual ~AttachedHostOwner() = default;
  virtual tl::expected<messaging::HelloGrant, messaging::Refusal> admit(AttachedHost& attached,
                                                                        const messaging::wire::HelloRequest& hello) = 0;
  virtual messaging::Answer change_mac(AttachedHost& attached, const MacAddress& wanted) = 0;
  virtual void frame_from_host(AttachedHost& attached, const messaging::ReceivedFrame& frame) = 0;
  virtual void host_up(AttachedHost& attached) = 0;
  virtual void host_down(AttachedHost& attached, std::string_view reason) = 0;
  /// The host's session is about to get something to send.
  virtual void attend(AttachedHost& attached) = 0;
  virtual void filters_changed() = 0;
  /// The unit did not set all of the filter that the host requested. why: for people.
  virtual void filter_limited(AttachedHost& attached, const std::string& why) = 0;
  virtual void host_says(AttachedHost& attached, const std::string& text) = 0;
  [[nodiscard]] virtual std::uint32_t max_mtu() const = 0;
  /// Fills only from_interface and to_interface: the LAN's, since the construction of the unit.
  [[nodiscard]] virtual messaging::wire::Statistics lan_statistics() const = 0;
};

/// One host that the I/O unit serves: its bridge, its session, its receive filter, its counters. A host may have
/// further queues: bridges whose sessions carry frames alone. They share its processor time, its limits and its place
/// in HostTurns, and they end with its first session. Thread: the unit's.
class AttachedHost final : public messaging::SessionEvents, private FurtherQueueOwner {
 public:
  AttachedHost(AttachedHostOwner& owner, ForwardingTarget number, std::shared_ptr<fabric::Bridge> bridge,
               const messaging::SessionOptions& options, RandomSource& random, Time now);
  ~AttachedHost() override;

  [[nodiscard]] ForwardingTarget number() const { return number_; }
  /// The first session, which the settings belong to.
  [[nodiscard]] messaging::Session& session() { return *session_; }
  [[nodiscard]] const messaging::Session& session() const { return *session_; }

  // ---- all its queues; attached_host_queues.cpp
  /// Adds a further queue. False: the host is not up, not in mode R, or has kMaxQueues already.
  [[nodiscard]] bool add_queue(std::shared_ptr<fabric::Bridge> bridge, messaging::SessionOptions options,
                               RandomSource& random);
  /// Whether a further queue is to be dropped: see FurtherQueue::is_dead(), or the host is not up itself.
  [[nodiscard]] bool has_dead_queues(Time now);
  /// Drops these queues and keeps their counts.
  void drop_dead_queues(Time now);
  /// Queues that carry frames: 0 while the host is not up.
  [[nodiscard]] std::size_t queues_up() const;
  /// Polls each session, and divides the completions among them. Returns the work of all.
  std::size_t poll(Time now, std::size_t completions);
  void flush();
  [[nodiscard]] bool prepare_sleep();
  void disarm();
  /// Whether any of its sessions does.
  [[nodiscard]] bool awaits_peer() const;
  /// See Session::leave_armed(): all sessions or none.
  [[nodiscard]] bool leave_armed();
  void resume(Time now);
  /// See Session::set_heartbeat(): all sessions.
  void set_heartbeat(std::chrono::milliseconds interval, std::chrono::milliseconds phase);
  [[nodiscard]] bool peer_waits_for_core();
  [[nodiscard]] Time next_deadline() const;
  [[nodiscard]] bool finished() const;
  /// Of all its sessions, those of queues that are gone among them.
  [[nodiscard]] messaging::SessionTotals totals() const;
  [[nodiscard]] messaging::SessionCounters counters() const;
  /// Calls visit(bridge) for each of its bridges.
  template <class Visit>
  void each_bridge(Visit&& visit) const {
    visit(*bridge_);
    for (const auto& queue : further_) {
      if (queue) visit(queue->bridge());
    }
  }
  /// The host has sent this frame, which take_frame() has passed on: its flow's other direction takes the same queue.
  void note_flow(const frame::EthernetHeader& header, std::span<const std::byte> frame) {
    if (flows_) flows_->heard(frame::flow_number(frame, header, flow_key_), sending_queue_);
  }

  [[nodiscard]] fabric::Bridge& bridge() { return *bridge_; }
  [[nodiscard]] const fabric::Bridge& bridge() const { return *bridge_; }
  /// Empty before the first hello.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const MacAddress& mac() const { return mac_; }
  [[nodiscard]] bool up() const { return session_->up(); }
  /// The time since which the session has not been up; kNever while it is up.
  [[nodiscard]] Time down_since() const { return down_since_; }
  /// When the last frame came from it or was delivered to it; long ago if there was none.
  [[nodiscard]] Time last_frame_at() const { return last_frame_at_; }
  [[nodiscard]] HostTurn& turn() { return turn_; }
  [[nodiscard]] const ReceiveFilter& filter() const { return filter_; }
  [[nodiscard]] const HostRights& rights() const { return rights_; }
  /// At a hello, or because the policy has changed. Applies the host's last filter again. A limit that the host has
  /// used up stays used up.
  void set_rights(HostRights rights);
  /// Whether it receives a frame to an address last heard from it. The frame is in one of its VLANs.
  [[nodiscard]] bool accepts_addressed(const frame::EthernetHeader& header) const {
    const std::uint16_t vlan = vlans_.outward(header).value_or(0);
    return filter_.accepts(header.destination, vlan) || (is_bridge_ && filter_.accepts_vlan(vlan));
  }
  /// Whether it is in the frame's VLAN and its filter accepts the frame.
  [[nodiscard]] bool accepts(const frame::EthernetHeader& header) const {
    const auto vlan = vlans_.outward(header);
    return vlan && filter_.accepts(header.destination, *vlan);
  }
  /// Whether it receives a frame to one station that nobody has sent from: it has requested the address, or the station
  /// may be behind its bridge.
  [[nodiscard]] bool accepts_unknown(const frame::EthernetHeader& header) const {
    const auto vlan = vlans_.outward(header);
    return vlan && (filter_.accepts(header.destination, *vlan) || (is_bridge_ && filter_.accepts_vlan(*vlan)));
  }
  [[nodiscard]] const VlanMembership& vlans() const { return vlans_; }
  /// The cause if the policy does not let the host send to this audience now; counts so many frames against its limits:
  /// those that leave (UnfinishedFrame::frames), not those that the host claims.
  [[nodiscard]] std::optional<HostDrop> over_rate(frame::Audience audience, std::uint64_t frames = 1);
  /// A super-frame of this host, which take_frame() has passed on, leaves as so many frames. The limit on what it sends
  /// counts those that it has not claimed.
  void leaves_as(const messaging::ReceivedFrame& received, std::uint64_t frames);
  /// Whether the policy lets the unit copy a frame of this host, to a group, to other hosts now; counts so many frames
  /// against the limit.
  [[nodiscard]] bool may_be_copied(std::uint64_t frames);
  /// The unit has copied so many bytes to another host, beside the copy for the LAN: they count in this host's turn.
  void note_copy(std::size_t bytes) { copied_bytes_ += bytes; }
  [[nodiscard]] bool promiscuous() const { return promiscuous_; }
  /// Whether the host requested unicast addresses in addition to its own, or those behind its bridge. Frames to them
  /// may arrive before it sends from them.
  [[nodiscard]] bool wants_unknown() const { return is_bridge_ || !further_unicast_.empty(); }
  /// What its session did since the last call, apart from the cost.
  [[nodiscard]] Turn end_turn();
  /// Starts the end of its session, for good. reason: for the host.
  void eject(const std::string& reason);
  [[nodiscard]] bool ejected() const { return ejected_; }
  /// As the host last reported.
  [[nodiscard]] bool interface_up() const { return interface_up_; }

  void admitted(const std::string& name, const MacAddress& mac, HostRights rights);
  /// Between a hello that the unit has admitted and the end of its session.
  [[nodiscard]] bool is_admitted() const { return is_admitted_; }
  void hung_up() { is_admitted_ = false; }
  /// Keeps the additional unicast addresses of the host's filter.
  void set_mac(const MacAddress& mac);
  /// Starts an orderly end. Drops frames for the host from now on.
  void begin_shutdown();
  /// Call before each poll of the session.
  void note_time(Time now) { now_ = now; }
  /// Asks the host for its counters now and then while it is up (StatisticsSchedule). Call after each poll of the
  /// session.
  void ask_for_statistics();
  /// The host's own counters, as of its last report.
  [[nodiscard]] const messaging::wire::Statistics& host_statistics() const { return host_statistics_; }
  /// Asks the host to clear its counters. Does nothing without a session.
  void clear_host_statistics();

  /// Whether the host finishes frames with a partial checksum, and super-frames of this kind, itself.
  [[nodiscard]] bool takes(const frame::FrameOffload& offload) const {
    return session_->offloads() && (offload.kind != frame::SegmentKind::udp || session_->udp_segments());
  }
  /// Pushes a frame to the host, without the tag of its access VLAN, or counts the cause of its drop.
  /// sender: its number in ReceiverShare. header: of the frame. unfinished: what the host is to do with it, if it
  /// takes() that; null: the frame is complete. False: the sender is over its share, and the caller counts that.
  [[nodiscard]] bool deliver(std::size_t sender, const frame::EthernetHeader& header, const FrameInHand& frame,
                             const frame::UnfinishedFrame* unfinished = nullptr);
  /// Memory for a frame of so many bytes, without a tag, of which the caller has read the head alone. The caller may
  /// put the payload there, and then delivers the frame as FrameInHand::placed_in this host. Empty: there is none, or
  /// the host has several queues. Write-only; valid until this host's next frame.
  [[nodiscard]] messaging::FrameMemory place(const frame::EthernetHeader& header, std::size_t frame_bytes);
  void count(HostDrop cause) {
    ++drops_[static_cast<std::size_t>(cause)];
    if (is_refusal(cause)) ++refused_frames_;
  }
  [[nodiscard]] std::uint64_t drops(HostDrop cause) const { return drops_[static_cast<std::size_t>(cause)]; }

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const messaging::wire::HelloRequest& hello) override;
  void on_up(const messaging::wire::HelloReply* reply) override;
  void on_down(std::string_view reason) override;
  void on_frame(const messaging::ReceivedFrame& frame) override;
  messaging::Answer on_request(const messaging::wire::RequestBody& request) override;
  void on_reply(messaging::wire::CfgRequest request, const messaging::Answer& answer) override;
  messaging::Answer set_filter(const messaging::wire::ReceiveFilter& wanted);
  [[nodiscard]] std::string apply(const messaging::wire::ReceiveFilter& wanted);
  void add_permitted_addresses();
  void report_limits(const std::string& why);
  [[nodiscard]] messaging::wire::Statistics statistics() const;  // all its counters, since construction
  void take_frame(const messaging::ReceivedFrame& frame);

  tl::expected<messaging::HelloGrant, messaging::Refusal> admit_queue(
      const messaging::wire::HelloRequest& hello) override;
  void queue_changed(const FurtherQueue& queue) override;
  void queue_frame(const FurtherQueue& queue, const messaging::ReceivedFrame& frame) override;
  void queue_says(std::string_view text) override;
  /// Where a frame for the host goes.
  struct Outlet {
    messaging::Session& session;
    ReceiverShare& share;
    bool by_flow = false;  ///< flows_ is to know when the frame is sent
  };
  [[nodiscard]] Outlet outlet_for(const frame::EthernetHeader& header, std::span<const std::byte> frame);
  template <class Visit>
  void each_session(Visit&& visit) const {
    visit(*session_);
    for (const auto& queue : further_) {
      if (queue) visit(queue->session());
    }
  }

  static constexpr std::uint64_t kLargestFrame = messaging::wire::kMaxFrameBytes;
  struct Limit {
    /// See TokenBucket::set_limits().
    void set(const RateLimits& limits);
    [[nodiscard]] bool take(std::size_t frame_bytes, std::uint64_t counts_as, Time now) {
      return bytes.take(frame_bytes, now) && frames.take(counts_as, now);
    }
    /// What a frame takes before it has been checked. It claims to be so many, and may be dropped: so no debt.
    [[nodiscard]] std::uint64_t at_first(const messaging::ReceivedFrame& frame) const {
      return std::min(frame::counts_as_frames(frame.size(), frame.offload), most_frames);
    }
    TokenBucket bytes;
    TokenBucket frames;
    std::uint64_t most_frames = 1;
  };

  AttachedHostOwner& owner_;
  HostTurn turn_;
  ForwardingTarget number_;
  std::shared_ptr<fabric::Bridge> bridge_;
  std::string name_;
  MacAddress mac_;
  ReceiveFilter filter_;
  HostRights rights_;
  VlanMembership vlans_;
  Limit send_limit_;
  Limit receive_limit_;
  ReceiverShare receiver_share_;
  TokenBucket broadcasts_;
  TokenBucket multicasts_;
  TokenBucket copies_;
  messaging::wire::ReceiveFilter wanted_;    // as the host requested it
  std::vector<MacAddress> further_unicast_;  // in filter_, beside mac_
  bool ending_ = false;
  bool ejected_ = false;
  bool is_admitted_ = false;
  bool promiscuous_ = false;
  bool is_bridge_ = false;  // it may send from foreign addresses and requests the frames to them
  bool interface_up_ = true;
  Time now_{};
  Time down_since_{};
  messaging::FrameMemory placed_{};  // what the last place() has given
  messaging::LossReport losses_;     // of frames for which the host has no element
  Time limits_reported_ = Time::min();
  Time last_frame_at_{};
  std::array<std::uint64_t, kHostDrops> drops_{};
  std::uint64_t refused_frames_ = 0;     // under any is_refusal()
  std::uint64_t copied_bytes_ = 0;       // to other hosts, of its frames to all and to groups
  std::uint64_t bytes_in_turns_ = 0;     // rx_bytes and copied_bytes_ at the end of its last turn
  std::uint64_t frames_in_turns_ = 0;    // its valid frames likewise
  messaging::wire::Statistics cleared_;  // statistics() when the host last cleared them, or at first
  Time cleared_at_{};
  messaging::wire::Statistics host_statistics_;
  messaging::StatisticsSchedule statistics_schedule_;
  std::unique_ptr<FlowQueues> flows_;  // from the first further queue on
  std::uint64_t flow_key_ = 0;
  std::size_t sending_queue_ = 0;                // whose frame is being handled
  messaging::SessionTotals past_queues_;         // of further queues that are gone
  std::unique_ptr<messaging::Session> session_;  // these are the last members: their events use the others
  std::array<std::unique_ptr<FurtherQueue>, kMaxQueues - 1> further_;
};

}  // namespace splitnic::iounit
