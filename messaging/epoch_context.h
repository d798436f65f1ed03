#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/random.h"
#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/bridge/link.h"
#include "messaging/channel.h"
#include "messaging/session_state.h"
#include "messaging/session_types.h"

namespace splitnic::messaging {

/// Decides when to wake the peer for what this end has written: at once for messages; for frames, and for lane room
/// that was returned, as the peer's moderation allows. Thread: the session's owner.
class PeerDoorbell {
 public:
  /// link: must outlive this object.
  explicit PeerDoorbell(fabric::FabricLink& link) : link_(link) {}

  void set_moderation(const wire::Moderation& moderation) { moderation_ = moderation; }
  [[nodiscard]] bool moderated() const { return moderation_.time.count() > 0; }
  /// Something was written that moderation covers.
  void request() { requested_ = true; }
  /// Something was written that moderation does not cover.
  void request_at_once() { requested_ = at_once_ = true; }
  void count_frame(std::uint32_t bytes);
  /// Ends a batch: rings if the peer sleeps, or postpones the doorbell until due().
  void ring(Time now);
  /// This end is about to sleep. The link may have rung early, because of something that can't wait, or not at all,
  /// because the peer is awake: then nothing is due any more.
  void note_announced();
  /// When a postponed doorbell must ring; kNever: there is none.
  [[nodiscard]] Time due() const { return due_; }

 private:
  void start_anew();

  fabric::FabricLink& link_;
  wire::Moderation moderation_;
  std::uint32_t entries_ = 0;  // frames since the last doorbell, and their bytes
  std::uint32_t bytes_ = 0;
  Time due_ = kNever;
  bool requested_ = false;
  bool at_once_ = false;
};

/// What the parts of one session epoch share. SessionEpoch owns it; the references belong to the Session, which
/// outlives the epoch. Thread: the session's owner.
struct EpochContext {
  EpochContext(SessionOptions& of_session, SessionCounters& counts, SessionEvents& driver, RandomSource& randomness,
               fabric::FabricLink& on, Time at);

  /// The session ends with the first reason given, at the end of its poll().
  void fail(std::string reason);
  void move_to(SessionState next);
  /// What this end offers in its hello.
  [[nodiscard]] wire::ChannelTerms own_terms() const;
  /// The features that this end offers or grants in a mode.
  [[nodiscard]] std::uint64_t own_features(wire::Mode in) const;
  void agree_on(std::uint64_t features);
  /// The size of each buffer of a data channel: for a frame, or the longest list of indications.
  [[nodiscard]] std::uint32_t data_message_bytes() const;
  /// A channel with buffers for this end's terms. writes: maximum outstanding RDMA writes. Null: the adapter or
  /// this process has no room.
  [[nodiscard]] std::unique_ptr<Channel> open_channel(fabric::QpNumber number, bool acknowledged,
                                                      fabric::VirtualLane lane, std::size_t writes);

  SessionOptions& options;
  SessionCounters& counters;
  SessionEvents& events;
  RandomSource& random;
  fabric::FabricLink& link;
  fabric::ChannelAdapter adapter;
  fabric::ProtectionDomain domain;
  PeerDoorbell doorbell;
  SessionState state = SessionState::bridge_up;
  Time state_since{};
  Time now{};
  std::string fault{};         ///< why the session must end; empty: it continues
  bool not_permitted = false;  ///< host: the unit's rules do not permit this session
  bool shutting_down = false;  ///< the session takes no more frames
  wire::Mode mode{};           ///< negotiated, as the next three
  wire::Limits limits{};
  std::uint32_t max_frame_bytes = 0;  ///< of a frame that is not to be segmented
  bool offloads = false;              ///< wire::kFeatureOffloads
  bool udp_segments = false;          ///< wire::kFeatureUdpSegments

  /// In front of each frame.
  [[nodiscard]] std::uint32_t header_bytes() const { return offloads ? wire::kOffloadHeaderBytes : 0; }
  /// Of any frame, without that header.
  [[nodiscard]] std::uint32_t longest_frame_bytes() const {
    return offloads ? wire::kMaxSuperFrameBytes : max_frame_bytes;
  }
};

}  // namespace splitnic::messaging
