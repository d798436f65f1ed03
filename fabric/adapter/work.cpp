#include "fabric/adapter/work.h"

namespace splitnic::fabric {

const char* to_string(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::queue_full:
      return "queue_full";
    case Status::bad_queue_pair:
      return "bad_queue_pair";
    case Status::bad_state:
      return "bad_state";
    case Status::bad_tag:
      return "bad_tag";
    case Status::bad_length:
      return "bad_length";
    case Status::link_down:
      return "link_down";
    case Status::no_resources:
      return "no_resources";
    case Status::bad_argument:
      return "bad_argument";
    case Status::not_permitted:
      return "not_permitted";
    case Status::in_use:
      return "in_use";
  }
  return "?";
}

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::send:
      return "send";
    case Operation::rdma_write:
      return "rdma_write";
    case Operation::rdma_write_with_immediate:
      return "rdma_write_with_immediate";
    case Operation::send_with_invalidate:
      return "send_with_invalidate";
    case Operation::rdma_read:
      return "rdma_read";
    case Operation::compare_swap:
      return "compare_swap";
    case Operation::fetch_add:
      return "fetch_add";
    case Operation::bind_window:
      return "bind_window";
    case Operation::register_memory:
      return "register_memory";
    case Operation::local_invalidate:
      return "local_invalidate";
    case Operation::delay:
      return "delay";
  }
  return "?";
}

const char* to_string(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::success:
      return "success";
    case CompletionStatus::local_length_error:
      return "local_length_error";
    case CompletionStatus::local_protection_error:
      return "local_protection_error";
    case CompletionStatus::remote_access_error:
      return "remote_access_error";
    case CompletionStatus::remote_operation_error:
      return "remote_operation_error";
    case CompletionStatus::receiver_not_ready:
      return "receiver_not_ready";
    case CompletionStatus::retry_exceeded:
      return "retry_exceeded";
    case CompletionStatus::flushed:
      return "flushed";
    case CompletionStatus::outcome_unknown:
      return "outcome_unknown";
    case CompletionStatus::memory_request_error:
      return "memory_request_error";
    case CompletionStatus::remote_invalid_request_error:
      return "remote_invalid_request_error";
  }
  return "?";
}

}  // namespace splitnic::fabric
