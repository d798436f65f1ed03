#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "messaging/wire/entries.h"
#include "messaging/wire/layout.h"
#include "messaging/wire/messages.h"

/// Encoders of the push-push messages. Each writes one message at the start of `out`, private memory of the caller,
/// and returns the bytes used; none allocates. `out` must be large enough and the values must be ones that decode()
/// accepts within the negotiated limits: anything else is a bug of ours. Thread: any.
namespace splitnic::messaging::wire {

/// Bytes of a list message with so many entries.
template <class Value>
constexpr std::size_t list_message_bytes(std::size_t entries) {
  constexpr bool kPools = std::is_same_v<Value, PoolAdvertisement>;
  return (kPools ? sizeof(BufferRecvPoolHead) : sizeof(MessageHeader)) + entries * sizeof(typename Value::Wire);
}

/// The bytes of SendData before its frame: encode the head, and the frame is gathered from where it is.
inline constexpr std::size_t kSendDataHeadBytes = sizeof(SendDataHead);

std::size_t encode_buffer_recv_pool(std::span<std::byte> out, std::uint64_t transaction,
                                    std::span<const PoolAdvertisement> pools);
std::size_t encode_buffer_recv_pool_get(std::span<std::byte> out, std::uint64_t transaction, std::uint32_t packet_bytes,
                                        std::uint32_t packets);
std::size_t encode_buffer_recv_pool_update(std::span<std::byte> out, std::uint64_t transaction,
                                           std::span<const ElementRun> runs);
std::size_t encode_buffer_pool_flush_request(std::span<std::byte> out, std::uint64_t transaction,
                                             std::span<const FlushedPool> pools);
std::size_t encode_buffer_pool_flush_reply(std::span<std::byte> out, std::uint64_t transaction);
/// The head alone; the message is these kSendDataHeadBytes followed by frame_bytes of frame.
std::size_t encode_send_data_head(std::span<std::byte> out, std::uint64_t transaction, std::uint32_t frame_bytes);
std::size_t encode_send_data(std::span<std::byte> out, std::uint64_t transaction, std::span<const std::byte> frame);
std::size_t encode_buffer_rdma_indicate(std::span<std::byte> out, std::uint64_t transaction,
                                        std::span<const Indication> indications);
std::size_t encode_cfg_util_request(std::span<std::byte> out, std::uint64_t transaction, CfgRequest request,
                                    std::span<const std::byte> data);
std::size_t encode_cfg_util_reply(std::span<std::byte> out, std::uint64_t transaction, CfgStatus status,
                                  std::span<const std::byte> data);
std::size_t encode_unsupported(std::span<std::byte> out, const Unsupported& unsupported);

/// Gathers the entries of one unsolicited list message in a buffer of the caller's, which it holds as long as it
/// lives: add() until it says full, finish(), send, and start again with the same writer.
template <class Value>
class ListWriter {
 public:
  /// buffer: room for at least one entry; max_entries: what was negotiated, at least 1.
  ListWriter(std::span<std::byte> buffer, std::size_t max_entries);

  /// False if the list is full: nothing was added. A run that continues the last one is merged into it.
  [[nodiscard]] bool add(const Value& value);
  [[nodiscard]] bool empty() const { return entries_ == 0; }
  [[nodiscard]] std::size_t entries() const { return entries_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  /// The whole message, in the buffer until the next add(); empty if there were no entries. The writer is empty again.
  [[nodiscard]] std::span<const std::byte> finish();

 private:
  void store(std::size_t index, const Value& value);

  std::span<std::byte> buffer_;
  std::size_t capacity_;
  std::size_t entries_ = 0;
  Value last_{};
};

/// BufferRecvPoolUpdate and BufferRDMAIndicate, batched.
using UpdateWriter = ListWriter<ElementRun>;
using IndicateWriter = ListWriter<Indication>;

extern template class ListWriter<ElementRun>;
extern template class ListWriter<Indication>;

}  // namespace splitnic::messaging::wire
