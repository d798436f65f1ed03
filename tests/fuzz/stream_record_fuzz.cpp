// Any bytes as a set-up or a control message of a stream socket: refused, or given back as they were.
#include <algorithm>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "fabric/rdmacm/stream_record.h"

using namespace splitnic;
using namespace splitnic::rdmacm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(input, size));
  if (const auto set_up = decode_set_up(bytes)) {
    const StreamSetUpBytes again = encode(*set_up);
    SPLITNIC_CHECK(std::ranges::equal(std::as_bytes(std::span(&again, 1)), bytes.first(sizeof again)));
    SPLITNIC_CHECK(set_up->ring_address + set_up->ring_bytes >= set_up->ring_address);
  } else {
    SPLITNIC_CHECK(static_cast<std::size_t>(set_up.error()) < kStreamFaults);
  }
  if (const auto control = decode_control(bytes)) {
    const StreamControlBytes again = encode(*control);
    SPLITNIC_CHECK(std::ranges::equal(std::as_bytes(std::span(&again, 1)), bytes));
    SPLITNIC_CHECK(control->offset + control->bytes >= control->offset);
  } else {
    SPLITNIC_CHECK(static_cast<std::size_t>(control.error()) < kStreamFaults);
  }
  return 0;
}
