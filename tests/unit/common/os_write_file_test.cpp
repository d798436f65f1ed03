#include "common/os/write_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/os/read_file.h"
#include "os_temporary_directory.h"

namespace splitnic::os::os_write_file_test {
namespace {

TEST_CASE("a file is written whole, replaced whole, and is its owner's alone", "[common][file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("state.toml");
  for (const std::string& text : {std::string("first\n"), std::string(1 << 20, 'x'), std::string()}) {
    REQUIRE(write_file(path, text));
    CHECK(*read_file(path, 2 << 20) == text);
  }
  struct stat found {};
  REQUIRE(::stat(path.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777U) == 0600);
  CHECK(::access((path + ".new").c_str(), F_OK) != 0);
}

TEST_CASE("a file that can't be written keeps its text, and the error says why", "[common][file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("state.toml");
  REQUIRE(write_file(path, "old"));
  REQUIRE(::mkdir((path + ".new").c_str(), 0700) == 0);  // in the way
  const auto done = write_file(path, "new");
  REQUIRE_FALSE(done);
  CHECK(done.error().message == path + ": Is a directory");
  CHECK(*read_file(path, 100) == "old");
  CHECK_FALSE(write_file(directory.path("nowhere/state.toml"), "x"));
}

}  // namespace
}  // namespace splitnic::os::os_write_file_test
