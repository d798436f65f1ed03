#include "fabric/adapter/queue_pair_state.h"

namespace splitnic::fabric {

const char* to_string(QueuePairState state) {
  switch (state) {
    case QueuePairState::reset:
      return "reset";
    case QueuePairState::init:
      return "init";
    case QueuePairState::ready_to_receive:
      return "ready_to_receive";
    case QueuePairState::ready_to_send:
      return "ready_to_send";
    case QueuePairState::sq_drained:
      return "sq_drained";
    case QueuePairState::sq_error:
      return "sq_error";
    case QueuePairState::error:
      return "error";
  }
  return "?";
}

}  // namespace splitnic::fabric
