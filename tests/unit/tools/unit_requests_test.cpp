#include "tools/unit_requests.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/os/read_file.h"
#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::tools::unit_requests_test {
namespace {

constexpr std::size_t kMost = 1 << 16;

/// The answer of a process with this service to names to write.
Result<void> written(const UnitService& service, const std::string& text) {
  auto process = os::PrivilegedProcess::start(
      {.service = [&service](const os::PrivilegedMessage& request) { return service.serve(request); }});
  REQUIRE(process);
  REQUIRE(send_names(**process, text));
  const auto answer = (*process)->answer(10'000);
  REQUIRE(answer);
  return answer->map([](const auto&) {});
}

TEST_CASE("the privileged process writes the names, and nothing that is no name", "[tools][sandbox]") {
  const os::TemporaryDirectory folder;
  UnitService service;
  service.names = folder.path("names.toml");
  REQUIRE(written(service, "[[name]]\nname = \"h1\"\nuser = 7\n"));
  const std::string before = os::read_file(service.names, kMost).value();
  CHECK_THAT(before, Catch::Contains("name = \"h1\""));
  for (const char* text :
       {"root::0:0::/:/bin/sh\n", "[[name]]\nname = \"h1\"\n", "[[name]]\nuser = 1\nname = \"a/b\"\n"}) {
    const auto refused = written(service, text);
    CAPTURE(text);
    CHECK_FALSE(refused);
    CHECK(os::read_file(service.names, kMost).value() == before);
  }
  CHECK_FALSE(written({}, "[[name]]\nname = \"h1\"\nuser = 7\n"));  // no state directory
}

TEST_CASE("names come in a regular file and in no other", "[tools][sandbox]") {
  const os::TemporaryDirectory folder;
  UnitService service;
  service.names = folder.path("names.toml");
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  os::PrivilegedMessage request{{std::byte{'n'}}};
  request.descriptors.emplace_back(ends[0]);
  const os::UniqueFd other(ends[1]);
  const auto refused = service.serve(request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "names come in a file in memory");
}

TEST_CASE("requests that a unit never makes are refused", "[tools][sandbox]") {
  const UnitService service;
  for (const char letter : {'n', 'p', 'x'}) CHECK_FALSE(service.serve({{static_cast<std::byte>(letter)}}));
  CHECK_FALSE(service.serve({}));
  CHECK_FALSE(service.serve({std::vector<std::byte>(4)}));
}

}  // namespace
}  // namespace splitnic::tools::unit_requests_test
