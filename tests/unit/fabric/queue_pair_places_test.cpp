#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "fabric/endnode/local_ids.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/other_process.h"

/// Processes with several endnodes say which of them has a queue pair.
namespace splitnic::fabric::test::queue_pair_places_test {
namespace {

using testing::exit_code_of;
using testing::OtherProcess;

constexpr LocalId kFirst{5};
constexpr LocalId kSecond{9};
constexpr LocalId kOther{30};

/// Locks a byte of the fabric's file, as a hostile process may.
bool lock_byte(const os::TemporaryDirectory& directory, std::int64_t byte) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  const int file = ::open(directory.path("local-ids").c_str(), O_RDWR | O_CREAT, 0600);
  return ::fcntl(file, F_SETLK, &lock) == 0;
}

}  // namespace

TEST_CASE("the place of a queue pair in the file is as documented", "[fabric][endnode]") {
  CHECK(place_byte(QpNumber{0xabcdef}, LocalId{0x1234}) == 0x1000'00ab'cdef'1234);
}

TEST_CASE("a queue pair is where its process says that it is, as long as it says so", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  OtherProcess owner([&directory](OtherProcess::Pipe& pipe) {
    auto ids = LocalIds::open(directory.path());
    bool done = ids && (*ids)->take(kFirst) && (*ids)->take(kSecond);
    if (done) {
      (*ids)->place(QpNumber{77}, kSecond);
      (*ids)->place(QpNumber{78}, kFirst);
      (*ids)->place(QpNumber{78}, kSecond);
      (*ids)->place(QpNumber{79}, kSecond);
      (*ids)->displace(QpNumber{79}, kSecond);
      done = lock_byte(directory, place_byte(QpNumber{80}, kOther));  // which is not its own
    }
    pipe.say_number(done ? 1 : 0);
    for (;;) ::pause();
  });
  OtherProcess other([&directory](OtherProcess::Pipe& pipe) {
    auto ids = LocalIds::open(directory.path());
    const bool done = ids && (*ids)->take(kOther);
    for (const std::uint32_t number : {77U, 81U}) {
      if (done) (*ids)->place(QpNumber{number}, kOther);
    }
    pipe.say_number(done ? 1 : 0);
    for (;;) ::pause();
  });
  REQUIRE(owner.number() == 1);
  REQUIRE(other.number() == 1);
  const auto ids = LocalIds::open(directory.path());
  REQUIRE(ids);
  const auto place_of = [&ids](std::uint32_t queue_pair, LocalId id) {
    return (*ids)->place_of(QpNumber{queue_pair}, id);
  };
  CHECK(place_of(77, kFirst) == kSecond);
  CHECK(place_of(77, kSecond) == kSecond);
  CHECK(place_of(77, kOther) == kOther);
  CHECK(place_of(78, kFirst) == kFirst);
  CHECK(place_of(78, kSecond) == kSecond);
  CHECK(place_of(78, kOther) == kOther);
  CHECK(place_of(79, kFirst) == kFirst);
  CHECK(place_of(80, kFirst) == kFirst);
  CHECK(place_of(81, kFirst) == kFirst);
  CHECK(place_of(77, LocalId{40}) == LocalId{40});  // nobody's
  CHECK(place_of(77, LocalId{}) == LocalId{});
  owner.kill();
  CHECK(place_of(77, kFirst) == kFirst);
}

TEST_CASE("a queue pair of another PID namespace is where its program says that it is", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  const auto holding = [&directory](LocalId id, bool places) {
    return OtherProcess([&directory, id, places](OtherProcess::Pipe& pipe) {
      auto ids = LocalIds::open(directory.path());
      const bool done = ids && (*ids)->take(id);
      if (done && places) (*ids)->place(QpNumber{77}, id);
      pipe.say_number(done ? 1 : 0);
      for (;;) ::pause();
    });
  };
  OtherProcess owner = holding(kFirst, false);
  REQUIRE(owner.number() == 1);
  OtherProcess other = holding(kOther, true);
  REQUIRE(other.number() == 1);
  constexpr int kForbidden = 77;
  const int code = exit_code_of([&] {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return kForbidden;
    return exit_code_of([&] {
      const auto ids = LocalIds::open(directory.path());
      // Both processes look alike from here.
      if (!ids || (*ids)->holder(kFirst)->pid != 0 || (*ids)->holder(kOther)->pid != 0) return 1;
      return (*ids)->place_of(QpNumber{77}, kFirst) == kFirst ? 0 : 2;
    });
  });
  if (code == kForbidden) {
    WARN("skipped: this system permits no PID namespaces");
  } else {
    CHECK(code == 0);
  }
}

}  // namespace splitnic::fabric::test::queue_pair_places_test
