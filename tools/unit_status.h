#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/os/adaptive_spin.h"
#include "common/os/control_server.h"
#include "common/os/daemon_status.h"
#include "common/os/log.h"
#include "fabric/bridge/shm_listener.h"
#include "iounit/io_unit.h"
#include "messaging/wire/cfgutil.h"

namespace splitnic::tools {

/// Of a host, what a clear of the unit's counters leaves as it is.
struct HostReport {
  messaging::wire::Statistics statistics;  ///< what the host has counted
  std::uint64_t queues = 0;                ///< that carry frames now
};

/// What one I/O unit of a daemon says about itself.
struct UnitReport {
  os::DaemonStatus status;          ///< its part: counts since its start
  std::vector<HostReport> hosts{};  ///< in the order of status.peers
};

/// lan: the unit's. Thread: the unit's.
[[nodiscard]] UnitReport report_of(const iounit::IoUnit& unit, const iounit::LanEngine& lan);
/// The same for an I/O unit that is a member of a group.
[[nodiscard]] UnitReport report_of_member(const iounit::IoUnit& unit, const iounit::GroupLan& lan);
/// Asks the unit's hosts to clear their own counters. Thread: the unit's.
void clear_statistics_of_hosts(iounit::IoUnit& unit);

/// The daemon's answer: its units' reports as one. reports: at least one. spins: of all threads.
[[nodiscard]] os::DaemonStatus answer_of(os::ControlRequest request, std::vector<UnitReport> reports,
                                         const fabric::ShmListenerCounters& connections, const os::SpinCounters& spins,
                                         const os::Log& log, const std::string& name, os::ClearedCounts& cleared);

}  // namespace splitnic::tools
