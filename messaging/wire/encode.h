#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "messaging/wire/entries.h"
#include "messaging/wire/layout.h"
#include "messaging/wire/messages.h"

/// Encoders of the push-push messages. Each writes one message at the start of `out`, the caller's private memory, and
/// returns the bytes used; none allocates. The caller must provide a large enough `out`, and values that decode()
/// accepts within the negotiated limits. Thread: any.
namespace splitnic::messaging::wire {

/// The size in bytes of a list message with this number of entries.
template <class Value>
constexpr std::size_t list_message_bytes(std::size_t entries) {
  constexpr bool kPools = std::is_same_v<Value, PoolAdvertisement>;
  return (kPools ? sizeof(BufferRecvPoolHead) : sizeof(MessageHeader)) + entries * sizeof(typename Value::Wire);
}

/// The bytes of SendData before its frame. encode_send_data_head() writes them; the send gathers the frame from its
/// place in memory.
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
/// Writes only the head. The message is these kSendDataHeadBytes followed by frame_bytes of frame.
std::size_t encode_send_data_head(std::span<std::byte> out, std::uint64_t transaction, std::uint32_t frame_bytes);
std::size_t encode_send_data(std::span<std::byte> out, std::uint64_t transaction, std::span<const std::byte> frame);
std::size_t encode_buffer_rdma_indicate(std::span<std::byte> out, std::uint64_t transaction,
                                        std::span<const Indication> indications);
std::size_t encode_cfg_util_request(std::span<std::byte> out, std::uint64_t transaction, CfgRequest request,
                                    std::span<const std::byte> data);
std::size_t encode_cfg_util_reply(std::span<std::byte> out, std::uint64_t transaction, CfgStatus status,
                                  std::span<const std::byte> data);
std::size_t encode_unsupported(std::span<std::byte> out, const Unsupported& unsupported);

/// Collects the entries of one unsolicited list message in the caller's buffer, which must outlive the writer. Call
/// add() until it returns false, then finish(); send the message, and use the same writer again.
template <class Value>
class ListWriter {
 public:
  /// buffer: has room for at least one entry. max_entries: the negotiated maximum, at least 1.
  ListWriter(std::span<std::byte> buffer, std::size_t max_entries);

  /// False if the list is full; it then adds nothing. Merges a run that continues the last one into it.
  [[nodiscard]] bool add(const Value& value);
  [[nodiscard]] bool empty() const { return entries_ == 0; }
  [[nodiscard]] std::size_t entries() const { return entries_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  /// Returns the whole message, which stays in the buffer until the next add(); empty if there are no entries. Empties
  /// the writer.
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
