#include "fabric/adapter/events.h"

#include <boost/describe.hpp>

namespace splitnic::fabric {

BOOST_DESCRIBE_ENUM(AsyncEventKind, queue_pair_fatal, send_queue_drained, shared_receive_limit,
                    completion_queue_overrun, path_down, memory_gone, memory_drained, queue_pair_drained)
const char* to_string(AsyncEventKind kind) { return boost::describe::enum_to_string(kind, "?"); }

}  // namespace splitnic::fabric
