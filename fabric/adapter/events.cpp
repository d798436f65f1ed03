#include "fabric/adapter/events.h"

namespace splitnic::fabric {

const char* to_string(AsyncEventKind kind) {
  switch (kind) {
    case AsyncEventKind::queue_pair_fatal:
      return "queue_pair_fatal";
    case AsyncEventKind::send_queue_drained:
      return "send_queue_drained";
    case AsyncEventKind::shared_receive_limit:
      return "shared_receive_limit";
    case AsyncEventKind::completion_queue_overrun:
      return "completion_queue_overrun";
    case AsyncEventKind::path_down:
      return "path_down";
    case AsyncEventKind::memory_gone:
      return "memory_gone";
    case AsyncEventKind::memory_drained:
      return "memory_drained";
  }
  return "?";
}

}  // namespace splitnic::fabric
