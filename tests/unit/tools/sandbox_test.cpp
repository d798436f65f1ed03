#include "tools/sandbox.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/os/unix_listener.h"
#include "common/result.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/quiet_log.h"

namespace splitnic::tools::sandbox_test {
namespace {

uid_t owner_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_uid;
}

TEST_CASE("a socket is given to the user of --user, and what took its place is not", "[tools][sandbox]") {
  if (::geteuid() != 0) {
    WARN("not tested: only root may give files away");
    return;
  }
  const os::TemporaryDirectory directory;
  DaemonOptions options;
  options.user = "1";
  const Sandbox sandbox(options, "test", testing::quiet_log());

  const auto listener = os::UnixListener::listen(directory.path("socket"));
  REQUIRE(listener);
  const std::string file = directory.path("file");
  std::ofstream(file) << "precious";
  for (const std::string name : {"to-file", "to-socket"}) {
    std::filesystem::create_symlink(directory.path(name.substr(3)), directory.path(name));
    CHECK_THROWS_AS(sandbox.give_away(directory.path(name)), StartupError);
    CHECK(owner_of(directory.path(name)) == 0);
    CHECK(owner_of(directory.path(name.substr(3))) == 0);
  }
  CHECK_THROWS_AS(sandbox.give_away(file), StartupError);
  CHECK(owner_of(file) == 0);

  sandbox.give_away(directory.path("socket"));
  CHECK(owner_of(directory.path("socket")) == 1);
}

}  // namespace
}  // namespace splitnic::tools::sandbox_test
