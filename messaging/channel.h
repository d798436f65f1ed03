#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/zeroed_memory.h"
#include "fabric/adapter/channel_adapter.h"

namespace splitnic::messaging {

struct ChannelOptions {
  fabric::QpNumber number{};  ///< a well-known one, or 0 for any
  bool acknowledged = true;
  fabric::VirtualLane lane = fabric::VirtualLane::control;
  std::size_t send_buffers = 32;
  std::size_t receive_buffers = 64;
  std::uint32_t message_bytes = 4096;  ///< size of each buffer, the maximum message length
  std::size_t writes = 0;              ///< maximum outstanding RDMA writes, in addition to the messages
};

/// Receives a channel's messages and events. Channel::poll() calls it.
class ChannelSink {
 public:
  virtual ~ChannelSink() = default;
  /// A message, in this process's private memory, valid during the call.
  virtual void on_message(std::span<const std::byte> message) = 0;
  /// The peer's RDMA write with immediate data has arrived in this end's memory.
  virtual void on_immediate(std::uint32_t immediate) = 0;
  /// A work request failed: the queue pair is in the error state, and the session must end.
  virtual void on_channel_failure(fabric::CompletionStatus status) = 0;
};

/// One channel of a session: a queue pair with registered send and receive buffers, and room for RDMA writes. In S1,
/// channel 0 is the control channel and channel 1 the data channel. open() allocates all memory; messages allocate
/// none. Thread: the session's owner. Source: S1 IV.A, Figs. 6 and 7.
class Channel {
 public:
  /// adapter: must outlive the channel. Returns null when the adapter has no room.
  static std::unique_ptr<Channel> open(fabric::ChannelAdapter& adapter, fabric::ProtectionDomain domain,
                                       const ChannelOptions& options);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] fabric::QpNumber number() const { return queue_pair_; }
  [[nodiscard]] fabric::Status connect(const fabric::QueuePairPeer& peer);

  /// Returns a free send buffer of message_bytes; empty when all are in flight. There is at most one claim at a time: a
  /// second call returns the same buffer.
  [[nodiscard]] std::span<std::byte> claim();
  /// Sends the first `bytes` of the claim.
  [[nodiscard]] bool commit(std::size_t bytes);
  /// Writes the first `bytes` of the claim to the peer's memory. immediate: the immediate data; null: none. The channel
  /// keeps the buffer until the write completes.
  [[nodiscard]] bool commit_write(std::size_t bytes, fabric::RemoteAddress to, const std::uint32_t* immediate);
  /// Announces a write whose bytes are in the peer's memory already (ChannelAdapter::claim_direct). They must lie where
  /// no earlier write of the channel may still land. An element of a pool is such a place: the peer returns it when the
  /// indication of the last frame in it has arrived, and that frame before it. The peer looks at the bytes when it is
  /// told of them, which comes after all that was sent before.
  [[nodiscard]] bool announce_write(std::uint32_t bytes, fabric::RemoteAddress to, const std::uint32_t* immediate);
  /// Whether there is room for so many more writes.
  [[nodiscard]] bool can_write(std::size_t writes = 1) const {
    return adapter_.has_send_room(queue_pair_, reserved_sends_ + writes);
  }
  /// Send buffers that are not in flight.
  [[nodiscard]] std::size_t free_buffers() const { return free_.size(); }
  /// At least half of them.
  [[nodiscard]] bool mostly_free() const { return free_.size() >= send_buffers_ / 2; }
  [[nodiscard]] std::uint32_t message_bytes() const { return message_bytes_; }
  /// Requests posted since the channel was opened.
  [[nodiscard]] std::uint64_t posted() const { return posted_; }
  /// How many of these poll() has seen complete; they complete in order. On an acknowledged channel, the peer has their
  /// bytes.
  [[nodiscard]] std::uint64_t completed() const { return posted_ - (send_depth_ - adapter_.send_room(queue_pair_)); }

  /// Handles up to `budget` completions; returns how many.
  std::size_t poll(ChannelSink& sink, std::size_t budget);

 private:
  Channel(fabric::ChannelAdapter& adapter, const ChannelOptions& options);
  bool set_up(fabric::ProtectionDomain domain, const ChannelOptions& options);
  [[nodiscard]] bool post_receive(std::size_t buffer);
  bool post(const fabric::WorkRequest& request);
  std::span<std::byte> buffer(std::size_t index);
  void handle(const fabric::Completion& completion, ChannelSink& sink);

  fabric::ChannelAdapter& adapter_;
  std::uint32_t message_bytes_;
  std::size_t send_buffers_;
  std::size_t send_depth_;
  std::size_t receive_buffers_;
  std::size_t reserved_sends_;  // send-queue entries reserved for messages, so that writes can't starve them
  fabric::QpNumber queue_pair_{};
  fabric::CqNumber completions_{};
  fabric::Stag tag_{};
  bool registered_ = false;
  std::uint64_t posted_ = 0;
  ZeroedMemory memory_;              // receive buffers first, then send buffers
  std::vector<std::uint32_t> free_;  // send buffers not in flight; back() is the next claim
  // The completions of one poll(). A member, because clearing it in each poll() would cost more than the poll().
  std::array<fabric::Completion, 32> batch_{};
};

}  // namespace splitnic::messaging
