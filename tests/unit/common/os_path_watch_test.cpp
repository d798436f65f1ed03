#include "common/os/path_watch.h"

#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::os::os_path_watch_test {
namespace {

bool readable(const PathWatch& watch) {
  pollfd state{watch.descriptor(), POLLIN, 0};
  return ::poll(&state, 1, 0) == 1;
}

void touch(const std::string& path) { std::ofstream(path) << "x"; }

}  // namespace

TEST_CASE("a path that appears or is replaced is noticed, its neighbours are not", "[common]") {
  const TemporaryDirectory directory;
  PathWatch watch(directory.path("socket"));
  CHECK(watch.changed());
  CHECK_FALSE(watch.changed());
  CHECK_FALSE(readable(watch));
  touch(directory.path("neighbour"));
  CHECK_FALSE(watch.changed());
  touch(directory.path("socket"));
  CHECK(readable(watch));
  CHECK(watch.changed());
  CHECK_FALSE(readable(watch));
  CHECK_FALSE(watch.changed());
  touch(directory.path("other"));
  std::filesystem::rename(directory.path("other"), directory.path("socket"));
  CHECK(watch.changed());
  std::filesystem::remove(directory.path("neighbour"));
  std::filesystem::remove(directory.path("socket"));
}

TEST_CASE("folders that are missing on the way to a path are watched for, and may go and come back", "[common]") {
  const TemporaryDirectory directory;
  const std::string outer = directory.path("outer");
  const std::string path = outer + "/inner/socket";
  PathWatch watch(path);
  CHECK(watch.changed());
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    std::filesystem::create_directory(outer);
    CHECK(readable(watch));
    CHECK(watch.changed());
    std::filesystem::create_directory(outer + "/inner");
    if (round == 0) CHECK(watch.changed());  // in the other round the path appears before anybody looks
    touch(path);
    CHECK(watch.changed());
    CHECK_FALSE(watch.changed());
    std::filesystem::remove_all(outer);
    CHECK(readable(watch));
    CHECK(watch.changed());
    CHECK_FALSE(watch.changed());
  }
}

}  // namespace splitnic::os::os_path_watch_test
