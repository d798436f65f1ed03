#include "tools/unit_policy.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/os/read_file.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/other_process.h"

namespace splitnic::tools::unit_policy_test {
namespace {

using std::chrono::seconds;
using testing::KilledAtTheEnd;
using testing::OtherProcess;

/// The files of a unit named "u", and the policy of that unit. No privileged process.
struct Files {
  const os::TemporaryDirectory directory;
  const std::filesystem::path folder{directory.path()};
  std::vector<std::string> lines;
  os::Log log{"unit", {.write = [this](std::string_view line) { lines.emplace_back(line); }}};
  UnitCommand command;
  iounit::Policy rules{{}, 1};
  Time now{std::chrono::hours(1)};

  Files() { command.state_directory = folder; }

  [[nodiscard]] std::filesystem::path names() const { return folder / "names-u.toml"; }
  /// What stands in the way of the next file: a folder in its place.
  [[nodiscard]] std::filesystem::path obstacle() const { return folder / "names-u.toml.new"; }
  void serve(UnitPolicy& policy) {
    policy.serve({.change = [this](const auto& change) { change(rules); },
                  .read = [this](const auto& read) { read(rules); },
                  .set_rules = {}},
                 now);
  }
  void host_comes(const std::string& name, std::uint8_t address) {
    rules.attach(name, fabric::BridgePeer{.pid = 1, .uid = 7, .gid = 7}, {{2, 0, 0, 0, 0, address}});
  }
  /// Polls as the loop does, in simulated time, while the disk takes real time.
  template <class Done>
  bool poll_until(UnitPolicy& policy, Done done) {
    const auto give_up = std::chrono::steady_clock::now() + seconds(10);
    while (!done() && std::chrono::steady_clock::now() < give_up) {
      policy.poll(now);
      now = std::max(now, std::min(policy.next_deadline(), now + seconds(60)));
      std::this_thread::yield();
    }
    return done();
  }
};

/// The owner of a name could not be saved, and the log has said so.
struct UnsavedNames : Files {
  UnitPolicy policy{command, "u", {}, log};

  UnsavedNames() {
    serve(policy);
    std::filesystem::create_directory(obstacle());
    host_comes("web", 1);
    REQUIRE(poll_until(policy, [&] { return !lines.empty(); }));
  }
};

}  // namespace

TEST_CASE("names that can't be saved are saved when they can, and the log says so meanwhile", "[tools][policy]") {
  UnsavedNames files;
  UnitPolicy& policy = files.policy;
  CHECK_THAT(files.lines[0], Catch::Contains("the owners of names are not saved, trying again: "));
  CHECK_FALSE(std::filesystem::exists(files.names()));
  // Nothing else changes.
  std::filesystem::remove(files.obstacle());
  REQUIRE(files.poll_until(policy, [&] { return std::filesystem::exists(files.names()); }));
  CHECK_THAT(os::read_file(files.names(), 4096).value(), Catch::Contains("\"web\""));
  CHECK(files.poll_until(policy, [&] { return policy.next_deadline() == kNever; }));
  CHECK(files.lines.size() == 1);
}

TEST_CASE("names that could not be saved are saved at the end of the unit", "[tools][policy]") {
  UnsavedNames files;
  UnitPolicy& policy = files.policy;
  std::filesystem::remove(files.obstacle());
  policy.finish();
  CHECK(std::filesystem::exists(files.names()));
}

TEST_CASE("two units of one name can't have one state directory", "[tools][policy]") {
  Files files;
  // The unit's child has not closed its copies of the unit's descriptors yet.
  OtherProcess unit([&](OtherProcess::Pipe& pipe) {
    const UnitPolicy first(files.command, "u", {}, files.log);
    if (const pid_t child = ::fork(); child != 0) pipe.say_number(child);
    for (;;) ::pause();
  });
  const KilledAtTheEnd kill_child(static_cast<pid_t>(unit.number()));

  const UnitPolicy other(files.command, "v", {}, files.log);
  std::string message;
  try {
    const UnitPolicy second(files.command, "u", {}, files.log);
  } catch (const StartupError& refused) {
    message = refused.message;
  }
  CHECK(message == "--state-directory " + files.folder.string() +
                       ": another unit named u keeps the owners of names there; give one of them another --name");

  unit.kill();
  CHECK_NOTHROW(UnitPolicy(files.command, "u", {}, files.log));
}

TEST_CASE("an address of --allow-mac is one host's, and no station's", "[tools][policy]") {
  Files files;
  files.command.policy = files.folder / "policy.toml";
  const auto policy_is = [&](const std::string& text) { std::ofstream(files.command.policy) << text; };
  const auto error = [&] {
    try {
      const UnitPolicy policy(files.command, "u", {}, files.log);
    } catch (const UsageError& refused) {
      return refused.message;
    }
    return std::string();
  };
  policy_is("[[host]]\nname = 'web'\naddresses = '02:00:00:00:00:01'\n");
  files.command.allow_macs = {"web=02:00:00:00:00:01", "web=02:00:00:00:00:02", "db=02:00:00:00:00:03"};
  CHECK(error().empty());
  files.command.allow_macs.emplace_back("mail=02:00:00:00:00:03");
  CHECK(error() == "--allow-mac mail=02:00:00:00:00:03: the address belongs to host db");
  files.command.allow_macs = {"db=02:00:00:00:00:01"};
  CHECK(error() == "--allow-mac db=02:00:00:00:00:01: the address belongs to host web");
  files.command.allow_macs = {"d/b=02:00:00:00:00:01"};
  CHECK(error() == "--allow-mac d/b=02:00:00:00:00:01: d/b is not a host's name");

  // Also where a new policy takes the address.
  policy_is("");
  files.command.allow_macs = {"db=02:00:00:00:00:01"};
  UnitPolicy policy(files.command, "u", {}, files.log);
  files.serve(policy);
  policy_is("[policy]\nlan-addresses = '02:00:00:00:00:01'\n");
  const auto reloaded = policy.reload();
  REQUIRE_FALSE(reloaded);
  CHECK(reloaded.error().message ==
        "--allow-mac db=02:00:00:00:00:01: the address is among lan-addresses; the old policy stays in force");
}

}  // namespace splitnic::tools::unit_policy_test
