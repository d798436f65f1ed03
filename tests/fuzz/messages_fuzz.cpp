// Any bytes as a received message. What decode() accepts must be within its limits, and encode again to the same
// bytes; what it refuses must say so at a place inside the message.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/check.h"
#include "messaging/wire/cfgutil.h"
#include "messaging/wire/encode.h"
#include "messaging/wire/immediate.h"
#include "messaging/wire/messages.h"

namespace {

using namespace splitnic::messaging::wire;

constexpr Limits kLimits{.message_bytes = 4096,
                         .list_entries = 64,
                         .frame_bytes = 1514,
                         .pool_elements = 512,
                         .element_bytes = 65'536,
                         .highest_pool = 1000};

template <class Value>
std::vector<Value> values_of(const ListView<Value>& list) {
  SPLITNIC_CHECK(list.size() > 0 && list.size() <= kLimits.list_entries);
  return {list.begin(), list.end()};
}

struct Encoder {
  std::span<std::byte> out;

  std::size_t operator()(const BufferRecvPool& message) const {
    const auto pools = values_of(message.pools);
    for (const auto& pool : pools)
      SPLITNIC_CHECK_OP(pool.address, <=, ~0ULL - std::uint64_t{pool.elements} * pool.element_bytes);
    return encode_buffer_recv_pool(out, message.transaction, pools);
  }
  std::size_t operator()(const BufferRecvPoolGet& message) const {
    return encode_buffer_recv_pool_get(out, message.transaction, message.packet_bytes, message.packets);
  }
  std::size_t operator()(const BufferRecvPoolUpdate& message) const {
    return encode_buffer_recv_pool_update(out, message.transaction, values_of(message.runs));
  }
  std::size_t operator()(const BufferPoolFlushRequest& message) const {
    return encode_buffer_pool_flush_request(out, message.transaction, values_of(message.pools));
  }
  std::size_t operator()(const BufferPoolFlushReply& message) const {
    return encode_buffer_pool_flush_reply(out, message.transaction);
  }
  std::size_t operator()(const SendData& message) const {
    return encode_send_data(out, message.transaction, message.frame);
  }
  std::size_t operator()(const BufferRdmaIndicate& message) const {
    const auto indications = values_of(message.indications);
    for (const auto& one : indications) SPLITNIC_CHECK(fits_pool(one, kLimits.pool_elements, kLimits.element_bytes));
    return encode_buffer_rdma_indicate(out, message.transaction, indications);
  }
  std::size_t operator()(const CfgUtilRequest& message) const {
    if (const auto body = decode_request(message.code, message.data)) {
      const auto again = decode_request(message.code, encode(*body));
      SPLITNIC_CHECK(again && *again == *body);
    }
    return encode_cfg_util_request(out, message.transaction, static_cast<CfgRequest>(message.code), message.data);
  }
  std::size_t operator()(const CfgUtilReply& message) const {
    for (std::uint32_t code = 1; code <= kLastCfgRequest; ++code) {
      const auto request = static_cast<CfgRequest>(code);
      if (const auto body = decode_reply(request, message.data)) {
        const auto again = decode_reply(request, encode(*body));
        SPLITNIC_CHECK(again && *again == *body);
      }
    }
    SPLITNIC_CHECK(is_valid_text(decode_refusal(message.data)));
    return encode_cfg_util_reply(out, message.transaction, message.status, message.data);
  }
  std::size_t operator()(const Unsupported& message) const { return encode_unsupported(out, message); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto message = decode(bytes, kLimits);
  if (!message) {
    SPLITNIC_CHECK_OP(message.error().offset, <=, size);
    SPLITNIC_CHECK(!message.error().field.empty() && !to_string(message.error()).empty());
    if (const auto answer = unsupported_answer(message.error()))
      SPLITNIC_CHECK_OP(answer->offending_word, <, 0x8000'0000U);
    return 0;
  }
  std::vector<std::byte> again(kLimits.message_bytes);
  again.resize(std::visit(Encoder{again}, *message));
  // The version of Unsupported is its sender's own.
  const std::size_t from = std::holds_alternative<Unsupported>(*message) ? sizeof(std::uint16_t) : 0;
  SPLITNIC_CHECK(std::ranges::equal(bytes.subspan(from), std::span<const std::byte>(again).subspan(from)));
  return 0;
}
