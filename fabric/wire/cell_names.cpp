#include "fabric/wire/cell.h"

#include <boost/describe.hpp>

namespace splitnic::fabric {

BOOST_DESCRIBE_ENUM(Opcode, send_first, send_middle, send_last, send_last_immediate, send_only, send_only_immediate,
                    write_first, write_middle, write_last, write_last_immediate, write_only, write_only_immediate,
                    read_request, read_response_first, read_response_middle, read_response_last, read_response_only,
                    acknowledge, atomic_acknowledge, compare_swap, fetch_add, send_last_invalidate,
                    send_only_invalidate, terminate, drain_request, drain_acknowledge, datagram, not_taken,
                    datagram_immediate, xrc_send_first, xrc_send_only, xrc_send_only_immediate, xrc_write_first,
                    xrc_write_only, xrc_write_only_immediate, xrc_read_request, xrc_compare_swap, xrc_fetch_add,
                    xrc_send_only_invalidate)
const char* to_string(Opcode opcode) { return boost::describe::enum_to_string(opcode, "?"); }

BOOST_DESCRIBE_ENUM(Syndrome, ok, receiver_not_ready, sequence_error, remote_access_error, remote_operation_error)
const char* to_string(Syndrome syndrome) { return boost::describe::enum_to_string(syndrome, "?"); }

BOOST_DESCRIBE_ENUM(CellFault, too_short, version, opcode, flags, payload_bytes, cell_crc, destination_queue_pair,
                    source_queue_pair, cell_sequence, message_bytes, syndrome, reserved, atomic, shared_receives,
                    port_address, slot_shape, payload_at, second_line)
const char* to_string(CellFault error) { return boost::describe::enum_to_string(error, "?"); }

}  // namespace splitnic::fabric
