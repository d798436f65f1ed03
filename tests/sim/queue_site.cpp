#include "queue_site.h"

#include <fmt/format.h>
#include <poll.h>

#include "common/os/message_io.h"

namespace splitnic::sim {

QueueSite::QueueSite(std::size_t number, const HostScenario& host, const fabric::SimBridgeOptions& options, SimNic& nic,
                     const Scenario& scenario, const Edge& edge, RandomSource& random)
    : DriverSite(fmt::format("{} queue {}", host.session.name, number + 1), scenario, edge, random),
      number_(number),
      host_(host),
      nic_(nic),
      link_(options, random),
      source_of_queue_(link_) {}

void QueueSite::make() {
  driver_random_ = std::make_unique<SeededRandom>(random_.next());
  driver_ = std::make_unique<host::QueueDriver>(host_.session, number_, nic_.further(number_), source_of_queue_,
                                                *group_, *driver_random_, static_cast<Notices&>(*this));
}

bool QueueSite::port_readable(int descriptor) const {
  if (descriptor == kNicDescriptor) return nic_.further(number_).readable();
  return os::events_now(descriptor, POLLIN) != 0;
}

}  // namespace splitnic::sim
