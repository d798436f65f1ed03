#include "fabric/wire/slot.h"

namespace splitnic::fabric {

const char* to_string(SlotFault fault) {
  switch (fault) {
    case SlotFault::shape:
      return "shape";
    case SlotFault::payload_bytes:
      return "payload_bytes";
    case SlotFault::payload_at:
      return "payload_at";
    case SlotFault::queue_pair:
      return "queue_pair";
    case SlotFault::second_line:
      return "second_line";
  }
  return "unknown";
}

}  // namespace splitnic::fabric
