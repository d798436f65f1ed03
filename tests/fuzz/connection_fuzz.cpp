// Any bytes as a message of connection management: refused, or given back as they were.
#include <algorithm>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "fabric/connect/connection_message.h"

using namespace splitnic;
using namespace splitnic::fabric;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(input, size));
  const auto message = decode_connection(bytes);
  if (!message) {
    SPLITNIC_CHECK(static_cast<std::size_t>(message.error()) < kConnectionFaults);
    return 0;
  }
  ConnectionMessageBytes again = encode_connection(*message);
  SPLITNIC_CHECK(std::ranges::equal(again.span(), bytes));
  SPLITNIC_CHECK((message->kind == ConnectionMessageKind::request) == (message->receiver.value == 0));
  SPLITNIC_CHECK((message->kind == ConnectionMessageKind::reject) == (message->reason != RejectReason::none));
  return 0;
}
