#pragma once

#include <cstdint>

namespace splitnic::host {

/// Event counts of a driver, or of one of its queues.
struct HostCounters {
  std::uint64_t rx_refused_by_nic = 0;  ///< frames that the host's stack refused
  std::uint64_t rx_frames = 0;          ///< frames that it accepted, and their bytes
  std::uint64_t rx_bytes = 0;
  std::uint64_t tx_waits = 0;  ///< times that the driver did not read the NIC because the unit had no free element

  HostCounters& operator+=(const HostCounters& more) {
    rx_refused_by_nic += more.rx_refused_by_nic;
    rx_frames += more.rx_frames;
    rx_bytes += more.rx_bytes;
    tx_waits += more.tx_waits;
    return *this;
  }
};

}  // namespace splitnic::host
