#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/os/privileged_process.h"
#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::iounit {

/// A packet socket that captures on an interface.
struct PacketSocket {
  os::UniqueFd descriptor;
  std::vector<std::string> notes{};  ///< what did not work and is not essential, one sentence each
};

/// Opens packet sockets on the interface with this index: in this process, or by a request to a privileged one. Errors:
/// one sentence.
using PacketSocketOpener = std::function<Result<PacketSocket>(int index)>;

/// Opens a packet socket with virtio-net headers, promiscuous, inbound frames only, on the interface of the thread's
/// namespace that has this name and this index. receive_bytes: see PacketOptions. Errors: the index is another
/// interface's, no permission, not Ethernet, a kernel without virtio-net headers on packet sockets.
[[nodiscard]] Result<PacketSocket> open_packet_socket(const std::string& interface, int index, int receive_bytes);

/// The privileged process's part: opens sockets on this interface alone. A request is the index, 32 bits in the
/// processor's order.
[[nodiscard]] Result<os::PrivilegedMessage> serve_packet_socket(const std::string& interface, int receive_bytes,
                                                                const os::PrivilegedMessage& request);
/// The driver's part of the same. Blocks until the request is answered.
[[nodiscard]] Result<PacketSocket> request_packet_socket(os::PrivilegedProcess& process, int index);

}  // namespace splitnic::iounit
