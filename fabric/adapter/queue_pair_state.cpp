#include "fabric/adapter/queue_pair_state.h"

#include <boost/describe.hpp>

namespace splitnic::fabric {

BOOST_DESCRIBE_ENUM(QueuePairState, reset, init, ready_to_receive, ready_to_send, sq_drained, sq_error, error)
const char* to_string(QueuePairState state) { return boost::describe::enum_to_string(state, "?"); }

}  // namespace splitnic::fabric
