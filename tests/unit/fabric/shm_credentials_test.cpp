// Who may connect to an I/O unit's socket: the user that runs it, root, and those whom the options name.
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>
#include "fabric/bridge/shm_connector.h"
#include "fabric/bridge/shm_listener.h"
#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::fabric::shm_credentials_test {
namespace {

using std::chrono::milliseconds;

constexpr uid_t kUser = 54321;
constexpr gid_t kPrimary = 54322;
constexpr gid_t kSupplementary = 54323;

/// A process of kUser, in those two groups, that tries to connect. Exits with 0 if it gets a bridge, 1 if refused.
pid_t connecting_process(const std::string& path) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (setgroups(1, &kSupplementary) != 0 || setresgid(kPrimary, kPrimary, kPrimary) != 0 ||
      setresuid(kUser, kUser, kUser) != 0) {
    _exit(3);
  }
  ShmConnectOptions options;
  options.path = path;
  const Time start = monotonic_now();
  auto attempt = ShmConnector::start(options, start);
  if (!attempt) _exit(2);
  for (Time now = start; now < start + std::chrono::seconds(10); now = monotonic_now()) {
    if (const auto outcome = (*attempt)->poll(now)) _exit(outcome->has_value() ? 0 : 1);
    std::this_thread::yield();
  }
  _exit(4);
}

struct Outcome {
  int exit_code = -1;
  ShmListenerCounters counters;
};

/// What comes of a connection of kUser when the listener has these options.
Outcome try_to_connect(std::vector<uid_t> uids, std::vector<gid_t> gids) {
  const os::TemporaryDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
  ShmListenOptions options;
  options.path = directory.path("socket");
  options.allow_uids = std::move(uids);
  options.allow_gids = std::move(gids);
  options.window_bytes = 1U << 20U;
  auto listener = ShmListener::listen(options);
  REQUIRE(listener.has_value());
  const pid_t child = connecting_process(options.path);
  REQUIRE(child > 0);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    (*listener)->poll(monotonic_now());
    std::this_thread::yield();
  }
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), (*listener)->counters()};
}

void require_connected(const Outcome& outcome) {
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(outcome.counters.connected == 1);
  REQUIRE(outcome.counters.refused_credentials == 0);
}

bool may_change_user() {
  if (geteuid() == 0) return true;
  WARN("skipped: only root can connect as somebody else");
  return false;
}

}  // namespace

TEST_CASE("a user that the options name may connect", "[fabric][shm][privileged]") {
  if (!may_change_user()) return;
  require_connected(try_to_connect({kUser + 1, kUser}, {}));
}

TEST_CASE("a member of a group that the options name may connect, be it primary or supplementary",
          "[fabric][shm][privileged]") {
  if (!may_change_user()) return;
  require_connected(try_to_connect({}, {kPrimary + 100, kPrimary}));
  require_connected(try_to_connect({}, {kSupplementary}));
}

TEST_CASE("whom the options do not name is refused and counted", "[fabric][shm][privileged]") {
  if (!may_change_user()) return;
  // A user's number is not a group's, nor the other way round.
  const auto refused = try_to_connect({kPrimary, kSupplementary, kUser + 1}, {kUser, kPrimary + 100});
  REQUIRE(refused.exit_code == 1);
  REQUIRE(refused.counters.connected == 0);
  REQUIRE(refused.counters.refused_credentials == 1);
}

TEST_CASE("without such options nobody else can even reach the socket", "[fabric][shm][privileged]") {
  if (!may_change_user()) return;
  const auto nobody = try_to_connect({}, {});
  REQUIRE(nobody.exit_code == 2);
  REQUIRE(nobody.counters.refused_credentials == 0);
}

}  // namespace splitnic::fabric::shm_credentials_test
