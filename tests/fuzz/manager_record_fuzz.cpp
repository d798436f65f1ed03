// Any bytes as a record of connection management: refused, or given back as they were.
#include <algorithm>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "fabric/rdmacm/record.h"

using namespace splitnic;
using namespace splitnic::rdmacm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(input, size));
  const auto record = decode(bytes);
  if (!record) {
    SPLITNIC_CHECK(static_cast<std::size_t>(record.error()) < kRecordFaults);
    return 0;
  }
  const RecordBytes again = encode(*record);
  SPLITNIC_CHECK(std::ranges::equal(std::as_bytes(std::span(&again, 1)), bytes));
  SPLITNIC_CHECK((record->kind == RecordKind::reject) == (record->reason != 0));
  SPLITNIC_CHECK(record->private_bytes <= private_room(record->kind, record->datagrams));
  return 0;
}
