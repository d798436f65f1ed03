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

const char* to_string(CellFault error) {
  switch (error) {
    case CellFault::too_short:
      return "too_short";
    case CellFault::version:
      return "version";
    case CellFault::opcode:
      return "opcode";
    case CellFault::flags:
      return "flags";
    case CellFault::payload_bytes:
      return "payload_bytes";
    case CellFault::cell_crc:
      return "cell_crc";
    case CellFault::destination_queue_pair:
      return "destination_queue_pair";
    case CellFault::source_queue_pair:
      return "source_queue_pair";
    case CellFault::cell_sequence:
      return "cell_sequence";
    case CellFault::message_bytes:
      return "message_bytes";
    case CellFault::syndrome:
      return "syndrome";
    case CellFault::reserved:
      return "reserved";
    case CellFault::atomic:
      return "atomic";
  }
  return "?";
}

}  // namespace splitnic::fabric
