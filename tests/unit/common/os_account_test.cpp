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

TEST_CASE("known accounts are those of the files, and those that were looked up before", "[common][account]") {
  KnownAccounts accounts;
  CHECK(accounts.user("root") == uid_t{0});
  CHECK(accounts.group("root") == gid_t{0});
  CHECK(accounts.user("4000000001") == uid_t{4000000001});
  CHECK(accounts.user("roo").error().message == "no user named roo in /etc/passwd; for others, write the number");
  for (const char* text : {"", "root:x", "root\n", "no-such-user"}) CHECK_FALSE(accounts.user(text));
  CHECK_FALSE(accounts.look_up_group("no-such-group"));
  CHECK_FALSE(accounts.group("no-such-group"));
  CHECK(accounts.look_up_user("root") == uid_t{0});
  CHECK(accounts.look_up_group("root") == gid_t{0});
  CHECK(accounts.group("root") == gid_t{0});
}

}  // namespace
}  // namespace splitnic::os::os_account_test
