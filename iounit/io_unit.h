#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/frame/ethernet.h"
#include "common/frame/frame_merger.h"
#include "common/frame/software_offload.h"
#include "common/moved_frames.h"
#include "common/notices.h"
#include "common/random.h"
#include "common/time.h"
#include "common/work_meter.h"
#include "fabric/bridge/bridge_source.h"
#include "fabric/bridge/user_limits.h"
#include "iounit/attached_host.h"
#include "iounit/fair_share.h"
#include "iounit/forwarding_table.h"
#include "iounit/group_lan.h"
#include "iounit/host_turns.h"
#include "iounit/lan_engine.h"
#include "iounit/policy.h"
#include "messaging/session_counters.h"

namespace splitnic::iounit {

struct IoUnitOptions {
  messaging::SessionOptions session;  ///< options of every host's session; the unit sets role and max_mtu
  std::uint32_t max_mtu = 0;          ///< upper limit on the LAN's MTU; 0: no limit
  std::size_t max_hosts = 64;
  PolicyRules policy;
  FairShareOptions share;
  /// How long a user waits for the next set-up after a host of its was ejected: at first, and at most. Each ejection
  /// doubles the pause until there has been none for a minute.
  Duration ejected_pause_min = std::chrono::seconds(1);
  Duration ejected_pause_max = std::chrono::seconds(8);
  WorkMeter* meter = nullptr;  ///< measures the hosts' turns; lent, outlives the unit. Null: work is counted
  /// Watches the hosts' doorbells, so that nothing is done for quiet hosts; lent, outlives the unit. Null: each poll
  /// visits every host.
  DoorbellWatch* doorbells = nullptr;
  /// The unit is one of several, and this is its LAN; lent, outlives the unit. The group's policy counts, and not the
  /// one above. Null: the unit is alone.
  GroupLan* group = nullptr;
};

/// Why the I/O unit dropped a frame of the LAN before it had a receiver, or a copy for which the LAN is to blame.
enum class LanDrop : std::uint8_t {
  lan_malformed,     ///< no Ethernet header, or longer than the MTU with headers that can't be parsed
  lan_bad_source,    ///< multicast or zero source address
  lan_forged,        ///< the source address is a host's: forged, or the LAN sent a host's frame back
  lan_link_local,    ///< for a group between neighbours on one link (01:80:c2:00:00:00 to 0f)
  lan_to_lan,        ///< for a station of the LAN itself
  lan_unwanted,      ///< for a group that no host has joined, or an address that nobody has used
  lan_udp_oversize,  ///< UDP longer than the MTU: the size to segment it to is lost, or is longer too
  lan_oversize,      ///< longer than the MTU, and of no kind that can be segmented
  lan_over_share,    ///< for a host whose elements are short because of the LAN's frames, and others send there
  lan_bad_offload,   ///< the metadata of its checksum or segmentation does not fit it (frame::OffloadFault)
};
inline constexpr std::size_t kLanDrops = 10;
/// The counter's name, as `splitnic stats` reports it.
std::string_view to_string(LanDrop cause);

/// Event counts since the construction of the unit.
///
/// Every lost frame has a cause. The unit drops an incoming frame, or finds one receiver or more for it; it delivers or
/// drops each receiver's copy. At any time between two polls, over the attached hosts:
///
///     lan_frames + copies + departed_rx_frames + sum of every host's rx_frames
///       == frames sent to the LAN + departed_tx_frames + sum of every host's tx_frames
///          + departed_drops + lan_merged + to_lan_merged + sum of all LanDrop and HostDrop counters
///
/// For one of several units, lan_frames and the frames sent are those of its GroupLan (to_unit and from_unit), which
/// states a sum of its own.
struct IoUnitCounters {
  std::uint64_t lan_frames = 0;      ///< frames that the LAN engine delivered
  std::uint64_t lan_bytes = 0;       ///< of lan_frames
  std::uint64_t lan_bytes_sent = 0;  ///< of the frames that the LAN engine accepted
  std::uint64_t copies = 0;          ///< copies beyond the first, of a frame with several receivers or several segments
  std::array<std::uint64_t, kLanDrops> lan_drops{};
  std::uint64_t departed_rx_frames = 0;  ///< of hosts that are no longer attached
  std::uint64_t departed_tx_frames = 0;
  std::uint64_t departed_drops = 0;  ///< under any HostDrop
  std::uint64_t lan_checksums_completed = 0;
  std::uint64_t lan_segmented = 0;             ///< frames that the unit segmented
  std::uint64_t lan_merged = 0;                ///< of lan_frames: appended to the one before (frame::FrameMerger)
  std::uint64_t to_lan_merged = 0;             ///< the same of hosts' frames for the LAN
  std::uint64_t host_checksums_completed = 0;  ///< the same of hosts' frames, for receivers that can't do it
  std::uint64_t host_segmented = 0;
  std::uint64_t passed_unfinished = 0;  ///< copies that hosts and the LAN finish themselves
  std::uint64_t payloads_copied = 0;  ///< of hosts' long super-frames: not read from the elements by one receiver alone
  std::uint64_t hosts_refused = 0;    ///< hellos that the unit refused
  std::uint64_t hosts_evicted = 0;    ///< bridges that the unit closed because their session did not come up
  std::uint64_t hosts_ejected = 0;    ///< hosts that cost processor time for no use (FairShare)
  std::uint64_t queues_refused = 0;   ///< bridges of further queues whose host was not up, or had enough queues
  std::uint64_t setups_paused = 0;    ///< bridges that waited because their user's hosts had been ejected
  std::uint64_t names_refused = 0;    ///< of hosts_refused: the name is another user's, or not in the policy
  std::uint64_t addresses_refused = 0;  ///< addresses that the policy did not permit, in hellos and later
  std::uint64_t filters_limited = 0;    ///< receive filters of which the policy did not permit all
};

/// The I/O-unit module driver, which connects many hosts to one LAN. It forwards by address and VLAN between its hosts
/// and the LAN, and floods by the hosts' filters; frames from host to host do not touch the LAN. It trusts no host and
/// no LAN frame: it copies the headers once, checks the copy and uses only that. Thread: one owner, which calls poll().
/// Source: S1 Fig. 5, I/O unit module driver 540.
class IoUnit final : private LanSink, public AttachedHostOwner {
 public:
  /// All references must outlive the unit. Throws StartupError for invalid session options (require_valid).
  IoUnit(IoUnitOptions options, LanEngine& lan, fabric::BridgeSource& bridges, RandomSource& random, Notices& notices);
  ~IoUnit() override;
  IoUnit(const IoUnit&) = delete;
  IoUnit& operator=(const IoUnit&) = delete;

