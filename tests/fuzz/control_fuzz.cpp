// Requests and replies of the control socket: any bytes as a message. What is understood encodes again to a message
// with the same meaning, if that can be sent. Half of the inputs start from a good message, so that single fields are
// reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "common/os/control_protocol.h"

namespace {

using namespace splitnic::os;

DaemonStatus sample() {
  DaemonStatus status;
  status.role = "iounit";
  status.name = "unit";
  status.peers = {{"web1", "up", "02:00:00:00:00:02", 1, 2, 3, 4, {{"filtered", 5}}, {{"SendData", 7}}}};
  status.drops = {{"lan-full", 8}};
  return status;
}

ControlMessage start_of(std::uint8_t kind) {
  if (kind % 4 == 0) return encode_request(ControlRequest::reload_policy);
  if (kind % 4 == 1) return encode_reply(sample());
  return kind % 4 == 2 ? encode_reply(std::string("[policy]\n")) : encode_error_reply("wrong");
}

ControlMessage message_of(std::span<const std::uint8_t> data) {
  const std::uint8_t kind = data[0];
  if (kind >= 128) {
    ControlMessage message((data.size() - 1) / sizeof(ControlMessage::value_type));
    const auto to = std::as_writable_bytes(std::span(message));
    std::ranges::copy(std::as_bytes(data.subspan(1, to.size())), to.begin());
    return message;
  }
  ControlMessage message = start_of(kind);
  const auto bytes = std::as_writable_bytes(std::span(message));
  for (std::size_t at = 1; at + 2 < data.size(); at += 3) {
    const std::size_t place = data[at] | std::size_t{data[at + 1]} << 8U;
    bytes[place % bytes.size()] = static_cast<std::byte>(data[at + 2]);
  }
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ControlMessage message = message_of({data, std::min(size, kMaxRequestBytes)});
  if (const auto request = decode_request(message)) {
    SPLITNIC_CHECK(decode_request(encode_request(*request)) == *request);
  } else {
    SPLITNIC_CHECK(!request.error().message.empty());
  }
  if (const auto answer = decode_reply(message)) {
    // Parts of a message may overlap; encoded again they do not, and take more room.
    const ControlMessage encoded = encode_reply(*answer);
    const auto again = decode_reply(encoded);
    SPLITNIC_CHECK(again ? *again == *answer : encoded.size() * sizeof encoded[0] > kMaxControlBytes);
  } else {
    SPLITNIC_CHECK(answer.error().message.size() < kMaxControlBytes);
  }
  return 0;
}
