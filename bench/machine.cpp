#include "bench/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "common/os/printable.h"

namespace splitnic::bench {

Machine describe_machine() {
  Machine machine;
  utsname name{};
  ::uname(&name);
  machine.kernel = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  machine.cores = std::thread::hardware_concurrency();
  ::getloadavg(&machine.load, 1);
  machine.processor = "unknown processor";
  std::string megahertz;
  std::ifstream processors("/proc/cpuinfo");
  for (std::string line; std::getline(processors, line);) {
    const auto value = line.find(": ");
    if (value == std::string::npos) continue;
    if (line.starts_with("model name")) machine.processor = line.substr(value + 2);
    if (line.starts_with("cpu MHz")) megahertz = line.substr(value + 2);
  }
  if (!megahertz.empty()) machine.processor += fmt::format(", {:.2f} GHz", std::atof(megahertz.c_str()) / 1000);
  return machine;
}

std::string unfit_to_judge(double load, bool realtime) {
  constexpr double kBusyLoad = 0.7;  // more, and other programs take the cores during samples
  if (realtime || load <= kBusyLoad) return {};
  return fmt::format("other programs run (load {:.1f}), and this user may not have real-time priority", load);
}

std::string to_text(const Machine& machine) {
  return fmt::format("{} cores, {}, {}, load {:.2f} at the start", machine.cores, os::printable(machine.processor),
                     os::printable(machine.kernel), machine.load);
}

boost::json::object to_json_object(const Machine& machine) {
  boost::json::object object;
  object["cores"] = machine.cores;
  object["processor"] = os::printable(machine.processor);
  object["kernel"] = os::printable(machine.kernel);
  object["load"] = machine.load;
  return object;
}

}  // namespace splitnic::bench