  /// Does a bounded amount of work and returns how much.
  std::size_t poll(Time now);
  [[nodiscard]] Time next_deadline() const;
  [[nodiscard]] bool prepare_sleep();
  void disarm();
  /// Whether every host with traffic waits for the core that this unit runs on (FabricLink).
  [[nodiscard]] bool peer_waits_for_core();
  /// Frames that came from hosts and from the LAN.
  [[nodiscard]] const MovedFrames& moved() const { return moved_; }
  /// LanEngine::rests_until().
  [[nodiscard]] Time rests_until() const { return lan_.rests_until(); }
  void collect_descriptors(std::vector<int>& out) const;

  /// Starts an orderly end of every host's session. Call poll() until finished(), or until the caller's time limit.
  void begin_shutdown();
  [[nodiscard]] bool finished() const;

  [[nodiscard]] const std::vector<std::unique_ptr<AttachedHost>>& hosts() const { return hosts_; }
  [[nodiscard]] std::size_t hosts_up() const;
  /// Hosts that polls and sleeps pass by, because nothing happens there.
  [[nodiscard]] std::size_t quiet_hosts() const { return turns_.quiet(); }
  [[nodiscard]] const IoUnitCounters& counters() const { return counters_; }
  /// What the sessions of hosts that are no longer attached have counted.
  [[nodiscard]] const messaging::SessionTotals& departed() const { return departed_; }
  [[nodiscard]] std::uint64_t drops(LanDrop cause) const {
    return counters_.lan_drops[static_cast<std::size_t>(cause)];
  }
  /// How the hosts share the unit, by AttachedHost::number().
  [[nodiscard]] const FairShare& share() const { return share_; }
  [[nodiscard]] std::uint32_t mtu() const { return max_mtu(); }
  /// Applies new rules to the attached hosts. Ends only the sessions of hosts that the rules do not permit. The other
  /// units of a group follow with their next poll.
  void set_rules(PolicyRules rules);
  /// The policy of a unit that is alone. The policy of a group is UnitGroup::policy().
  [[nodiscard]] Policy& policy() { return *own_policy_; }
  [[nodiscard]] const Policy& policy() const { return *own_policy_; }
  [[nodiscard]] bool carrier() const { return lan_.carrier(); }

