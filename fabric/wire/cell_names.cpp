#include "fabric/wire/cell.h"

namespace splitnic::fabric {

const char* to_string(Opcode opcode) {
  switch (opcode) {
    case Opcode::send_first:
      return "send_first";
    case Opcode::send_middle:
      return "send_middle";
    case Opcode::send_last:
      return "send_last";
    case Opcode::send_only:
      return "send_only";
    case Opcode::write_first:
      return "write_first";
    case Opcode::write_middle:
      return "write_middle";
    case Opcode::write_last:
      return "write_last";
    case Opcode::write_last_immediate:
      return "write_last_immediate";
    case Opcode::write_only:
      return "write_only";
    case Opcode::write_only_immediate:
      return "write_only_immediate";
    case Opcode::read_request:
      return "read_request";
    case Opcode::read_response_first:
      return "read_response_first";
    case Opcode::read_response_middle:
      return "read_response_middle";
    case Opcode::read_response_last:
      return "read_response_last";
    case Opcode::read_response_only:
      return "read_response_only";
    case Opcode::acknowledge:
      return "acknowledge";
    case Opcode::atomic_acknowledge:
      return "atomic_acknowledge";
    case Opcode::compare_swap:
      return "compare_swap";
    case Opcode::fetch_add:
      return "fetch_add";
    case Opcode::send_last_invalidate:
      return "send_last_invalidate";
    case Opcode::send_only_invalidate:
      return "send_only_invalidate";
    case Opcode::terminate:
      return "terminate";
    case Opcode::drain_request:
      return "drain_request";
    case Opcode::drain_acknowledge:
      return "drain_acknowledge";
  }
  return "?";
}

const char* to_string(Syndrome syndrome) {
  switch (syndrome) {
    case Syndrome::ok:
      return "ok";
    case Syndrome::receiver_not_ready:
      return "receiver_not_ready";
    case Syndrome::sequence_error:
      return "sequence_error";
    case Syndrome::remote_access_error:
      return "remote_access_error";
    case Syndrome::remote_operation_error:
      return "remote_operation_error";
  }
  return "?";
}

const char* to_string(DecodeError error) {
  switch (error) {
    case DecodeError::too_short:
      return "too_short";
    case DecodeError::version:
      return "version";
    case DecodeError::opcode:
      return "opcode";
    case DecodeError::flags:
      return "flags";
    case DecodeError::payload_bytes:
      return "payload_bytes";
    case DecodeError::cell_crc:
      return "cell_crc";
    case DecodeError::destination_queue_pair:
      return "destination_queue_pair";
    case DecodeError::source_queue_pair:
      return "source_queue_pair";
    case DecodeError::cell_sequence:
      return "cell_sequence";
    case DecodeError::message_bytes:
      return "message_bytes";
    case DecodeError::syndrome:
      return "syndrome";
    case DecodeError::reserved:
      return "reserved";
    case DecodeError::atomic:
      return "atomic";
  }
  return "?";
}

}  // namespace splitnic::fabric
