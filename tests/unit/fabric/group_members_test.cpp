#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "fabric/endnode/group_watch.h"
#include "fabric/endnode/local_ids.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/other_process.h"

/// Who is a member of which multicast group of a fabric, and how others learn it.
namespace splitnic::fabric::test::group_members_test {
namespace {

using testing::KilledAtTheEnd;
using testing::OtherProcess;

constexpr int kLimitMilliseconds = 20'000;

Gid group_of(std::uint8_t last) {
  Gid gid;
  gid.bytes[0] = 0xff;
  gid.bytes[15] = last;
  return gid;
}

std::vector<LocalId> of(std::initializer_list<std::uint16_t> numbers) {
  std::vector<LocalId> ids;
  for (const std::uint16_t number : numbers) ids.push_back(LocalId{number});
  return ids;
}

std::shared_ptr<LocalIds> open(const os::TemporaryDirectory& directory) {
  auto ids = LocalIds::open(directory.path());
  REQUIRE(ids);
  return *ids;
}

bool readable(const GroupWatch& watch, int milliseconds) {
  pollfd one{watch.descriptor(), POLLIN, 0};
  return ::poll(&one, 1, milliseconds) == 1;
}

/// Locks bytes of the fabric's file by itself.
bool lock_bytes(const os::TemporaryDirectory& directory, std::int64_t from, std::int64_t bytes) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = from;
  lock.l_len = bytes;
  const int file = ::open(directory.path("local-ids").c_str(), O_RDWR | O_CREAT, 0600);
  return ::fcntl(file, F_SETLK, &lock) == 0;
}

/// A process that holds `id` and has joined group 1, and does nothing else.
OtherProcess member(const os::TemporaryDirectory& directory, std::uint16_t id, bool with_child = false) {
  return OtherProcess([&directory, id, with_child](OtherProcess::Pipe& pipe) {
    auto ids = LocalIds::open(directory.path());
    const bool joined =
        ids && (*ids)->take(LocalId{id}) && (*ids)->join(group_of(1), LocalId{id}) == LocalIds::Joined::yes;
    if (with_child && ::fork() == 0) {
      pipe.say_number(joined ? ::getpid() : 0);
      for (;;) ::pause();
    }
    if (!with_child) pipe.say_number(joined ? 1 : 0);
    for (;;) ::pause();
  });
}

}  // namespace

TEST_CASE("a group has the members that have joined and not left", "[fabric][endnode][groups]") {
  const os::TemporaryDirectory directory;
  const auto ids = open(directory);
  for (const std::uint16_t id : {std::uint16_t{1}, std::uint16_t{700}, kMaxLocalId}) REQUIRE(ids->take(LocalId{id}));
  CHECK(ids->members(group_of(1)).ids.empty());
  REQUIRE(ids->join(group_of(1), LocalId{700}) == LocalIds::Joined::yes);
  REQUIRE(ids->join(group_of(1), LocalId{1}) == LocalIds::Joined::yes);
  REQUIRE(ids->join(group_of(1), LocalId{kMaxLocalId}) == LocalIds::Joined::yes);
  REQUIRE(ids->join(group_of(2), LocalId{700}) == LocalIds::Joined::yes);
  CHECK(ids->members(group_of(1)).ids == of({1, 700, kMaxLocalId}));
  CHECK(ids->members(group_of(2)).ids == of({700}));
  // As often as it has joined.
  REQUIRE(ids->join(group_of(1), LocalId{700}) == LocalIds::Joined::yes);
  ids->leave(group_of(1), LocalId{700});
  CHECK(ids->members(group_of(1)).ids == of({1, 700, kMaxLocalId}));
  ids->leave(group_of(1), LocalId{700});
  CHECK(ids->members(group_of(1)).ids == of({1, kMaxLocalId}));
  CHECK(ids->members(group_of(2)).ids == of({700}));
  // Memberships are no local IDs.
  CHECK(ids->holders().size() == 3);
}

