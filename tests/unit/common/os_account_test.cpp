#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/os/account.h"

namespace splitnic::os::os_account_test {
namespace {

TEST_CASE("users and groups are known by name and by number", "[common][account]") {
  CHECK(find_user("root") == uid_t{0});
  CHECK(find_group("root") == gid_t{0});
  CHECK(find_user("4000000001") == uid_t{4000000001});  // nobody of this machine, but possible
  CHECK(user_name(0) == "root");
  CHECK(user_name(4000000001) == "4000000001");
}

TEST_CASE("a user or group that isn't there is named in the error", "[common][account]") {
  CHECK(find_user("no-such-user").error().message == "no user named no-such-user");
  CHECK(find_group("no-such-group").error().message == "no group named no-such-group");
  for (const char* text : {"", "-1", "1x", "4294967295", "4294967296"}) {
    CHECK(find_user(text).error().message == "no user named " + std::string(text));
    CHECK(find_group(text).error().message == "no group named " + std::string(text));
  }
}

}  // namespace
}  // namespace splitnic::os::os_account_test