 private:
  void on_lan_frame(std::span<const std::byte> frame) override {
    if (!lan_merger_.keep(frame, nullptr, lan_mtu_, towards_hosts_)) take_lan_frame(frame, nullptr);
  }
  void on_lan_frame(std::span<const std::byte> frame, const frame::FrameOffload& offload) override {
    if (!lan_merger_.keep(frame, &offload, lan_mtu_, towards_hosts_)) take_lan_frame(frame, &offload);
  }
  bool on_unit_frame(std::span<const std::byte> frame, const frame::FrameOffload& offload, bool addressed) override;
  messaging::FrameMemory place_for(std::span<const std::byte> frame, std::size_t head_bytes,
                                   const frame::FrameOffload& offload) override;
  void on_placed_frame(std::span<const std::byte> frame, std::size_t head_bytes,
                       const frame::FrameOffload& offload) override;
  enum class Origin : std::uint8_t { lan, another_unit };
  /// offload: null where the LAN engine knows none.
  void take_lan_frame(FrameInHand frame, const frame::FrameOffload* offload, Origin origin = Origin::lan);

  tl::expected<messaging::HelloGrant, messaging::Refusal> admit(AttachedHost& attached,
                                                                const messaging::wire::HelloRequest& hello) override;
  messaging::Answer change_mac(AttachedHost& attached, const MacAddress& wanted) override;
  void frame_from_host(AttachedHost& attached, const messaging::ReceivedFrame& frame) override;
  void host_up(AttachedHost& attached) override;
  void host_down(AttachedHost& attached, std::string_view reason) override;
  void attend(AttachedHost& attached) override;
  void filters_changed() override;
  void filter_limited(AttachedHost& attached, const std::string& why) override;
  void host_says(AttachedHost& attached, const std::string& text) override;
  [[nodiscard]] std::uint32_t max_mtu() const override;
  [[nodiscard]] messaging::wire::Statistics lan_statistics() const override;

  // io_unit_turns.cpp
  std::size_t give_turns(Time now);
  std::size_t give_turn(AttachedHost& host, Time now);
  void flush_lan();
  void eject(AttachedHost& host, Time now);
  [[nodiscard]] Time first_turn(const fabric::Bridge& bridge, Time now);
  [[nodiscard]] bool rests(const AttachedHost& host) const { return share_.rests(host.number().value, now_); }

