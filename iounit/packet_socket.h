#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/os/privileged_process.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "iounit/packet_fanout.h"

namespace splitnic::iounit {

/// A packet socket that captures on an interface.
struct PacketSocket {
  os::UniqueFd descriptor;
  std::vector<std::string> notes{};  ///< what did not work and is not essential, one sentence each
};

/// How an engine captures on an interface in a process that has given up the right to it. Errors: one sentence.
struct PacketSockets {
  /// Opens a packet socket on the interface with this index.
  std::function<Result<PacketSocket>(int index)> open;
  /// Lets an open packet socket capture on the interface with this index, and on no other. Returns notes as
  /// PacketSocket has them.
  std::function<Result<std::vector<std::string>>(int socket, int index)> move;
};

/// Opens a packet socket with virtio-net headers, promiscuous, inbound frames only, on the interface of the thread's
/// namespace that has this name and this index. receive_bytes: see PacketOptions. fanout: the socket shares the frames
/// with others; null: it gets them all. Errors: the index is another interface's, no permission, not Ethernet, a kernel
/// without virtio-net headers on packet sockets.
[[nodiscard]] Result<PacketSocket> open_packet_socket(const std::string& interface, int index, int receive_bytes,
                                                      PacketFanout* fanout = nullptr);

/// Gives a packet socket room for many frames on their way to the interface, so that a batch need not wait.
void enlarge_send_buffer(int socket);

/// Lets a packet socket capture on the interface of the thread's namespace that has this name and this index, and on no
/// other, promiscuously. Returns what did not work and is not essential. Errors: no packet socket, the index is another
/// interface's, not Ethernet.
[[nodiscard]] Result<std::vector<std::string>> move_packet_socket(int socket, const std::string& interface, int index);

/// The privileged process's part: opens sockets on this interface alone, or moves a socket to it. A request is the
/// index, 32 bits in the processor's order, and the socket to be moved, if any. fanout: of opened sockets; null: none.
[[nodiscard]] Result<os::PrivilegedMessage> serve_packet_socket(const std::string& interface, int receive_bytes,
                                                                const os::PrivilegedMessage& request,
                                                                PacketFanout* fanout = nullptr);
/// The driver's part of the same. Both block until the request is answered.
[[nodiscard]] PacketSockets packet_sockets_of(std::shared_ptr<os::PrivilegedProcess> process);

}  // namespace splitnic::iounit
