#pragma once

#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::host {

/// A program for the kernel that chooses the queue of a multi-queue TAP for each outgoing frame by its flow: addresses,
/// protocol and ports of TCP and UDP, addresses and protocol of other IP packets, else the EtherType. A flow keeps its
/// queue as long as the number of active queues stays the same. Without it the kernel moves a flow to the queue in
/// which its other direction arrived last, so that frames may overtake each other. TapDevice::steer() sets it. Errors:
/// no right to load programs (CAP_BPF), a kernel without them. Source: bpf(2); Linux tun, TUNSETSTEERINGEBPF.
[[nodiscard]] Result<os::UniqueFd> load_tap_steering();

}  // namespace splitnic::host
