#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/mac_address.h"
#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/link.h"
#include "messaging/session_counters.h"
#include "messaging/session_epoch.h"
#include "messaging/session_state.h"
#include "messaging/session_types.h"

namespace splitnic::messaging {

/// A push-push session over one bridge. It brings up the link, the channels and the pools, restores them after each
/// fault, and transfers frames. Both roles use this code. It owns the link of its end and what outlives an epoch of it;
/// everything else is the SessionEpoch. The bridge, the random source and the events must outlive the session. Thread:
/// one owner. Source: S1 IV; design, "Messaging".
class Session {
 public:
  /// Throws StartupError like require_valid().
  Session(const SessionOptions& options, fabric::Bridge& bridge, RandomSource& random, SessionEvents& events);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  static constexpr std::size_t kCompletionsPerPoll = 128;

  /// Does a bounded amount of work and returns how much. While up, call flush() after handling what arrived.
  /// completions: the most that it handles of each channel; later polls handle the rest.
  std::size_t poll(Time now, std::size_t completions = kCompletionsPerPoll);
  [[nodiscard]] Time next_deadline() const;
  /// See FabricLink::prepare_sleep(): false means that work has arrived.
  [[nodiscard]] bool prepare_sleep();
  void disarm();
  /// Arms the link until resume(): whatever the peer sends makes the bridge's doorbell readable, and what it takes,
  /// where that is waited for. Until then neither poll(), before next_deadline(), nor prepare_sleep() is due. False:
  /// something has arrived, or the session ends, or pauses after a fault; the link is not armed.
  [[nodiscard]] bool leave_armed();
  /// Ends leave_armed(): disarms the link. Must come before every call that isn't const, prepare_sleep() and poll()
  /// too.
  void resume(Time now);
  [[nodiscard]] bool peer_waits_for_core() { return link_.peer_waits_for_core(now_); }

  [[nodiscard]] SessionState state() const { return epoch_ ? epoch_->state() : state_; }
  [[nodiscard]] bool up() const { return state() == SessionState::up; }
  /// The peer has to answer something, or to take part in the set-up.
  [[nodiscard]] bool awaits_peer() const { return !up() || epoch_->outstanding(); }

  /// Returns memory for one frame of up to `bytes`, write-only (the memory may be the peer's): so many bytes, or fewer
  /// if no frame may be that long. Empty while not up, when the peer has no free element, or when the queue is full
  /// (back-pressure). Only with offloads() it may be in two parts. There is at most one claim at a time; a new claim
  /// replaces it.
  [[nodiscard]] FrameMemory claim(std::uint32_t bytes);
  /// The same for a frame of up to max_frame_bytes().
  [[nodiscard]] FrameMemory claim() { return claim(max_frame_bytes()); }
  /// Pushes the first `bytes` (14 .. claim size) of the claim as a frame. Indications go out in batches. offload: what
  /// the peer is to finish, only if offloads(); without kind, the frame must not be longer than max_frame_bytes(), and
  /// a kind of UDP needs udp_segments().
  void commit(std::uint32_t bytes, const frame::FrameOffload& offload = {});
  /// Ends a batch: sends the indications, and wakes the peer if it sleeps, subject to the moderation that the peer
  /// requested.
  void flush();
  /// Whether the peer sleeps and has not been rung, so that a flush() would wake it. False where moderation may
  /// postpone the doorbell.
  [[nodiscard]] bool peer_sleeps() const { return epoch_ && !epoch_->moderated() && link_.peer_sleeps(); }
  /// The longest frame that is not to be segmented: the agreed MTU with header and tags.
  [[nodiscard]] std::uint32_t max_frame_bytes() const { return epoch_ ? epoch_->max_frame_bytes() : 0; }
  /// The longest frame of all: a super-frame where offloads().
  [[nodiscard]] std::uint32_t longest_frame_bytes() const { return epoch_ ? epoch_->longest_frame_bytes() : 0; }
  /// Whether frames carry metadata, so that the receiver finishes their checksums and segments.
  [[nodiscard]] bool offloads() const { return epoch_ && epoch_->offloads(); }
  [[nodiscard]] bool udp_segments() const { return epoch_ && epoch_->udp_segments(); }

  /// Queues a request for the peer. It replaces a queued request of the same kind that has not been sent. False before
  /// the session is negotiated, when the queue is full, or if the request is longer than the session's messages.
  /// on_reply() delivers the answer.
  bool request(const wire::RequestBody& body);

  /// Sends the peer the reason, ends the present epoch and starts a new one.
  void reset(std::string_view reason);
  /// Host: sets the address that the next hello requests.
  void ask_for_mac(const MacAddress& mac) { options_.mac = mac; }
  /// Unit: from the next heartbeat on; see SessionOptions. Permitted before resume().
  void set_heartbeat(std::chrono::milliseconds interval, std::chrono::milliseconds phase) {
    options_.heartbeat_interval = interval;
    options_.heartbeat_phase = phase;
  }
  /// Sets the maximum MTU that this end offers from its next epoch on. max_mtu(): the one in the present epoch.
  void set_max_mtu(std::uint32_t max_mtu) { next_max_mtu_ = max_mtu; }
  [[nodiscard]] std::uint32_t max_mtu() const { return options_.max_mtu; }
  /// Starts an orderly end: takes the pools back and sends a reset. finished() becomes true within a few round trips,
  /// or never if the peer is gone; the caller limits the wait.
  void begin_shutdown();
  [[nodiscard]] bool finished() const;

  [[nodiscard]] const SessionCounters& counters() const { return counters_; }
  [[nodiscard]] fabric::AdapterCounters adapter_counters() const;
  /// See FabricLink::doorbells_left_out().
  [[nodiscard]] std::uint64_t doorbells_left_out() const { return link_.doorbells_left_out(); }
  /// All counters of this session object, over all its epochs. The driver adds them up over its session objects.
  [[nodiscard]] SessionTotals totals() const;
  [[nodiscard]] std::uint64_t epoch() const { return link_.epoch().value; }
  [[nodiscard]] wire::Mode mode() const { return epoch_ ? epoch_->mode() : wire::Mode::rdma; }
  [[nodiscard]] Credits credits() const;
  /// The caller could use more elements than are free: asks the peer for a pool, as a claim does that finds none.
  void want_elements() {
    if (epoch_) epoch_->frames().want_elements();
  }
  [[nodiscard]] bool has_data_channel() const { return epoch_ && epoch_->frames().has_data_channel(); }

 private:
  std::size_t poll_link();
  void start_epoch();
  void end_epoch(std::string_view reason);
  void fault(std::string reason);
  [[nodiscard]] bool prepare_link();

  SessionOptions options_;
  std::uint32_t next_max_mtu_;
  RandomSource& random_;
  SessionEvents& events_;
  SessionCounters counters_;
  fabric::FabricLink link_;
  std::unique_ptr<SessionEpoch> epoch_;      // from anchor_read on
  fabric::AdapterCounters past_counters_{};  // of the epochs that have ended
  SessionState state_ = SessionState::down;  // without an epoch: down or bridge_up
  std::string fault_;                        // of a session without an epoch
  std::uint64_t incarnation_ = 0;
  Time now_{};
  Time restart_at_{};
  Duration pause_{};            // after the last fault
  bool restart_wanted_ = true;  // a new epoch of this end is due at restart_at_
  bool shutting_down_ = false;
  bool goodbye_done_ = false;
};

}  // namespace splitnic::messaging
