#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/os/daemon_processes.h"
#include "os_temporary_directory.h"

namespace splitnic::os::os_daemon_processes_test {
namespace {

TEST_CASE("daemons are told from other processes by their command lines", "[common][processes]") {
  const TemporaryDirectory proc;
  const auto add = [&](const std::string& pid, const std::string& command_line) {
    std::filesystem::create_directory(proc.path(pid));
    std::ofstream(proc.path(pid) + "/cmdline") << command_line;
  };
  using namespace std::string_literals;
  add("300", "/usr/bin/splitnic\0host\0--tap\0vnic0\0"s);
  add("20", "splitnic\0iounit\0--listen\0/run/x\0"s);
  add("21", "splitnic\0status\0"s);
  add("22", "python3\0splitnic\0host\0"s);
  add("23", "");  // a zombie
  add("24", "splitnic\0"s);
  add("25", "splitnic host");
  add("301", "/usr/bin/splitnic\0host\0--tap\0vnic0\0"s);
  for (const auto& [pid, name] : {std::pair{"300", "splitnic"}, {"301", "splitnic-rights"}}) {
    std::ofstream(proc.path(pid) + "/comm") << name << '\n';
  }
  add("self", "splitnic\0host\0"s);
  std::filesystem::create_directory(proc.path("26"));  // has just ended
  CHECK(find_daemon_processes(proc.path()) ==
        std::vector<DaemonProcess>{{20, ::geteuid(), "iounit"}, {300, ::geteuid(), "host"}});
  CHECK(find_daemon_processes(proc.path("none")).empty());
}

}  // namespace
}  // namespace splitnic::os::os_daemon_processes_test
