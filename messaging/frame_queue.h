#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "messaging/buffer_pools.h"
#include "messaging/control_session.h"
#include "messaging/epoch_context.h"
#include "messaging/frame_memory.h"
#include "messaging/wire/immediate.h"

namespace splitnic::messaging {

/// The frames of one epoch: the data channel, this end's pools, the peer's pools, claims and indications. Messages
/// about pools travel on the control session. Thread: the session's owner. Source: S1 IV.A, channel 1; IV.B.
class FrameQueue final : private ChannelSink {
 public:
  /// Both must outlive the frame queue.
  FrameQueue(EpochContext& context, ControlSession& control) : context_(context), control_(control) {}
  FrameQueue(const FrameQueue&) = delete;
  FrameQueue& operator=(const FrameQueue&) = delete;

  // ---- set-up
  /// Opens the data channel for a mode. The terms for the hello; nullopt: the adapter has no room.
  [[nodiscard]] std::optional<wire::ChannelTerms::DataChannel> open(wire::Mode mode);
  /// theirs: the peer's terms, with a data channel. False: it can't be connected.
  [[nodiscard]] bool connect(const wire::ChannelTerms& theirs);
  /// The peer has no data channel: frames travel as SendData.
  void close() { data_.reset(); }
  [[nodiscard]] bool has_data_channel() const { return data_ != nullptr; }
  /// Mode R with a data channel.
  [[nodiscard]] bool uses_pools() const { return context_.mode == wire::Mode::rdma && data_; }
  /// Creates the first pool and advertises it. False: there is no room for it.
  [[nodiscard]] bool start_pools();
  /// Both ends have advertised a pool, where the mode has pools.
  [[nodiscard]] bool pools_exchanged() const;
  /// Frames may flow from now on.
  void start();

  // ---- frames to the peer; see Session::claim() and commit()
  [[nodiscard]] FrameMemory claim(std::uint32_t bytes);
  void commit(std::uint32_t bytes, const frame::FrameOffload& offload);
  void flush_indications();
  [[nodiscard]] Credits credits() const;
  void want_elements() { exhausted_ = true; }

  // ---- the rest
  /// Handles up to `budget` completions of the data channel; returns how many.
  std::size_t poll(std::size_t budget) { return data_ ? data_->poll(*this, budget) : 0; }
  /// Returns elements that are due.
  void return_elements();
  /// While up: asks for a pool when the peer's are exhausted, and gives back those that stay unused.
  void manage_peer_pools();
  /// Sends what could not be sent before: advertisements, and answers to flushes whose writes are complete.
  void push();
  [[nodiscard]] Time next_deadline() const { return returns_due_; }
  /// At least half of the send queue and of the buffers is free, and neither an answer nor a frame waits for writes to
  /// complete.
  [[nodiscard]] bool patient() const;
  /// Messages that the control session received.
  void handle(const wire::BufferRecvPool& message);
  void handle(const wire::BufferRecvPoolGet& message);
  void handle(const wire::BufferRecvPoolUpdate& message);
  void handle(const wire::BufferPoolFlushRequest& message);
  void handle(const wire::BufferPoolFlushReply& message);
  void handle(const wire::SendData& message);
  /// Requests every pool of this end back. True when it has requested all of them.
  [[nodiscard]] bool flush_own_pools();
  /// The peer has given all of them back.
  [[nodiscard]] bool own_pools_gone() const;

 private:
  enum class TxPath : std::uint8_t {
    none,
    direct,     // the claim is the peer's memory
    segmented,  // the claim is a buffer of the data channel
    staged,  // the claim is staging_: a frame that goes segmented, or in two parts through a window that is not memory
    data_send,
    send_data
  };
  struct OwnSlot {
    std::optional<OwnedPool> pool;
    bool advertised = false;
    std::uint64_t flush = 0;                // transaction of this end's flush request for it; 0: none
    std::vector<std::byte> process_memory;  // used if the pool does not fit the bridge: segmented writes
  };
  /// A flush request of the peer.
  struct FlushToAnswer {
    std::uint64_t transaction = 0;
    std::optional<std::uint64_t> writes;  // Channel::posted() after the last indication was sent
  };
  static constexpr std::size_t kMaxOwnPools = 8;
  static constexpr std::size_t kMaxPeerPools = 8;
  // Maximum outstanding flushes in each direction: one request per pool, from its owner or its user.
  static constexpr std::size_t kMaxFlushes = kMaxOwnPools + kMaxPeerPools;