  void accept_hosts(Time now);
  void add_queue(std::shared_ptr<fabric::Bridge> bridge, std::uint64_t cookie);
  void pace_heartbeats();
  void drop_dead_queues(AttachedHost& host, Time now);
  void drop_dead_hosts(Time now);
  void return_memory(Time now);
  void keep_counts_of(const AttachedHost& departing);
  void follow_lan();
  // io_unit_group.cpp
  void follow_policy(SharedPolicy::Age age);
  /// When this unit takes a newer copy of the group's policy; kNever: there is none.
  [[nodiscard]] Time policy_due() const;
  void apply_rules();
  /// Calls change(policy) on the policy that counts: the own one, or the group's under its lock. Returns its result.
  template <class Change>
  auto change_policy(Change&& change) {
    return group_ == nullptr ? change(*own_policy_) : group_->group().policy().change(std::forward<Change>(change));
  }
  /// Pins the address to this host, here and in the group. False: it is another host's.
  [[nodiscard]] bool pin(const MacAddress& address, const AttachedHost& host,
                         SharedPlaces::Pin what = SharedPlaces::Pin::used);
  /// Another host here may have the address by now, and keeps it.
  void unpin(const MacAddress& address, const AttachedHost& host);
  /// All its addresses.
  void unpin(const AttachedHost& host);
  /// Pins the addresses that the configuration gives to this host alone: whether it uses them or not, they are not the
  /// LAN's. policy: whose rights the host has.
  void pin_configured(const AttachedHost& host, const Policy& policy);
  void pin_configured();
  /// Whether another host here or in the group has sent from this address for somebody behind it, within the time for
  /// which the policy holds addresses.
  [[nodiscard]] bool is_behind_another(const MacAddress& address, const AttachedHost& host, const Policy& policy) const;
  /// Forgets the addresses that were learned behind this host.
  void forget_learned(const AttachedHost& host);
  void tell_group_wants();
  [[nodiscard]] bool is_another_units(const MacAddress& address) const {
    if (group_ == nullptr) return false;
    const auto unit = group_->group().places().host_at(address);
    return unit && *unit != number();
  }
  /// Whether a frame with this destination, which this unit does not know for certain, is for another unit or the LAN.
  [[nodiscard]] bool is_elsewhere(const frame::EthernetHeader& header) const;
  [[nodiscard]] UnitNumber number() const { return group_ == nullptr ? UnitNumber{} : group_->unit(); }
  /// What admit() finds under the policy's lock. Returns the address.
  [[nodiscard]] tl::expected<MacAddress, messaging::Refusal> register_host(Policy& policy, AttachedHost& attached,
                                                                           const messaging::wire::HelloRequest& hello);
  bool outgrown(AttachedHost& host);
  [[nodiscard]] messaging::wire::LinkState lan_state() const;
  [[nodiscard]] std::optional<HostDrop> why_not_source(const AttachedHost& from,
                                                       const frame::EthernetHeader& header) const;
  AttachedHost* host_at(ForwardingTarget number);
  /// The receiver that a frame's destination address selects.
  struct Destination {
    bool known = false;                 ///< the forwarding table has the address; false for groups
    AttachedHost* addressed = nullptr;  ///< the host that last sent from it, up or not; null: the LAN, or unknown
  };
  [[nodiscard]] Destination destination_of(const frame::EthernetHeader& header);
  /// Whether `host` gets a copy although the frame is not addressed to it.
  [[nodiscard]] static bool overhears(const AttachedHost& host, const frame::EthernetHeader& header,
                                      const Destination& destination);
  [[nodiscard]] bool nobody_overhears(const frame::EthernetHeader& header, const Destination& destination) const;
  /// Delivers a complete frame to every host that must get it, except `from` (null: the LAN). Returns the number of
  /// receivers; it has delivered each copy or counted it as dropped.
  std::size_t forward_to_hosts(const frame::EthernetHeader& header, const Destination& destination,
                               std::span<const std::byte> frame, AttachedHost* from);
  /// Delivers one copy, or counts it at its sender (null: the LAN) if that is over its share of this receiver.
  void deliver(AttachedHost& to, AttachedHost* from, const frame::EthernetHeader& header, const FrameInHand& frame,
               const frame::UnfinishedFrame* unfinished = nullptr);
  /// Finds the hosts that get a copy, for receivers_. frames: what the frame counts as for limits. Returns how many
  /// others were to get one: counted as dropped.
  std::size_t find_receivers(const frame::EthernetHeader& header, const Destination& destination, AttachedHost* from,
                             std::uint64_t frames);
  /// Delivers a frame that asks for work to every host that must get it, and from a host also to the LAN. Each receiver
  /// that can finish it gets it whole; the others get what software makes of it. Returns the number of copies.
  std::size_t forward_unfinished(const frame::EthernetHeader& header, const Destination& destination,
                                 FrameInHand& frame, const frame::UnfinishedFrame& unfinished, AttachedHost* from);
  /// Copies a host's frame to private_copy_, behind room for a tag: all of it, or the head of a long super-frame, whose
  /// payload stays in the host's elements.
  [[nodiscard]] FrameInHand take_in_hand(const messaging::ReceivedFrame& received);
  /// Copies the rest of the host's frame that is in private_copy_.
  void complete(FrameInHand& frame);
  /// Counts a frame whose checksum software has completed, or that it has cut.
  void count_finished(frame::OffloadResult result, bool from_lan);
  void notice_about(const AttachedHost& about, std::string_view kind, const std::string& line);
  void recurring_notice_about(const AttachedHost& about, std::string_view kind, const std::string& line);
  void count(LanDrop cause) { ++counters_.lan_drops[static_cast<std::size_t>(cause)]; }
  void forward_to_lan(AttachedHost& from, const frame::EthernetHeader& header, std::span<const std::byte> frame);
  /// At once, or at the end of the host's turn in a super-frame with others.
  void send_to_lan(AttachedHost& from, const FrameInHand& frame, const frame::FrameOffload& offload);
  /// The LAN gets the frame, or the host's drop is counted.
  void put_on_lan(AttachedHost& from, const FrameInHand& frame, const frame::FrameOffload& offload);

