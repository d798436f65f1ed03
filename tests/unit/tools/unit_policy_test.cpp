#include "tools/unit_policy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/os/read_file.h"
#include "iounit/policy_file.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/other_process.h"
#include "tools/unit_requests.h"

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
                  .set_rules = [this](auto fresh) { rules.set_rules(std::move(fresh)); }},
                 now);
  }
  static void leave_files_to_a_process(UnitPolicy& policy) {
    UnitService service;
    policy.describe(service);
    auto process = os::PrivilegedProcess::start(
        {.service = [service](const os::PrivilegedMessage& request) { return service.serve(request); }});
    REQUIRE(process);
    policy.leave_files_to(*std::move(process));
  }
  void host_comes(const std::string& name, std::uint8_t address) {
    rules.attach(name, fabric::BridgePeer{.pid = 1, .uid = 7, .gid = 7}, {{2, 0, 0, 0, 0, address}}, now);
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
  /// The same in real time, for what the policy waits for a limited time.
  template <class Done>
  bool poll_really_until(UnitPolicy& policy, Done done) {
    const Time begun = monotonic_now();
    const Time before = now;
    while (!done() && now < before + seconds(9)) {
      policy.poll(now);
      std::this_thread::yield();
      now = before + (monotonic_now() - begun);
    }
    return done();
  }
};

/// A unit whose policy file has moved to a disk that hangs: a FIFO.
struct HangingDisk : Files {
  std::unique_ptr<UnitPolicy> policy;
  std::vector<Result<std::string>> told;  // of the reloads that are done

