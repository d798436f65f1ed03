#include "fabric/adapter/work.h"

#include <boost/describe.hpp>

namespace splitnic::fabric {

BOOST_DESCRIBE_ENUM(Status, ok, queue_full, bad_queue_pair, bad_state, bad_tag, bad_length, link_down, no_resources,
                    bad_argument, not_permitted, in_use)
const char* to_string(Status status) { return boost::describe::enum_to_string(status, "?"); }

BOOST_DESCRIBE_ENUM(Operation, send, send_with_immediate, rdma_write, rdma_write_with_immediate, send_with_invalidate,
                    rdma_read, compare_swap, fetch_add, bind_window, register_memory, local_invalidate, delay)
const char* to_string(Operation operation) { return boost::describe::enum_to_string(operation, "?"); }

BOOST_DESCRIBE_ENUM(CompletionStatus, success, local_length_error, local_protection_error, remote_access_error,
                    remote_operation_error, receiver_not_ready, retry_exceeded, flushed, outcome_unknown,
                    memory_request_error, remote_invalid_request_error)
const char* to_string(CompletionStatus status) { return boost::describe::enum_to_string(status, "?"); }

}  // namespace splitnic::fabric
