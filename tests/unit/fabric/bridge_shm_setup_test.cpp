#include "fabric/bridge/shm_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "common/os/passed_descriptors.h"
#include "tests/unit/fabric/bridge_fixtures.h"
#include "tests/unit/fabric/fake_unit.h"

namespace splitnic::fabric::bridge_shm_setup_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::address_of;
using test::FakeUnit;
using test::kTestBytes;

std::size_t open_descriptors() {
  namespace fs = std::filesystem;
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

/// A caller that plays no fair host.
struct RawCaller {
  explicit RawCaller(const std::string& path) : socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = address_of(path);
    REQUIRE(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  void say(std::span<const std::byte> bytes) {
    // The unit may have hung up on us already.
    static_cast<void>(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  /// The unit's reply, or nullopt if it hung up without one.
  std::optional<ShmReply> reply() {
    ShmReply got{};
    if (recv(socket.get(), &got, sizeof got, MSG_DONTWAIT) != static_cast<ssize_t>(sizeof got)) return std::nullopt;
    return got;
  }
  bool hung_up_on() {
    char byte = 0;
    pollfd state{socket.get(), POLLIN, 0};
    if (poll(&state, 1, 5000) != 1) return false;  // closed elsewhere, so not at once
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
  }
  os::UniqueFd socket;
};

ShmHello hello(std::uint32_t version = kShmSetupVersion, std::uint64_t bytes = kTestBytes) {
  ShmHello message = encode_shm_hello({.local_bytes = bytes, .window_bytes = bytes});
  message.version = version;
  return message;
}

std::span<const std::byte> wire(const ShmHello& message) { return std::as_bytes(std::span(&message, 1)); }

struct Unit {
  explicit Unit(ShmListenOptions options = {}) {
    options.path = directory.path("socket");
    auto made = ShmListener::listen(options);
    REQUIRE(made.has_value());
    listener = std::move(*made);
    path = options.path;
  }
  void poll_all(Time now) {
    for (int i = 0; i < 10; ++i) listener->poll(now);
  }
  /// Somebody fair still gets a bridge.
  bool serves(Time now) {
    ShmConnectOptions options;
    options.path = path;
    auto connector = ShmConnector::start(options, now);
    if (!connector) return false;
    poll_all(now);
    const auto bridge = (*connector)->poll(now);
    return bridge.has_value() && bridge->has_value() && listener->take().has_value();
  }
  test::TemporaryDirectory directory;
  std::unique_ptr<ShmListener> listener;
  std::string path;
};

}  // namespace

TEST_CASE("random bytes, silence, half a hello and a caller that leaves disturb nobody and are counted",
          "[fabric][shm]") {
  Unit unit;
  Time now{};
  SeededRandom random(1);
  RawCaller garbage(unit.path);
  garbage.say(test::random_bytes(random, 5000));
  RawCaller silent(unit.path);
  RawCaller half(unit.path);
  half.say(wire(hello()).first(kShmHelloBytes - 1));
  { RawCaller leaves(unit.path); }
  unit.poll_all(now);
  CHECK(unit.listener->counters().closed_garbage == 1);
  CHECK(unit.listener->counters().closed_hung_up == 1);
  CHECK(unit.listener->setting_up() == 2);
  CHECK(garbage.hung_up_on());
  CHECK(unit.serves(now));
  unit.poll_all(now);  // that one's bridge has ended
  CHECK(unit.listener->next_deadline() == now + seconds(2));
  now += seconds(2) - milliseconds(1);
  unit.poll_all(now);
  CHECK(unit.listener->setting_up() == 2);
  now += milliseconds(1);
  unit.poll_all(now);
  CHECK(unit.listener->setting_up() == 0);
  CHECK(unit.listener->counters().closed_silent == 2);
  CHECK(silent.hung_up_on());
  CHECK(unit.listener->next_deadline() == kNever);
  CHECK(unit.serves(now));
}

TEST_CASE("a hello may come in pieces", "[fabric][shm]") {
  Unit unit;
  RawCaller caller(unit.path);
  const ShmHello message = hello();
  for (std::size_t i = 0; i < kShmHelloBytes; ++i) {
    unit.poll_all(Time{});
    CHECK_FALSE(unit.listener->take().has_value());
    caller.say(wire(message).subspan(i, 1));
  }
  unit.poll_all(Time{});
  CHECK(unit.listener->take().has_value());
}

TEST_CASE("200 idle connections keep no host from its bridge, nor the unit's descriptors", "[fabric][shm]") {
  ShmListenOptions options;
  options.max_setting_up_per_user = 64;
  options.limits.free_ends = 100;
  Unit unit(options);
  const std::size_t before = open_descriptors();
  std::vector<std::unique_ptr<RawCaller>> idle;
  Time now{};
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<RawCaller>(unit.path));
    if (i % 50 == 0) CHECK(unit.serves(now));
    unit.listener->poll(now);
    REQUIRE(unit.listener->setting_up() <= 64);
  }
  unit.poll_all(now);
  CHECK(unit.listener->counters().closed_excess == 136);
  CHECK(unit.serves(now));
  unit.poll_all(now);  // takes back the bridge
  CHECK(open_descriptors() == before + 200 + 64);
  unit.poll_all(now + seconds(3));
  CHECK(unit.listener->counters().closed_silent == 64);
  CHECK(open_descriptors() == before + 200);
}

TEST_CASE("what a hello asks for is checked at its boundaries", "[fabric][shm]") {
  const auto [version, bytes, status] = GENERATE(table<std::uint32_t, std::uint64_t, ShmSetupStatus>({
      {0, kTestBytes, ShmSetupStatus::other_version},
      {1, kTestBytes, ShmSetupStatus::other_version},
      {3, kTestBytes, ShmSetupStatus::other_version},
      {0xffffffff, 0, ShmSetupStatus::other_version},
      {2, 1, ShmSetupStatus::bad_sizes},
      {2, kShmMinBytes - 1, ShmSetupStatus::bad_sizes},
      {2, kShmDefaultBytes + 1, ShmSetupStatus::bad_sizes},
      {2, ~std::uint64_t{0}, ShmSetupStatus::bad_sizes},
      {2, 0, ShmSetupStatus::ok},
      {2, kShmMinBytes, ShmSetupStatus::ok},
      {2, kShmMinBytes + 1, ShmSetupStatus::ok},
      {2, kShmDefaultBytes, ShmSetupStatus::ok},
  }));
  INFO("version " << version << ", bytes " << bytes);
  Unit unit;
  RawCaller caller(unit.path);
  caller.say(wire(hello(version, bytes)));
  unit.poll_all(Time{});
  const auto reply = caller.reply();
  REQUIRE(reply.has_value());
  CHECK(reply->magic.value() == kShmSetupMagic);
  CHECK(reply->version.value() == kShmSetupVersion);
  CHECK(reply->status.value() == static_cast<std::uint32_t>(status));
  CHECK(unit.listener->take().has_value() == (status == ShmSetupStatus::ok));
  const auto& counters = unit.listener->counters();
  CHECK(counters.refused_version == (status == ShmSetupStatus::other_version ? 1 : 0));
  CHECK(counters.refused_sizes == (status == ShmSetupStatus::bad_sizes ? 1 : 0));
}

TEST_CASE("a stale socket is replaced, a live one and what is no socket are errors and stay", "[fabric][shm]") {
  test::TemporaryDirectory directory;
  ShmListenOptions options;
  options.path = directory.path("socket");
  {
    const os::UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    const sockaddr_un address = address_of(options.path);
    REQUIRE(bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  auto listener = ShmListener::listen(options);
  REQUIRE(listener.has_value());
  const auto second = ShmListener::listen(options);
  REQUIRE_FALSE(second.has_value());
  CHECK_THAT(second.error().message, Catch::Contains("address in use"));
  struct stat status {};
  REQUIRE(stat(options.path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0600);
  listener->reset();
  CHECK_FALSE(std::filesystem::exists(options.path));
  std::ofstream(options.path) << "precious";
  CHECK_FALSE(ShmListener::listen(options).has_value());
  CHECK(std::filesystem::file_size(options.path) == 8);
  std::filesystem::remove(options.path);
}

TEST_CASE("connecting to nobody, or to a path that cannot be, is an error at once", "[fabric][shm]") {
  test::TemporaryDirectory directory;
  CHECK_FALSE(ShmConnector::start({.path = directory.path("absent")}, Time{}).has_value());
  CHECK_FALSE(ShmConnector::start({.path = ""}, Time{}).has_value());
  const auto long_path = ShmConnector::start({.path = "/tmp/" + std::string(103, 'x')}, Time{});
  REQUIRE_FALSE(long_path.has_value());
  CHECK_THAT(long_path.error().message, Catch::Contains("107"));
}

TEST_CASE("a fair reply makes a bridge, in one piece or in two", "[fabric][shm]") {
  FakeUnit unit;
  SECTION("one") { unit.send_reply(unit.descriptors()); }
  SECTION("two") {
    unit.send_reply(unit.descriptors(), 5);
    CHECK_FALSE(unit.connector->poll(Time{}).has_value());
    REQUIRE(send(unit.connection.get(), reinterpret_cast<const char*>(&unit.reply) + 5, kShmReplyBytes - 5, 0) ==
            static_cast<ssize_t>(kShmReplyBytes - 5));
  }
  CHECK(unit.verdict().empty());
}

TEST_CASE("wrong, missing, extra, unsealed or misshapen descriptors are refused by name, and none is kept",
          "[fabric][shm]") {
  struct Row {
    const char* what;
    const char* says;
    void (*send)(FakeUnit&);
  };
  const Row rows[] = {
      {"none", "0 descriptors instead of 4", [](FakeUnit& u) { u.send_reply({}); }},
      {"one too few", "3 descriptors instead of 4",
       [](FakeUnit& u) {
         u.send_reply({u.memory[0].get(), u.memory[1].get(), u.bell.get()});
       }},
      {"one too many", "more than 4",
       [](FakeUnit& u) {
         u.send_reply({u.memory[0].get(), u.memory[1].get(), u.bell.get(), u.event.get(), u.event.get()});
       }},
      {"a hundred", "more than 4", [](FakeUnit& u) { u.send_reply(std::vector<int>(100, u.bell.get())); }},
      {"the wrong order", "not a packet socket",
       [](FakeUnit& u) {
         u.send_reply({u.bell.get(), u.memory[0].get(), u.memory[1].get(), u.event.get()});
       }},
      {"the same memory twice", "same memory twice",
       [](FakeUnit& u) {
         u.send_reply({u.memory[0].get(), u.memory[0].get(), u.bell.get(), u.event.get()});
       }},
      {"unsealed memory", "not sealed",
       [](FakeUnit& u) {
         u.memory[1] = FakeUnit::memfd(kTestBytes + 4096, 0);
         u.send_reply(u.descriptors());
       }},
      {"memory that may shrink", "not sealed",
       [](FakeUnit& u) {
         u.memory[0] = FakeUnit::memfd(kTestBytes + 4096, F_SEAL_GROW | F_SEAL_SEAL);
         u.send_reply(u.descriptors());
       }},
      {"memory that may be sealed further", "not sealed",
       [](FakeUnit& u) {
         u.memory[0] = FakeUnit::memfd(kTestBytes + 4096, F_SEAL_GROW | F_SEAL_SHRINK);
         u.send_reply(u.descriptors());
       }},
      {"memory that cannot be written", "cannot map",
       [](FakeUnit& u) {
         u.memory[0] = FakeUnit::memfd(kTestBytes + 4096, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL);
         u.send_reply(u.descriptors());
       }},
      {"memory that is too small", "instead of",
       [](FakeUnit& u) {
         u.memory[0] = FakeUnit::memfd(kTestBytes);
         u.send_reply(u.descriptors());
       }},
      {"memory that is too large", "instead of",
       [](FakeUnit& u) {
         u.memory[1] = FakeUnit::memfd(kTestBytes + 8192);
         u.send_reply(u.descriptors());
       }},
      {"an ordinary file", "not sealed|not a memfd",
       [](FakeUnit& u) {
         u.memory[0] = os::UniqueFd(open(u.directory.path("").c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
         u.send_reply(u.descriptors());
       }},
      {"a pipe", "not a memfd",
       [](FakeUnit& u) {
         int ends[2];
         REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
         u.memory[0] = os::UniqueFd(ends[0]);
         const os::UniqueFd other(ends[1]);
         u.send_reply(u.descriptors());
       }},
      {"a stream socket as doorbell", "not a packet socket",
       [](FakeUnit& u) {
         u.bell = FakeUnit::stream_socket();
         u.send_reply(u.descriptors());
       }},
      {"a pipe as the doorbell to ring", "not an eventfd",
       [](FakeUnit& u) {
         int ends[2];
         REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
         u.event = os::UniqueFd(ends[1]);
         const os::UniqueFd other(ends[0]);
         u.send_reply(u.descriptors());
       }},
      {"a stream socket as the doorbell to ring", "not an eventfd",
       [](FakeUnit& u) {
         u.event = FakeUnit::stream_socket();
         u.send_reply(u.descriptors());
       }},
      {"an epoll as the doorbell to ring", "not an eventfd",
       [](FakeUnit& u) {
         u.event = os::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
         u.send_reply(u.descriptors());
       }},
      {"sizes below the minimum", "can't be used",
       [](FakeUnit& u) {
         u.reply.local_bytes = kShmMinBytes - 4096;
         u.send_reply(u.descriptors());
       }},
      {"sizes off the page", "can't be used",
       [](FakeUnit& u) {
         u.reply.window_bytes = kTestBytes + 64;
         u.send_reply(u.descriptors());
       }},
      {"sizes of 2^64-4096", "can't be used",
       [](FakeUnit& u) {
         u.reply.window_bytes = ~std::uint64_t{4095};
         u.send_reply(u.descriptors());
       }},
      {"another magic", "not a splitnic I/O unit",
       [](FakeUnit& u) {
         u.reply.magic = 1;
         u.send_reply(u.descriptors());
       }},
      {"another version", "version 7 of the shm set-up, this host version 2",
       [](FakeUnit& u) {
         u.reply.version = 7;
         u.reply.status = 1;
         u.send_reply({});
       }},
      {"another version that says ok", "version 7 of the shm set-up, this host version 2",
       [](FakeUnit& u) {
         u.reply.version = 7;
         u.send_reply(u.descriptors());
       }},
      {"not permitted", "does not permit", [](FakeUnit& u) { u.refuse(2); }},
      {"no place", "as many hosts as it may", [](FakeUnit& u) { u.refuse(5); }},
      {"a user's limit", "gives to one user", [](FakeUnit& u) { u.refuse(6); }},
      {"a purpose that is not served", "this kind of connection", [](FakeUnit& u) { u.refuse(7); }},
      {"a session that is not there", "no such session", [](FakeUnit& u) { u.refuse(8); }},
      {"the shorter reply of version 1", "version 1 of the shm set-up, this host version 2",
       [](FakeUnit& u) {
         u.reply.version = 1;
         u.reply.status = 1;
         u.send_reply({}, 32);
         u.connection.reset();
       }},
      {"an unknown status", "unknown status 99", [](FakeUnit& u) { u.refuse(99); }},
      {"a refusal with sizes", "field of the unit's refusal is not zero",
       [](FakeUnit& u) {
         u.reply.cookie = 0;
         u.reply.status = 2;
         u.send_reply({});
       }},
      {"a reserved field", "reserved field",
       [](FakeUnit& u) {
         u.reply.reserved[1] = std::uint64_t{1} << 63U;
         u.send_reply(u.descriptors());
       }},
      {"no cookie", "no cookie",
       [](FakeUnit& u) {
         u.reply.cookie = 0;
         u.send_reply(u.descriptors());
       }},
      {"a feature that was not offered", "did not offer",
       [](FakeUnit& u) {
         u.reply.features = kShmFeatureFurtherQueues;
         u.send_reply(u.descriptors());
       }},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const std::size_t before = open_descriptors();
    {
      FakeUnit unit;
      row.send(unit);
      const std::string verdict = unit.verdict();
      INFO(verdict);
      const std::string says = row.says;
      const auto bar = says.find('|');
      CHECK((verdict.find(says.substr(0, bar)) != std::string::npos ||
             (bar != std::string::npos && verdict.find(says.substr(bar + 1)) != std::string::npos)));
    }
    CHECK(open_descriptors() == before);
  }
}

TEST_CASE("the reply to another purpose than a session has the cookie of the hello", "[fabric][shm]") {
  const ShmPurpose purpose = GENERATE(ShmPurpose::further_queue, ShmPurpose::endnode);
  const std::uint64_t own = purpose == ShmPurpose::further_queue ? 1 : 0;
  const std::uint64_t cookie = GENERATE(0, 1, 2);
  CAPTURE(purpose, cookie);
  FakeUnit unit({.purpose = purpose, .cookie = own});
  unit.reply.cookie = cookie;
  unit.send_reply(unit.descriptors());
  const std::string verdict = unit.verdict();
  INFO(verdict);
  CHECK(verdict.empty() == (cookie == own));
}

TEST_CASE("a doorbell at its highest value does not hold up the host, although the unit made it blocking",
          "[fabric][shm]") {
  FakeUnit unit;
  unit.event = os::UniqueFd(eventfd(0, EFD_CLOEXEC));
  const std::uint64_t full = ~std::uint64_t{1};
  REQUIRE(write(unit.event.get(), &full, sizeof full) == sizeof full);
  unit.send_reply(unit.descriptors());
  auto bridge = unit.connector->poll(Time{});
  REQUIRE((bridge.has_value() && bridge->has_value()));
  std::promise<void> rung;
  std::thread host([&] {
    (**bridge)->ring();
    rung.set_value();
  });
  CHECK(rung.get_future().wait_for(std::chrono::seconds(3)) == std::future_status::ready);
  std::uint64_t count = 0;
  CHECK(read(unit.event.get(), &count, sizeof count) == sizeof count);  // a ring that waits can go on now
  CHECK(count == full);
  host.join();
}

TEST_CASE("a host looks for its unit for ever, whatever the hours, and tells each reason once", "[fabric][shm]") {
  test::TemporaryDirectory directory;
  struct Recorded final : Notices {
    std::vector<std::string> lines;
    void notice(const std::string& line) override { lines.push_back(line); }
  } told;
  ShmConnectSource source({.path = directory.path("socket"), .local_bytes = kTestBytes, .window_bytes = kTestBytes},
                          told);
  Time now{};
  // A week without a unit, asked for whenever it wants to be; then some days slept through at once.
  const Time later = now + std::chrono::hours(24 * 7);
  std::size_t tries = 0;
  for (; now < later; now += std::chrono::minutes(1)) {
    REQUIRE(source.poll(now) == nullptr);
    REQUIRE(source.next_deadline() <= now + milliseconds(250));
    ++tries;
  }
  CHECK(tries == 7 * 24 * 60);
  REQUIRE(told.lines.size() == 1);
  CHECK_THAT(told.lines[0], Catch::Contains("; trying again"));
  now += std::chrono::hours(72);
  ShmListenOptions options;
  options.path = directory.path("socket");
  auto listener = ShmListener::listen(options);
  REQUIRE(listener.has_value());
  std::shared_ptr<Bridge> bridge;
  for (int turn = 0; turn < 100 && !bridge; ++turn) {
    bridge = source.poll(now);
    (*listener)->poll(now);
  }
  REQUIRE(bridge != nullptr);
  CHECK(bridge->link() == LinkState::up);
}

/// Of a unit that does not permit this user.
ShmReply no_permission() {
  ShmReply reply{};
  reply.magic = kShmSetupMagic;
  reply.version = kShmSetupVersion;
  reply.status = static_cast<std::uint32_t>(ShmSetupStatus::not_permitted);
  return reply;
}

TEST_CASE("a host whose hello finds the unit gone learns what the unit had said before", "[fabric][shm]") {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  os::UniqueFd host(ends[0]);
  os::UniqueFd unit(ends[1]);
  const ShmReply reply = no_permission();
  REQUIRE(send(unit.get(), &reply, sizeof reply, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof reply));
  unit.reset();
  auto connector = ShmConnector::start_connected(std::move(host), {.path = "unit"}, Time{});
  REQUIRE(connector.has_value());
  const auto verdict = (*connector)->poll(Time{});
  REQUIRE(verdict.has_value());
  REQUIRE_FALSE(verdict->has_value());
  CHECK(verdict->error().message == "unit: the unit does not permit this user to connect");
}

TEST_CASE("a host that is refused before it has spoken learns why, every time", "[fabric][shm]") {
  test::TemporaryDirectory directory;
  const std::string path = directory.path("socket");
  const os::UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(path);
  REQUIRE(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(listener.get(), 64) == 0);
  constexpr int kAttempts = 500;
  std::thread unit([&] {
    const ShmReply reply = no_permission();
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const os::UniqueFd connection(accept(listener.get(), nullptr, nullptr));
      static_cast<void>(send(connection.get(), &reply, sizeof reply, MSG_NOSIGNAL));
    }
  });
  std::set<std::string> reasons;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto made = ShmConnector::start({.path = path}, Time{});
    if (!made) {
      reasons.insert(made.error().message);
      continue;
    }
    std::optional<Result<std::unique_ptr<Bridge>>> verdict;
    while (!verdict) verdict = (*made)->poll(Time{});
    reasons.insert(verdict->has_value() ? "none" : verdict->error().message);
  }
  unit.join();
  CHECK(reasons == std::set<std::string>{path + ": the unit does not permit this user to connect"});
}

TEST_CASE("a unit that hangs up, or says nothing for six seconds, ends the attempt", "[fabric][shm]") {
  FakeUnit unit;
  CHECK_FALSE(unit.connector->poll(Time{}).has_value());
  SECTION("hangs up") {
    unit.connection.reset();
    CHECK_THAT(unit.verdict(), Catch::Contains("during set-up"));
  }
  SECTION("silence") {
    CHECK_FALSE(unit.connector->poll(Time{} + milliseconds(5999)).has_value());
    const auto result = unit.connector->poll(Time{} + milliseconds(6000));
    REQUIRE(result.has_value());
    CHECK_FALSE(result->has_value());
  }
}

}  // namespace splitnic::fabric::bridge_shm_setup_test