  /// privileged: another process reads and writes the files.
  explicit HangingDisk(bool privileged) {
    command.policy = folder / "policy.toml";
    std::ofstream(command.policy) << "";
    policy = std::make_unique<UnitPolicy>(command, "u", std::nullopt, log);
    if (privileged) leave_files_to_a_process(*policy);
    serve(*policy);
    std::filesystem::remove(command.policy);
    REQUIRE(::mkfifo(command.policy.c_str(), 0600) == 0);
  }
  ~HangingDisk() {
    // Whoever still reads reads the end of the file, and whoever comes later finds none.
    const os::UniqueFd last(::open(command.policy.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    std::filesystem::remove(command.policy);
  }
  HangingDisk(const HangingDisk&) = delete;
  HangingDisk& operator=(const HangingDisk&) = delete;

  void reload() {
    policy->reload(now, [this](Result<std::string> done) { told.push_back(std::move(done)); });
    policy->poll(now);
  }
  /// The disk still hangs. Each of these polls would stop the frames of all hosts.
  void time_passes(std::chrono::milliseconds time) {
    for (const Time end = now + time; now < end; now += std::chrono::milliseconds(1)) policy->poll(now);
  }
  /// The disk works, for one reader.
  void gives(const std::string& text) {
    os::UniqueFd end;
    REQUIRE(poll_really_until(*policy, [&] {
      end = os::UniqueFd(::open(command.policy.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
      return static_cast<bool>(end);
    }));
    REQUIRE(::write(end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  bool wait_told(std::size_t reloads) {
    return poll_really_until(*policy, [&] { return told.size() == reloads; });
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
  std::string reloaded;
  policy.reload(files.now, [&](const Result<std::string>& done) { reloaded = done ? *done : done.error().message; });
  REQUIRE(files.poll_really_until(policy, [&] { return !reloaded.empty(); }));
  CHECK(reloaded ==
        "--allow-mac db=02:00:00:00:00:01: the address is among lan-addresses; the old policy stays in force");
}

TEST_CASE("a host with an address of --allow-mac has no foreign sources, unless its own table gives them",
          "[tools][policy]") {
  const bool privileged = GENERATE(false, true);
  Files files;
  files.command.policy = files.folder / "policy.toml";
  files.command.allow_foreign_sources = true;
  files.command.allow_macs = {"web=02:00:00:00:00:11", "bridge=02:00:00:00:00:12", "db=02:00:00:00:00:13",
                              "new=02:00:00:00:00:14"};
  std::ofstream(files.command.policy) << "[[host]]\nname = 'web'\nsend-frames = 100\n"
                                         "[[host]]\nname = 'bridge'\nforeign-sources = true\n"
                                         "[[host]]\nname = 'db'\naddresses = '02:00:00:00:00:01'\n"
                                         "[[host]]\nname = 'mail'\n";
  UnitPolicy policy(files.command, "u", {}, files.log);
  if (privileged) Files::leave_files_to_a_process(policy);
  files.serve(policy);
  files.rules.set_rules(policy.rules());
  const auto check = [&] {
    for (const std::string name : {"web", "bridge", "db", "new", "mail", "another"}) {
      INFO(name);
      const bool given = name == "bridge" || name == "mail" || name == "another";
      CHECK(files.rules.rights_of(name).foreign_sources == given);
    }
    CHECK(files.rules.rights_of("web").send.frames == 100);
  };
  check();
  std::optional<Result<std::string>> reloaded;
  policy.reload(files.now, [&](Result<std::string> done) { reloaded = std::move(done); });
  REQUIRE(files.poll_really_until(policy, [&] { return reloaded.has_value(); }));
  REQUIRE(*reloaded);
  check();
  CHECK(files.rules.rules() == policy.rules());
}

TEST_CASE("a unit polls on while the disk keeps the policy, and has the rules when they come", "[tools][policy]") {
  HangingDisk files(GENERATE(false, true));
  files.reload();
  files.time_passes(std::chrono::milliseconds(500));
  CHECK(files.told.empty());
  files.gives("[[host]]\nname = 'web'\n");
  REQUIRE(files.wait_told(1));
  CHECK(files.told[0].value() == "policy " + files.command.policy + ": 1 hosts");
  CHECK(files.rules.rules().hosts.size() == 1);
  CHECK(files.policy->next_deadline() == kNever);

  files.reload();
  files.gives("[policy]\nfrobnicate = 1\n");
  REQUIRE(files.wait_told(2));
  REQUIRE_FALSE(files.told[1]);
  CHECK_THAT(files.told[1].error().message,
             Catch::StartsWith(files.command.policy + ":2: ") && Catch::EndsWith("; the old policy stays in force"));
  CHECK(files.rules.rules().hosts.size() == 1);
}

TEST_CASE("the rules of thousands of hosts are in force without a long stop of the frames", "[tools][policy]") {
  const bool privileged = GENERATE(false, true);
  constexpr std::size_t kHosts = 5000;
  Files files;
  files.command.policy = files.folder / "policy.toml";
  std::ofstream(files.command.policy) << "";
  UnitPolicy policy(files.command, "u", std::nullopt, files.log);
  if (privileged) Files::leave_files_to_a_process(policy);
  files.serve(policy);
  std::string text;
  for (std::size_t host = 0; host < kHosts; ++host) {
    text +=
        fmt::format("[[host]]\nname = 'h{}'\naddresses = '02:00:00:00:{:02x}:{:02x}'\n", host, host / 256, host % 256);
  }
  std::ofstream(files.command.policy) << text;
  // Processor time of this thread alone, however busy the machine is.
  const auto spent = [] {
    timespec time{};
    REQUIRE(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
    return seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const std::string in_force = iounit::to_toml(iounit::parse_policy(text, files.command.policy, {}).value());
  const auto before = spent();
  REQUIRE(iounit::parse_policy(in_force, files.command.policy, {}));
  const auto reading = spent() - before;

  std::optional<Result<std::string>> told;
  std::chrono::nanoseconds longest{0};
  policy.reload(files.now, [&](Result<std::string> done) { told = std::move(done); });
  REQUIRE(files.poll_really_until(policy, [&] {
    const auto begun = spent();
    policy.poll(files.now);
    longest = std::max(longest, spent() - begun);
    return told.has_value();
  }));
  REQUIRE(*told);
  CHECK(files.rules.rules().hosts.size() == kHosts);
  INFO(longest.count() << " ns, and " << reading.count() << " ns to read the rules in TOML");
  CHECK(longest < reading / 5);
}

TEST_CASE("names and reloads take turns, and a reload reads what the file is after the request", "[tools][policy]") {
  HangingDisk files(GENERATE(false, true));
  files.reload();
  files.host_comes("web", 1);
  files.reload();  // the file may be another one since the first reload began to read it
  files.time_passes(std::chrono::milliseconds(2000));
  CHECK(files.told.empty());
  CHECK_FALSE(std::filesystem::exists(files.names()));
  // The names did not ask the loop to wake up for nothing.
  CHECK(files.policy->next_deadline() >= files.now);
  files.gives("");
  REQUIRE(files.wait_told(1));
  CHECK(files.rules.rules().hosts.empty());
  files.gives("[[host]]\nname = 'db'\n");
  REQUIRE(files.wait_told(2));
  CHECK(files.rules.rules().hosts.size() == 1);
  CHECK_THAT(os::read_file(files.names(), 4096).value(), Catch::Contains("\"web\""));
}

TEST_CASE("a reload fails when the disk takes too long, and the policy that comes later is not taken",
          "[tools][policy]") {
  const bool privileged = GENERATE(false, true);
  const std::string reader = privileged ? "the privileged process" : "the disk";
  HangingDisk files(privileged);
  files.reload();
  files.time_passes(std::chrono::milliseconds(5000));
  files.reload();
  files.time_passes(std::chrono::milliseconds(4990));
  CHECK(files.told.empty());
  files.time_passes(std::chrono::milliseconds(20));
  REQUIRE(files.told.size() == 1);
  CHECK(files.told[0].error().message == reader + " does not answer; the old policy stays in force");
  files.time_passes(std::chrono::milliseconds(5000));
  REQUIRE(files.told.size() == 2);
  CHECK(files.told[1].error().message == reader + " is busy; the old policy stays in force");

  files.host_comes("web", 1);
  files.gives("[[host]]\nname = 'web'\n");
  // The names come after it.
  REQUIRE(files.poll_until(*files.policy, [&] { return std::filesystem::exists(files.names()); }));
  CHECK(files.rules.rules().hosts.empty());
  files.reload();
  files.gives("[[host]]\nname = 'db'\n");
  REQUIRE(files.wait_told(3));
  CHECK(files.rules.rules().hosts.size() == 1);
}

TEST_CASE("the end of a unit does not wait for a reload, and says so to those who do", "[tools][policy]") {
  HangingDisk files(GENERATE(false, true));
  files.reload();
  files.policy->finish();
  REQUIRE(files.told.size() == 1);
  CHECK(files.told[0].error().message == "the unit ends; the old policy stays in force");
}

}  // namespace splitnic::tools::unit_policy_test