TEST_CASE("the place of a membership in the file is as documented", "[fabric][endnode][groups]") {
  Gid group;
  for (std::size_t i = 0; i < group.bytes.size(); ++i) group.bytes[i] = static_cast<std::uint8_t>(0xff - i);
  const std::int64_t first = membership_byte(group, LocalId{0});
  CHECK(first % 65536 == 0);
  CHECK(first >> 61 == 1);
  CHECK(first == 0x22f6'6cc5'e1e5'0000);
  CHECK(membership_byte(group, LocalId{0x1234}) == first + 0x1234);
}

TEST_CASE("members of other processes are found, and end with their process, whoever keeps its files open",
          "[fabric][endnode][groups]") {
  const os::TemporaryDirectory directory;
  OtherProcess high = member(directory, 900);
  REQUIRE(high.number() == 1);
  OtherProcess parent = member(directory, 30, true);
  const auto child = static_cast<pid_t>(parent.number());
  REQUIRE(child > 0);
  const KilledAtTheEnd kill_child(child);
  OtherProcess middle = member(directory, 500);
  REQUIRE(middle.number() == 1);
  const auto ids = open(directory);
  REQUIRE(ids->take(LocalId{7}));
  REQUIRE(ids->join(group_of(1), LocalId{7}) == LocalIds::Joined::yes);
  CHECK(ids->members(group_of(1)).ids == of({7, 30, 500, 900}));
  CHECK(ids->members(group_of(2)).ids.empty());
  parent.kill();
  CHECK(ids->members(group_of(1)).ids == of({7, 500, 900}));
  high.kill();
  CHECK(ids->members(group_of(1)).ids == of({7, 500}));
  CHECK(ids->members(group_of(1)).refused == 0);
}

TEST_CASE("a process is a member only by local IDs that it holds", "[fabric][endnode][groups][hostile]") {
  const os::TemporaryDirectory directory;
  OtherProcess honest = member(directory, 30);
  REQUIRE(honest.number() == 1);
  struct Row {
    const char* what;
    std::uint16_t from;
    std::int64_t bytes;
    std::size_t refused;
  };
  for (const Row& row : {Row{"another process's ID", 31, 1, 1}, Row{"an ID that nobody holds", 40, 1, 1},
                         Row{"no ID", 0, 1, 1}, Row{"all higher IDs", 31, 0, kMaxLocalId - 30}}) {
    INFO(row.what);
    OtherProcess other([&](OtherProcess::Pipe& pipe) {
      auto ids = LocalIds::open(directory.path());
      pipe.say_number(ids && (*ids)->take(LocalId{31}) ? 1 : 0);
      for (;;) ::pause();
    });
    REQUIRE(other.number() == 1);
    OtherProcess liar([&](OtherProcess::Pipe& pipe) {
      pipe.say_number(lock_bytes(directory, membership_byte(group_of(1), LocalId{row.from}), row.bytes) ? 1 : 0);
      for (;;) ::pause();
    });
    REQUIRE(liar.number() == 1);
    const LocalIds::Members members = open(directory)->members(group_of(1));
    CHECK(members.ids == of({30}));
    CHECK(members.refused == row.refused);
    CHECK_FALSE(members.too_many);
  }
}

TEST_CASE("an endnode whose membership another process claims is told so", "[fabric][endnode][groups][hostile]") {
  const os::TemporaryDirectory directory;
  OtherProcess liar([&](OtherProcess::Pipe& pipe) {
    pipe.say_number(lock_bytes(directory, membership_byte(group_of(1), LocalId{7}), 1) ? 1 : 0);
    for (;;) ::pause();
  });
  REQUIRE(liar.number() == 1);
  const auto ids = open(directory);
  REQUIRE(ids->take(LocalId{7}));
  CHECK(ids->join(group_of(1), LocalId{7}) == LocalIds::Joined::in_other);
  CHECK(ids->members(group_of(1)).ids.empty());
  CHECK(ids->join(group_of(2), LocalId{7}) == LocalIds::Joined::yes);
  liar.kill();
  CHECK(ids->join(group_of(1), LocalId{7}) == LocalIds::Joined::yes);
}

TEST_CASE("locks without number on a group cost a bounded number of looks", "[fabric][endnode][groups][hostile]") {
  const os::TemporaryDirectory directory;
  OtherProcess liar([&](OtherProcess::Pipe& pipe) {
    auto ids = LocalIds::open(directory.path());
    bool all = ids.has_value();
    const std::int64_t first = membership_byte(group_of(1), LocalId{0});
    // Every second byte, so that the kernel keeps each as a lock of its own; with one descriptor.
    const int file = ::open(directory.path("local-ids").c_str(), O_RDWR);
    for (std::int64_t byte = first; byte < first + 4000; byte += 2) {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = byte;
      lock.l_len = 1;
      all = all && ::fcntl(file, F_SETLK, &lock) == 0;
    }
    pipe.say_number(all ? 1 : 0);
    for (;;) ::pause();
  });
  REQUIRE(liar.number() == 1);
  const auto ids = open(directory);
  REQUIRE(ids->take(LocalId{13}));
  REQUIRE(ids->join(group_of(1), LocalId{13}) == LocalIds::Joined::yes);
  const LocalIds::Members members = ids->members(group_of(1));
  CHECK(members.ids == of({13}));
  CHECK(members.refused == 2 * LocalIds::kMaxMembers);
}

TEST_CASE("a full group takes nobody, until somebody leaves", "[fabric][endnode][groups]") {
  const os::TemporaryDirectory directory;
  const auto ids = open(directory);
  for (std::uint16_t id = 1; id <= LocalIds::kMaxMembers; ++id) {
    REQUIRE(ids->take(LocalId{id}));
    REQUIRE(ids->join(group_of(1), LocalId{id}) == LocalIds::Joined::yes);
  }
  const LocalId late{LocalIds::kMaxMembers + 1};
  REQUIRE(ids->take(late));
  CHECK(ids->join(group_of(1), late) == LocalIds::Joined::full);
  CHECK(ids->members(group_of(1)).ids.size() == LocalIds::kMaxMembers);
  CHECK(ids->join(group_of(2), late) == LocalIds::Joined::yes);
  ids->leave(group_of(1), LocalId{5});
  CHECK(ids->join(group_of(1), late) == LocalIds::Joined::yes);
}

TEST_CASE("a file of the fabric that is a link or a folder is not used", "[fabric][endnode][groups][hostile]") {
  const os::TemporaryDirectory directory;
  SECTION("a link") { REQUIRE(::symlink("/etc/hostname", directory.path("local-ids").c_str()) == 0); }
  SECTION("a link to nothing") { REQUIRE(::symlink("elsewhere", directory.path("local-ids").c_str()) == 0); }
  SECTION("a folder") { REQUIRE(::mkdir(directory.path("local-ids").c_str(), 0700) == 0); }
  const auto ids = LocalIds::open(directory.path());
  REQUIRE_FALSE(ids);
  CHECK(ids.error().message.starts_with(directory.path("local-ids") + ": "));
  CHECK_FALSE(std::filesystem::exists(directory.path("elsewhere")));
}

TEST_CASE("a change of members is told to who watches, at once", "[fabric][endnode][groups]") {
  const os::TemporaryDirectory directory;
  // Made before the watch; it joins, and is killed, after it.
  OtherProcess other = member(directory, 30);
  REQUIRE(other.number() == 1);
  const auto ids = open(directory);
  REQUIRE(ids->take(LocalId{7}));
  const auto watch = GroupWatch::open(directory.path());
  REQUIRE(watch);
  CHECK_FALSE(readable(*watch, 0));
  const auto told = [&] {
    const bool is = readable(*watch, kLimitMilliseconds);
    watch->clear();
    return is && !readable(*watch, 0);
  };
  REQUIRE(ids->join(group_of(1), LocalId{7}) == LocalIds::Joined::yes);
  CHECK(told());
  REQUIRE(ids->join(group_of(1), LocalId{7}) == LocalIds::Joined::yes);  // nothing new
  CHECK_FALSE(readable(*watch, 0));
  ids->leave(group_of(1), LocalId{7});
  CHECK_FALSE(readable(*watch, 0));
  ids->leave(group_of(1), LocalId{7});
  CHECK(told());
  other.kill();
  CHECK(told());
  CHECK(ids->members(group_of(1)).ids.empty());
}

TEST_CASE("where the kernel tells nothing, watchers look again and again", "[fabric][endnode][groups]") {
  const auto watch = GroupWatch::open_timer();
  REQUIRE(watch);
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(readable(*watch, kLimitMilliseconds));
    watch->clear();
    CHECK_FALSE(readable(*watch, 0));
  }
}

}  // namespace splitnic::fabric::test::group_members_test