  void on_message(std::span<const std::byte> message) override;
  void on_immediate(std::uint32_t immediate) override;
  void on_channel_failure(fabric::CompletionStatus status) override;

  // frame_queue.cpp: frames
  void indicated(const wire::Indication& indication, bool immediate);
  void deliver_unfinished(const OwnedPool::Bytes& bytes);
  void deliver(const ReceivedFrame& frame);
  [[nodiscard]] PeerPool* usable_peer_pool(std::uint32_t bytes);
  [[nodiscard]] FrameMemory claim_elements(std::uint32_t bytes);
  [[nodiscard]] std::span<std::byte> claim_range(fabric::RemoteAddress at, std::uint32_t bytes);
  [[nodiscard]] bool commit_elements(std::uint32_t bytes);
  [[nodiscard]] bool announce(const PeerPool& pool, std::uint32_t bytes, const std::uint32_t* immediate);
  [[nodiscard]] bool write_staged(const PeerPool& pool, std::uint32_t bytes, const std::uint32_t* immediate);
  [[nodiscard]] bool write(fabric::RemoteAddress to, std::span<const std::byte> bytes, const std::uint32_t* immediate);
  // frame_queue_pools.cpp: pools, and the messages about them
  [[nodiscard]] std::uint32_t own_element_bytes() const;
  void settle_pool_shape();
  bool add_own_pool(std::uint32_t elements);
  void remove_own_pool(OwnSlot& slot);
  [[nodiscard]] OwnedPool* own_pool(wire::PoolNumber number);
  void advertise_pools();
  void ask_for_pool();
  void drop_idle_peer_pools();
  void take_indicated();
  void return_elements(bool all);
  [[nodiscard]] bool return_elements_of(OwnedPool& pool);
  void answer_flushes();
  [[nodiscard]] std::optional<std::uint64_t> send_flush(std::span<const wire::FlushedPool> pools);

  EpochContext& context_;
  ControlSession& control_;
  std::unique_ptr<Channel> data_;
  std::uint32_t first_psn_ = 0;

  std::array<OwnSlot, kMaxOwnPools> own_pools_;
  std::uint32_t slot_elements_ = 0;  // elements of one pool
  std::size_t bridge_slots_ = 0;     // how many of own_pools_ fit the bridge's buffer memory; 0: process memory
  std::uint32_t next_pool_number_ = 0;
  bool advertise_wanted_ = false;  // a pool of this end has not been advertised yet
  Time returns_due_ = kNever;

  std::vector<PeerPool> peer_pools_;
  std::optional<wire::PoolNumber> highest_peer_pool_;
  std::size_t peer_pool_in_use_ = 0;
  bool exhausted_ = false;
  bool waits_for_buffers_ = false;       // the last claim found too few buffers of the data channel for its frame
  std::uint64_t extra_pool_writes_ = 0;  // Channel::posted() at the last write or indication of a pool but the first
  Time pool_asked_at_{};
  Time extra_pool_used_at_{};

  TxPath tx_path_ = TxPath::none;
  FrameMemory claimed_;             // with the virtio-net header, where there is one
  std::size_t claimed_offset_ = 0;  // of the last range; a window that is not memory gives one
  std::vector<std::byte> staging_;
  std::vector<wire::Indication> indications_;

  std::vector<std::uint64_t> flushes_;  // transactions of this end's unanswered flush requests
  std::deque<FlushToAnswer> flushes_to_answer_;
};

}  // namespace splitnic::messaging
