#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/frame/ethernet.h"

namespace splitnic::frame {

/// A number of the flow that the frame belongs to, the same for both directions. A flow is: of TCP and UDP, the two
/// addresses and ports; of other IP packets and of fragments, the addresses and the protocol; of other frames, the two
/// MAC addresses and the EtherType. VLAN tags don't count. key: secret, so that nobody can choose flows of one number.
/// frame: private bytes, at least the headers; header: parsed from it.
[[nodiscard]] std::uint64_t flow_number(std::span<const std::byte> frame, const EthernetHeader& header,
                                        std::uint64_t key);

}  // namespace splitnic::frame
