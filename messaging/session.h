#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "common/mac_address.h"
#include "common/random.h"
#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/bridge/link.h"
#include "messaging/buffer_pools.h"
#include "messaging/channel.h"
#include "messaging/received_frame.h"
#include "messaging/session_counters.h"
#include "messaging/session_state.h"
#include "messaging/wire/cfgutil.h"
#include "messaging/wire/encode.h"
#include "messaging/wire/immediate.h"
#include "messaging/wire/messages.h"

namespace splitnic::messaging {

struct SessionOptions {
  wire::Role role = wire::Role::host;
  std::string name;                    ///< see wire::is_valid_name
  wire::Mode mode = wire::Mode::rdma;  ///< the host's preference; the unit may override it (insist_on_mode)
  bool insist_on_mode = false;         ///< unit: answer with `mode`, whatever the host requested
  bool data_channel = true;            ///< false: frames as SendData on the control channel
  MacAddress mac;                      ///< host: requested address; zero: the unit chooses
  std::uint32_t max_mtu = 1500;        ///< maximum layer-3 bytes that this end accepts
  std::uint32_t pool_elements = 256;
  std::uint32_t cell_bytes = 256;
  wire::Moderation moderation;  ///< what this end requests of the peer; all zero: none
  fabric::LinkOptions link;
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
};

/// A push-push session over one bridge. It brings up the link, the channels and the pools, restores them after each
/// fault, and transfers frames. Both roles use this code. It owns the link and the adapter of its end; the bridge, the
/// random source and the events must outlive it. Thread: one owner. Source: S1 IV; design, "Messaging".
class Session {
 public:
  /// Throws StartupError like require_valid().
  Session(const SessionOptions& options, fabric::Bridge& bridge, RandomSource& random, SessionEvents& events);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Does a bounded amount of work and returns how much. While up, call flush() after handling what arrived.
  std::size_t poll(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// See FabricLink::prepare_sleep(): false means that work has arrived.
  [[nodiscard]] bool prepare_sleep();
  void disarm();
  [[nodiscard]] bool peer_waits_for_core() { return link_.peer_waits_for_core(now_); }

  [[nodiscard]] SessionState state() const { return state_; }
  [[nodiscard]] bool up() const { return state_ == SessionState::up; }

  /// Returns max_frame_bytes() bytes for one frame to the peer, write-only (the memory may be the peer's). Empty while
  /// not up, when the peer has no free element, or when the queue is full (back-pressure). There is at most one claim
  /// at a time; a new claim replaces it.
  [[nodiscard]] std::span<std::byte> claim();
  /// Pushes the first `bytes` (14 .. claim size) of the claim as a frame. Indications go out in batches.
  void commit(std::uint32_t bytes);
  /// Ends a batch: sends the indications, and wakes the peer if it sleeps, subject to the moderation that the peer
  /// requested.
  void flush();
  [[nodiscard]] std::uint32_t max_frame_bytes() const { return max_frame_bytes_; }

  /// Queues a request for the peer. It replaces a queued request of the same kind that has not been sent. False before
  /// the session is negotiated, when the queue is full, or if the request is longer than the session's messages.
  /// on_reply() delivers the answer.
  bool request(const wire::RequestBody& body);

  /// Sends the peer the reason, ends the present epoch and starts a new one.
  void reset(std::string_view reason);
  /// Host: sets the address that the next hello requests.
  void ask_for_mac(const MacAddress& mac) { options_.mac = mac; }
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
  [[nodiscard]] wire::Mode mode() const { return mode_; }
  [[nodiscard]] Credits credits() const;
  [[nodiscard]] bool has_data_channel() const { return data_ != nullptr; }

 private:
  /// Passes what a channel receives to the session's member functions.
  class Receiver final : public ChannelSink {
   public:
    Receiver(Session& session, bool data) : session_(session), data_(data) {}
    void on_message(std::span<const std::byte> message) override;
    void on_immediate(std::uint32_t immediate) override;
    void on_channel_failure(fabric::CompletionStatus status) override;

   private:
    Session& session_;
    bool data_;
  };
  enum class TxPath : std::uint8_t { none, direct, segmented, data_send, send_data };
  struct PendingRequest {
    wire::CfgRequest code{};
    std::vector<std::byte> data;
    std::uint64_t transaction = 0;  ///< 0: not sent yet
    Time deadline{};
    unsigned tries = 0;
  };
  struct OwnSlot;
  /// An answer that waits for a free send buffer.
  struct WaitingAnswer {
    std::uint64_t transaction = 0;
    wire::CfgStatus status{};
    std::vector<std::byte> data;
  };

  // session.cpp: the state machine
  void move_to(SessionState next);
  void fault(std::string reason);
  void release(std::string_view reason);
  bool open_control();
  void start_epoch();
  std::size_t poll_channels();
  void poll_timers();
  [[nodiscard]] std::unique_ptr<Channel> open_channel(fabric::QpNumber number, bool acknowledged,
                                                      fabric::VirtualLane lane, std::size_t writes);
  // session_hello.cpp: from control connected to up
  void send_hello();
  [[nodiscard]] wire::ChannelTerms own_terms() const;
  [[nodiscard]] std::uint32_t data_message_bytes() const;
  Answer answer_hello(const wire::HelloRequest& hello);
  void accept_hello_reply(const wire::HelloReply& reply);
  void settle(const wire::ChannelTerms& mine, const wire::ChannelTerms& theirs, wire::Mode mode);
  bool connect_data(const wire::ChannelTerms& theirs);
  void after_hello();
  void advance();
  // session_control.cpp: messages
  [[nodiscard]] Channel& control() {
    return mode_ == wire::Mode::send && control_unacknowledged_ ? *control_unacknowledged_ : *control_;
  }
  template <class Encode>
  bool send_message(wire::Function function, Encode&& encode);
  void on_control_message(std::span<const std::byte> bytes);
  void on_data_message(std::span<const std::byte> bytes);
  void handle(const wire::BufferRecvPool& message);
  void handle(const wire::BufferRecvPoolGet& message);
  void handle(const wire::BufferRecvPoolUpdate& message);
  void handle(const wire::BufferPoolFlushRequest& message);
  void handle(const wire::BufferPoolFlushReply& message);
  void handle(const wire::SendData& message);
  void handle(const wire::BufferRdmaIndicate& message);
  void handle(const wire::CfgUtilRequest& message);
  void handle(const wire::CfgUtilReply& message);
  void handle(const wire::Unsupported& message);
  Answer answer(const wire::RequestBody& request);
  void answer_unsupported(const wire::MessageFault& error);
  void answer_version(std::uint64_t transaction);
  void reply(std::uint64_t transaction, const Answer& answer);
  [[nodiscard]] bool send_answer(const WaitingAnswer& answer);
  void push_answer();
  void push_requests();
  void answer_flushes();
  [[nodiscard]] std::optional<std::uint64_t> send_flush(std::span<const wire::FlushedPool> pools);
  [[nodiscard]] bool flush_own_pools();
  bool queue_request(wire::CfgRequest code, std::vector<std::byte> data);
  // session_data.cpp: pools and frames
  bool add_own_pool(std::uint32_t elements);
  void advertise_pools();
  void remove_own_pool(OwnSlot& slot);
  void ask_for_pool();
  void drop_idle_peer_pools();
  void return_elements(bool all);
  [[nodiscard]] bool return_elements_of(OwnedPool& pool);
  void flush_indications();
  void settle_pool_shape();
  void indicated(const wire::Indication& indication, bool immediate);
  void deliver(const ReceivedFrame& frame);
  [[nodiscard]] PeerPool* usable_peer_pool();
  [[nodiscard]] OwnedPool* own_pool(wire::PoolNumber number);
  void ring();

  SessionOptions options_;
  std::uint32_t next_max_mtu_;
  RandomSource& random_;
  SessionEvents& events_;
  fabric::FabricLink link_;
  std::unique_ptr<fabric::ChannelAdapter> adapter_;
  fabric::AdapterCounters past_counters_{};
  fabric::ProtectionDomain domain_{};
  std::unique_ptr<Channel> control_;
  std::unique_ptr<Channel> control_unacknowledged_;  // mode S, from negotiated on
  std::unique_ptr<Channel> data_;
  Receiver control_receiver_{*this, false};
  Receiver data_receiver_{*this, true};

  SessionState state_ = SessionState::down;
  Time now_{};
  Time state_since_{};
  Time restart_at_{};
  bool restart_wanted_ = true;  // a new epoch of this end is due at restart_at_
  std::uint64_t incarnation_ = 0;
  std::string fault_;  // set during poll(), which ends the session for it before it returns
  wire::Mode mode_ = wire::Mode::rdma;
  wire::Limits limits_;
  std::uint32_t first_psn_ = 0;
  std::uint32_t max_frame_bytes_ = 0;
  wire::HelloReply hello_reply_;
  bool peer_ready_ = false;
  bool own_ready_sent_ = false;

  std::deque<PendingRequest> requests_;
  std::uint64_t next_transaction_ = 1;
  Time last_heard_{};
  Time next_heartbeat_{};
  std::uint64_t heartbeat_sequence_ = 0;
  Time unsupported_after_{};

  struct OwnSlot {
    std::optional<OwnedPool> pool;
    bool advertised = false;
    std::uint64_t flush = 0;                // transaction of this end's flush request for it; 0: none
    std::vector<std::byte> process_memory;  // used if the pool does not fit the bridge: segmented writes
  };
  static constexpr std::size_t kMaxOwnPools = 8;
  static constexpr std::size_t kMaxPeerPools = 8;
  // Maximum outstanding flushes in each direction: one request per pool, from its owner or its user.
  static constexpr std::size_t kMaxFlushes = kMaxOwnPools + kMaxPeerPools;
  /// A flush request of the peer.
  struct FlushToAnswer {
    std::uint64_t transaction = 0;
    std::optional<std::uint64_t> writes;  // Channel::posted() after the last indication was sent
  };
  std::array<OwnSlot, kMaxOwnPools> own_pools_;
  std::uint32_t slot_elements_ = 0;  // elements of one pool
  std::size_t bridge_slots_ = 0;     // how many of own_pools_ fit the bridge's buffer memory; 0: process memory
  std::uint32_t next_pool_number_ = 0;
  std::vector<PeerPool> peer_pools_;
  std::optional<wire::PoolNumber> highest_peer_pool_;
  std::size_t peer_pool_in_use_ = 0;
  bool exhausted_ = false;
  bool advertise_wanted_ = false;        // a pool of this end has not been advertised yet
  std::uint64_t extra_pool_writes_ = 0;  // Channel::posted() at the last write or indication of a pool but the first
  Time pool_asked_at_{};
  Time extra_pool_used_at_{};
  Time returns_due_ = kNever;

  TxPath tx_path_ = TxPath::none;
  std::span<std::byte> claimed_;
  std::size_t claimed_offset_ = 0;
  std::vector<wire::Indication> indications_;
  wire::Moderation peer_moderation_;
  std::uint32_t unrung_entries_ = 0;
  std::uint32_t unrung_bytes_ = 0;
  Time ring_due_ = kNever;
  bool ring_wanted_ = false;   // this end wrote something that must wake the peer
  bool ring_at_once_ = false;  // a message, or a batch that moderation does not cover
  bool shutting_down_ = false;
  bool flush_requested_ = false;
  std::optional<WaitingAnswer> waiting_answer_;  // one is enough: the protocol allows one request at a time
  std::vector<std::uint64_t> flushes_;           // transactions of this end's unanswered flush requests
  std::deque<FlushToAnswer> flushes_to_answer_;
  bool goodbye_sent_ = false;
  bool goodbye_done_ = false;
  std::string reset_reason_;  // this end has sent a reset, which takes effect when answered or at reset_due_
  Time reset_due_ = kNever;

  SessionCounters counters_;
};

/// encode(span) returns the bytes used. False when no buffer is free: the caller keeps its message and tries again.
template <class Encode>
bool Session::send_message(wire::Function function, Encode&& encode) {
  auto& channel = control();
  const auto buffer = channel.claim();
  if (buffer.empty()) return false;
  if (!channel.commit(encode(buffer))) {
    fault("the control channel refused a message");
    return false;
  }
  ++counters_.messages_sent[wire::index_of(function)];
  ring_wanted_ = ring_at_once_ = true;
  return true;
}

}  // namespace splitnic::messaging
