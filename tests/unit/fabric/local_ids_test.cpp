#include "fabric/endnode/local_ids.h"

#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <set>

#include "fabric/endnode/fabric_directory.h"
#include "tests/unit/common/fork_beside_threads.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/other_process.h"

namespace splitnic::fabric::test::local_ids_test {
namespace {

using testing::exit_code_of;
using testing::KilledAtTheEnd;
using testing::OtherProcess;

std::vector<std::uint16_t> numbers(const std::vector<LocalIds::Holder>& holders) {
  std::vector<std::uint16_t> ids;
  for (const auto& holder : holders) ids.push_back(holder.id.value);
  return ids;
}

}  // namespace

TEST_CASE("each local ID has one holder in a process", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  SeededRandom random(1);
  auto ids = LocalIds::open(directory.path());
  REQUIRE(ids);
  REQUIRE(*LocalIds::open(directory.path()) == *ids);  // one object for one file
  std::set<std::uint16_t> taken;
  for (int count = 0; count < 100; ++count) {
    const auto id = (*ids)->take(random);
    REQUIRE(id);
    CHECK(id->value >= 1);
    CHECK(id->value <= kMaxLocalId);
    CHECK(taken.insert(id->value).second);
    CHECK((*ids)->holder(*id)->pid == ::getpid());
  }
  CHECK(numbers((*ids)->holders()) == std::vector<std::uint16_t>(taken.begin(), taken.end()));
  const LocalId first{*taken.begin()};
  CHECK_FALSE((*ids)->take(first));
  (*ids)->give_back(first);
  CHECK_FALSE((*ids)->holder(first));
  CHECK((*ids)->take(first));
}

TEST_CASE("the file of the local IDs stays open, so that closing it ends nobody's locks", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  std::weak_ptr<LocalIds> before;
  {
    auto ids = LocalIds::open(directory.path());
    REQUIRE(ids);
    before = *ids;
  }
  auto again = LocalIds::open(directory.path());
  REQUIRE(again);
  CHECK(*again == before.lock());
}

TEST_CASE("the first and the last local ID are IDs, those beside them are not", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  auto ids = LocalIds::open(directory.path());
  REQUIRE(ids);
  for (const std::uint16_t id : {std::uint16_t{1}, kMaxLocalId}) {
    REQUIRE((*ids)->take(LocalId{id}));
    CHECK((*ids)->holder(LocalId{id}));
  }
  CHECK_FALSE((*ids)->holder(LocalId{0}));
  CHECK_FALSE((*ids)->holder(LocalId{kMaxLocalId + 1}));
  CHECK(numbers((*ids)->holders()) == std::vector<std::uint16_t>{1, kMaxLocalId});
}

TEST_CASE("all holders are found, whoever was first", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  const auto hold = [&](std::uint16_t id) {
    return OtherProcess([&directory, id](OtherProcess::Pipe& pipe) {
      auto ids = LocalIds::open(directory.path());
      pipe.say_number(ids && (*ids)->take(LocalId{id}) ? 1 : 0);
      for (;;) ::pause();
    });
  };
  // The kernel names the locks of the process first that has had its own for longest.
  OtherProcess high = hold(300);
  REQUIRE(high.number() == 1);
  OtherProcess low = hold(20);
  REQUIRE(low.number() == 1);
  OtherProcess middle = hold(100);
  REQUIRE(middle.number() == 1);
  auto ids = LocalIds::open(directory.path());
  REQUIRE(ids);
  CHECK(numbers((*ids)->holders()) == std::vector<std::uint16_t>{20, 100, 300});
}

TEST_CASE("a process's local IDs end with it, although a child of it lives on", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  // The owner takes ID 7, and its child keeps copies of all its descriptors.
  OtherProcess owner([&](OtherProcess::Pipe& pipe) {
    auto ids = LocalIds::open(directory.path());
    if (!ids || !(*ids)->take(LocalId{7}) || !(*ids)->take(LocalId{8})) _exit(1);
    if (::fork() == 0) {
      // The child holds nothing of its parent's, and takes IDs of its own.
      auto own = LocalIds::open(directory.path());
      const bool right = own && *own != *ids && !(*own)->take(LocalId{7}) && (*own)->take(LocalId{9});
      pipe.say_number(right ? ::getpid() : 0);
      for (;;) ::pause();
    }
    for (;;) ::pause();
  });
  const auto child = static_cast<pid_t>(owner.number());
  REQUIRE(child > 0);
  const KilledAtTheEnd kill_child(child);
  auto ids = LocalIds::open(directory.path());
  REQUIRE(ids);
  CHECK((*ids)->holder(LocalId{7})->pid == owner.pid());
  CHECK((*ids)->holder(LocalId{9})->pid == child);
  CHECK(numbers((*ids)->holders()) == std::vector<std::uint16_t>{7, 8, 9});
  CHECK_FALSE((*ids)->take(LocalId{7}));
  owner.kill();
  CHECK_FALSE((*ids)->holder(LocalId{7}));
  CHECK(numbers((*ids)->holders()) == std::vector<std::uint16_t>{9});
  CHECK((*ids)->take(LocalId{7}));
}

TEST_CASE("a child that is forked while a thread opens the fabric's IDs opens them, too", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  REQUIRE(LocalIds::open(directory.path()));
  const splitnic::test::ThreadBesideForks opener([&] { static_cast<void>(LocalIds::open(directory.path())); });
  std::set<int> codes;
  for (int child = 0; child < 50; ++child) {
    codes.insert(exit_code_of([&] {
      ::alarm(20);  // if it waits for a lock that the other thread holds
      return LocalIds::open(directory.path()) ? 0 : 1;
    }));
  }
  CHECK(codes == std::set{0});
}

TEST_CASE("a fabric's folder is its user's alone", "[fabric][endnode]") {
  namespace fs = std::filesystem;
  const os::TemporaryDirectory directory;
  const std::string run = directory.path("run");
  const auto made = make_fabric_directory("lab-1.a_b", {directory.path("none/run"), run});
  REQUIRE(made);
  CHECK(*made == run + "/fabric-lab-1.a_b");
  CHECK((fs::status(*made).permissions() & fs::perms::mask) == fs::perms::owner_all);
  CHECK(make_fabric_directory("lab-1.a_b", {run}) == *made);
  CHECK(make_fabric_directory("other", {run}) == run + "/fabric-other");
  fs::permissions(*made, fs::perms::owner_all | fs::perms::group_read);
  CHECK(make_fabric_directory("lab-1.a_b", {run}).error().message ==
        *made +
            ": exists, but is not a directory that is this user's alone (mode 0700); set XDG_RUNTIME_DIR to a "
            "directory of this user");
  fs::create_symlink(run + "/fabric-other", run + "/fabric-link");
  CHECK_FALSE(make_fabric_directory("link", {run}));
  for (const std::string name : {"", "a/b", "a b", "..", ".", "\n", "123456789012345678901234567890123"}) {
    const bool dots = name == ".." || name == ".";
    CAPTURE(name);
    CHECK(make_fabric_directory(name, {run}).has_value() == dots);  // "fabric-.." is a name as any other
  }
}

TEST_CASE("a folder of another user is passed by", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  const std::string own = directory.path("own");
  std::string foreign = "/usr";  // root's
  if (::geteuid() == 0) {
    foreign = directory.path("foreign");
    std::filesystem::create_directory(foreign);
    REQUIRE(::chown(foreign.c_str(), 12345, 12345) == 0);
  }
  CHECK(make_fabric_directory("lab", {foreign, own}) == own + "/fabric-lab");
  CHECK(make_fabric_directory("lab", {foreign}).error().message ==
        "no directory for the fabric: " + foreign +
            ": belongs to another user; set XDG_RUNTIME_DIR to a directory of this user");
}

TEST_CASE("several users meet on a fabric only where root has made a folder for their group", "[fabric][endnode]") {
  namespace fs = std::filesystem;
  if (::geteuid() != 0) {
    WARN("not tried: needs root");
    return;
  }
  constexpr gid_t kGroup = 12345;
  constexpr uid_t kUser = 54321;
  const os::TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  const std::string shared = directory.path("shared");
  const std::vector<std::string> own{directory.path("own")};
  const std::string mine = own[0] + "/fabric-lab";
  CHECK(fabric_folders("lab", own, shared)->meeting == mine);

  const std::string folder = shared + "/shared-lab";
  REQUIRE(share_fabric("lab", kGroup, shared) == folder);
  CHECK(share_fabric("lab", kGroup, shared) == folder);  // again
  CHECK_FALSE(share_fabric("a/b", kGroup, shared));
  const auto seen = [&](uid_t user, gid_t group) {
    return exit_code_of([&] {
      const std::vector<std::string> theirs{directory.path() + "/own-" + std::to_string(user)};
      if (::mkdir(theirs[0].c_str(), 0755) != 0 || ::chown(theirs[0].c_str(), user, 0) != 0) return 9;
      if (setgroups(1, &group) != 0 || ::setresgid(1, 1, 1) != 0 || ::setresuid(user, user, user) != 0) return 8;
      const auto folders = fabric_folders("lab", theirs, shared);
      if (!folders) return folders.error().message.find("is no member") != std::string::npos ? 1 : 7;
      if (folders->own != theirs[0] + "/fabric-lab") return 6;
      if (folders->meeting == folders->own) return 2;
      const auto ids = LocalIds::open(folders->meeting);
      return folders->meeting == folder && ids && (*ids)->take(LocalId{5}) ? 0 : 5;
    });
  };
  CHECK(fabric_folders("lab", own, shared)->meeting == folder);
  CHECK(fabric_folders("lab", own, shared)->own == mine);
  CHECK(seen(kUser, kGroup) == 0);
  CHECK(seen(kUser + 1, kGroup + 1) == 1);
  CHECK(fabric_folders("other", own, shared)->meeting == own[0] + "/fabric-other");

  // What another user may have prepared, or everybody may enter, is no shared fabric.
  const auto is_private = [&] { return fabric_folders("lab", own, shared)->meeting == mine; };
  fs::permissions(folder, fs::perms::others_exec, fs::perm_options::add);
  CHECK(is_private());
  REQUIRE(share_fabric("lab", kGroup, shared));
  CHECK_FALSE(is_private());
  REQUIRE(::chown(folder.c_str(), kUser, kGroup) == 0);
  CHECK(is_private());
  REQUIRE(share_fabric("lab", kGroup, shared));
  fs::permissions(shared, fs::perms::group_write, fs::perm_options::add);
  CHECK(is_private());
  CHECK_FALSE(share_fabric("lab", kGroup, shared));
  fs::permissions(shared, fs::perms::group_write, fs::perm_options::remove);
  fs::rename(folder, shared + "/moved");
  fs::create_directory_symlink(shared + "/moved", folder);
  CHECK(is_private());
  CHECK_FALSE(share_fabric("lab", kGroup, shared));
}

TEST_CASE("members of a group reach a shared fabric, whatever the umask of root, or root is told why not",
          "[fabric][endnode]") {
  namespace fs = std::filesystem;
  if (::geteuid() != 0) {
    WARN("not tried: needs root");
    return;
  }
  constexpr gid_t kGroup = 12345;
  constexpr uid_t kUser = 54321;
  const os::TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  const std::string shared = directory.path("shared");
  const std::string folder = shared + "/shared-lab";
  const std::vector<std::string> theirs{directory.path("theirs")};
  REQUIRE(::mkdir(theirs[0].c_str(), 0755) == 0);
  REQUIRE(::chown(theirs[0].c_str(), kUser, 0) == 0);
  const auto seen = [&](gid_t group) {
    return exit_code_of([&] {
      if (setgroups(0, nullptr) != 0 || ::setresgid(group, group, group) != 0 || ::setresuid(kUser, kUser, kUser) != 0)
        return 8;
      const auto folders = fabric_folders("lab", theirs, shared);
      const std::string unseen = folder + ": can't see whether the fabric is shared: Permission denied";
      if (!folders) return folders.error().message == unseen ? 1 : 7;
      return folders->meeting == folder && LocalIds::open(folder) ? 0 : 2;
    });
  };
  for (const mode_t mask : {0U, 027U, 077U, 0777U}) {
    CAPTURE(mask);
    CHECK(exit_code_of([&] {
            ::umask(mask);
            return share_fabric("lab", kGroup, shared) ? 0 : 1;
          }) == 0);
    CHECK(fs::status(shared).permissions() == fs::perms{0755});
    CHECK(seen(kGroup) == 0);
    fs::remove_all(shared);
  }

  // A folder that somebody has closed on purpose stays as it is.
  fs::create_directory(shared);
  fs::permissions(shared, fs::perms{0700});
  CHECK(share_fabric("lab", kGroup, shared).error().message ==
        shared + ": group 12345 can't enter it (mode 0700); try chmod 755");
  CHECK_FALSE(fs::exists(folder));
  fs::permissions(shared, fs::perms{0710});
  CHECK_FALSE(share_fabric("lab", kGroup, shared));
  REQUIRE(::chown(shared.c_str(), 0, kGroup) == 0);
  REQUIRE(share_fabric("lab", kGroup, shared));
  CHECK(seen(kGroup) == 0);
  // Who can't see whether the fabric is shared does not get one of their own.
  CHECK(seen(kGroup + 1) == 1);
  CHECK(share_fabric("lab", static_cast<gid_t>(-1), shared).error().message == "4294967295 is no group's number");
}

TEST_CASE("fabrics are looked for where the session, the machine and the user have their folders",
          "[fabric][endnode]") {
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string session = before == nullptr ? "" : before;
  const os::TemporaryDirectory own;
  std::vector<std::string> others{fmt::format("/tmp/splitnic-{}", ::geteuid())};
  if (::geteuid() == 0) others.insert(others.begin(), "/run/splitnic");
  std::vector<std::string> all = others;
  all.insert(all.begin(), own.path("splitnic"));
  ::setenv("XDG_RUNTIME_DIR", own.path().c_str(), 1);
  CHECK(fabric_directories() == all);
  // Others can exchange what is made there.
  std::filesystem::permissions(own.path(), std::filesystem::perms::owner_all | std::filesystem::perms::group_write);
  CHECK(fabric_directories() == others);
  for (const char* of_nobody : {"relative", "/none/run/user", "/proc/1"}) {
    ::setenv("XDG_RUNTIME_DIR", of_nobody, 1);
    CHECK(fabric_directories() == others);
  }
  ::unsetenv("XDG_RUNTIME_DIR");
  CHECK(fabric_directories() == others);
  if (before != nullptr) ::setenv("XDG_RUNTIME_DIR", session.c_str(), 1);
}

}  // namespace splitnic::fabric::test::local_ids_test
