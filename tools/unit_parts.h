#pragma once

#include "common/os/thread_meter.h"
#include "common/random.h"
#include "iounit/doorbell_watch.h"
#include "iounit/io_unit.h"

namespace splitnic::tools {

/// What an I/O unit has of its own on the thread that it runs on. Outlives the unit. Thread: the unit's.
struct UnitParts {
  /// The same options, with these parts. They are lent to the unit.
  [[nodiscard]] iounit::IoUnitOptions in(iounit::IoUnitOptions options) {
    options.session.link.port_address = fabric::PortAddress{random.next() >> 16U};
    options.meter = &meter;
    options.doorbells = &doorbells;
    return options;
  }

  SystemRandom random;
  os::ThreadMeter meter;
  iounit::EpollWatch doorbells;
};

}  // namespace splitnic::tools