  /// Gets the LAN's frames that were kept to be merged.
  struct TowardsHosts final : frame::MergerClient {
    explicit TowardsHosts(IoUnit& of) : unit(of) {}
    bool wants_merged(const frame::EthernetHeader& header, frame::SegmentKind kind) override;
    void on_kept_frame(std::span<const std::byte> frame, const frame::FrameOffload* offload, std::size_t segments,
                       std::size_t received_bytes) override;
    IoUnit& unit;
  };
  /// Gets those of one host, for the LAN: at the end of its turn at the latest.
  struct TowardsLan final : frame::MergerClient {
    explicit TowardsLan(IoUnit& of) : unit(of) {}
    bool wants_merged(const frame::EthernetHeader& header, frame::SegmentKind kind) override;
    void on_kept_frame(std::span<const std::byte> frame, const frame::FrameOffload* offload, std::size_t segments,
                       std::size_t received_bytes) override;
    IoUnit& unit;
    AttachedHost* from = nullptr;
  };

  IoUnitOptions options_;
  LanEngine& lan_;
  GroupLan* group_;
  fabric::BridgeSource& bridges_;
  RandomSource& random_;
  Notices& notices_;
  ForwardingTable table_;
  std::shared_ptr<Policy> own_policy_;    // null in a group
  std::shared_ptr<const Policy> policy_;  // what frames are judged by: the own one, or a copy of the group's
  std::uint64_t policy_version_ = 0;      // of the copy
  Time next_policy_{};                    // not before then a newer one
  Time pin_again_at_ = kNever;            // set: a configured address is not pinned yet
  frame::SoftwareOffload offload_;
  frame::FrameMerger lan_merger_;   // of the LAN's frames
  frame::FrameMerger host_merger_;  // of the frames of the host whose turn it is
  TowardsHosts towards_hosts_{*this};
  TowardsLan towards_lan_{*this};
  std::vector<std::unique_ptr<AttachedHost>> hosts_;  // by number, null where free
  std::size_t promiscuous_hosts_ = 0;
  std::size_t hosts_that_want_unknown_ = 0;
  FairShare share_;
  HostTurns turns_;
  CountedWork counted_work_;
  WorkMeter& meter_;
  fabric::UserLimits ejections_;          // of the users whose hosts were ejected
  std::vector<AttachedHost*> waiting_;    // for the next round, while the unit gives turns
  std::vector<AttachedHost*> receivers_;  // of the frame that the unit is handling
  std::vector<std::byte> private_copy_;   // of the host's frame that the unit is handling, or of its head
  AttachedHost* placed_in_ = nullptr;     // the host that gave memory for the last place_for()
  Time now_{};
  bool lan_carrier_ = false;
  std::uint32_t lan_mtu_ = 0;
  std::size_t reported_sessions_ = 0;
  Time return_memory_at_ = kNever;  // set: hosts have ended since the unit last returned memory
  bool sent_to_lan_ = false;
  bool stopping_ = false;
  IoUnitCounters counters_;
  MovedFrames moved_;
  messaging::SessionTotals departed_;
};

}  // namespace splitnic::iounit
