#include "messaging/wire/encode.h"

#include <algorithm>
#include <cstring>

namespace splitnic::messaging::wire {
namespace {

MessageHeader header_of(Function function, std::uint64_t transaction) {
  return {little_uint16_buf_t(kHighestVersion), little_uint16_buf_t(static_cast<std::uint16_t>(function)),
          little_uint64_buf_t(transaction)};
}

template <class Wire>
std::size_t put(std::span<std::byte> out, std::size_t at, const Wire& wire) {
  SPLITNIC_CHECK_OP(out.size(), >=, at + sizeof(wire));
  std::memcpy(out.data() + at, &wire, sizeof(wire));
  return at + sizeof(wire);
}

std::size_t put_bytes(std::span<std::byte> out, std::size_t at, std::span<const std::byte> bytes) {
  SPLITNIC_CHECK_OP(out.size(), >=, at + bytes.size());
  if (!bytes.empty()) std::memcpy(out.data() + at, bytes.data(), bytes.size());
  return at + bytes.size();
}

template <class Value>
std::size_t put_list(std::span<std::byte> out, std::size_t at, std::span<const Value> values) {
  SPLITNIC_CHECK(!values.empty());
  for (const Value& value : values) at = put(out, at, value.to_wire());
  return at;
}

template <class Value>
constexpr Function kListFunction = Function::unsupported;
template <>
constexpr Function kListFunction<ElementRun> = Function::buffer_recv_pool_update;
template <>
constexpr Function kListFunction<Indication> = Function::buffer_rdma_indicate;

std::size_t encode_cfg_util(std::span<std::byte> out, const MessageHeader& header, std::uint32_t code,
                            std::span<const std::byte> data) {
  const CfgUtilHead head{header, little_uint32_buf_t(code),
                         little_uint32_buf_t(static_cast<std::uint32_t>(data.size())), little_uint32_buf_t(0)};
  return put_bytes(out, put(out, 0, head), data);
}

/// True if b starts where a ends; a then becomes both.
bool merge(ElementRun& a, const ElementRun& b) {
  if (a.pool != b.pool || a.first + a.elements != b.first) return false;
  a.elements += b.elements;
  return true;
}

bool merge(Indication&, const Indication&) { return false; }

}  // namespace

std::size_t encode_buffer_recv_pool(std::span<std::byte> out, std::uint64_t transaction,
                                    std::span<const PoolAdvertisement> pools) {
  const BufferRecvPoolHead head{header_of(Function::buffer_recv_pool, transaction), little_uint32_buf_t(0)};
  return put_list(out, put(out, 0, head), pools);
}

std::size_t encode_buffer_recv_pool_get(std::span<std::byte> out, std::uint64_t transaction, std::uint32_t packet_bytes,
                                        std::uint32_t packets) {
  return put(out, 0,
             BufferRecvPoolGetBody{header_of(Function::buffer_recv_pool_get, transaction),
                                   little_uint32_buf_t(packet_bytes), little_uint32_buf_t(packets)});
}

std::size_t encode_buffer_recv_pool_update(std::span<std::byte> out, std::uint64_t transaction,
                                           std::span<const ElementRun> runs) {
  return put_list(out, put(out, 0, header_of(Function::buffer_recv_pool_update, transaction)), runs);
}

std::size_t encode_buffer_pool_flush_request(std::span<std::byte> out, std::uint64_t transaction,
                                             std::span<const FlushedPool> pools) {
  return put_list(out, put(out, 0, header_of(Function::buffer_pool_flush_request, transaction)), pools);
}

std::size_t encode_buffer_pool_flush_reply(std::span<std::byte> out, std::uint64_t transaction) {
  return put(out, 0, header_of(Function::buffer_pool_flush_reply, transaction));
}

std::size_t encode_send_data_head(std::span<std::byte> out, std::uint64_t transaction, std::uint32_t frame_bytes) {
  SPLITNIC_CHECK_OP(frame_bytes, >=, kMinFrameBytes);
  return put(out, 0, SendDataHead{header_of(Function::send_data, transaction), little_uint32_buf_t(frame_bytes)});
}

std::size_t encode_send_data(std::span<std::byte> out, std::uint64_t transaction, std::span<const std::byte> frame) {
  return put_bytes(out, encode_send_data_head(out, transaction, static_cast<std::uint32_t>(frame.size())), frame);
}

std::size_t encode_buffer_rdma_indicate(std::span<std::byte> out, std::uint64_t transaction,
                                        std::span<const Indication> indications) {
  return put_list(out, put(out, 0, header_of(Function::buffer_rdma_indicate, transaction)), indications);
}

std::size_t encode_cfg_util_request(std::span<std::byte> out, std::uint64_t transaction, CfgRequest request,
                                    std::span<const std::byte> data) {
  return encode_cfg_util(out, header_of(Function::cfg_util_request, transaction), static_cast<std::uint32_t>(request),
                         data);
}

std::size_t encode_cfg_util_reply(std::span<std::byte> out, std::uint64_t transaction, CfgStatus status,
                                  std::span<const std::byte> data) {
  return encode_cfg_util(out, header_of(Function::cfg_util_reply, transaction), static_cast<std::uint32_t>(status),
                         data);
}

std::size_t encode_unsupported(std::span<std::byte> out, const Unsupported& unsupported) {
  return put(
      out, 0,
      UnsupportedBody{header_of(Function::unsupported, unsupported.transaction),
                      little_uint32_buf_t(unsupported.offending_word), little_uint16_buf_t(unsupported.lowest_version),
                      little_uint16_buf_t(unsupported.highest_version), little_uint32_buf_t(unsupported.reason)});
}

template <class Value>
ListWriter<Value>::ListWriter(std::span<std::byte> buffer, std::size_t max_entries)
    : buffer_(buffer),
      capacity_(buffer.size() < sizeof(MessageHeader)
                    ? 0
                    : std::min(max_entries, (buffer.size() - sizeof(MessageHeader)) / sizeof(typename Value::Wire))) {
  SPLITNIC_CHECK_OP(capacity_, >, 0U);
}

template <class Value>
bool ListWriter<Value>::add(const Value& value) {
  if (entries_ > 0 && merge(last_, value)) {
    store(entries_ - 1, last_);
    return true;
  }
  if (entries_ == capacity_) return false;
  last_ = value;
  store(entries_++, value);
  return true;
}

template <class Value>
std::span<const std::byte> ListWriter<Value>::finish() {
  if (entries_ == 0) return {};
  put(buffer_, 0, header_of(kListFunction<Value>, 0));
  const auto message = buffer_.first(list_message_bytes<Value>(entries_));
  entries_ = 0;
  return message;
}

template <class Value>
void ListWriter<Value>::store(std::size_t index, const Value& value) {
  put(buffer_, list_message_bytes<Value>(index), value.to_wire());
}

template class ListWriter<ElementRun>;
template class ListWriter<Indication>;

}  // namespace splitnic::messaging::wire
