#pragma once

#include <boost/json/object.hpp>
#include <string>

namespace splitnic::bench {

/// The machine at the start of a benchmark.
struct Machine {
  std::string kernel;
  std::string processor;
  unsigned cores = 0;
  double load = 0;  ///< one-minute load average
};

Machine describe_machine();

/// Why figures of processes that spin on their cores would say more about the scheduler of this machine; empty: they
/// wouldn't. load: of the machine at the start. realtime: they run at real-time priority.
std::string unfit_to_judge(double load, bool realtime);

/// One line, without a line break.
std::string to_text(const Machine& machine);
boost::json::object to_json_object(const Machine& machine);

}  // namespace splitnic::bench
