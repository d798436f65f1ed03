// The doorman against strangers, and the limits, delays and hang-ups of a listener.
#include "fabric/bridge/doorman.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <set>
#include <string>
#include <thread>

#include "common/os/passed_descriptors.h"
#include "fabric/bridge/shm_source.h"
#include "tests/unit/common/lingering_socket.h"
#include "tests/unit/fabric/bridge_mappings.h"
#include "tests/unit/fabric/listener_fixtures.h"

namespace splitnic::fabric::doorman_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::answer_to;
using test::bridge_mappings;
using test::call;
using test::hello_bytes;
using test::Polled;
using test::say;

ShmListenOptions small(const std::string& path) {
  ShmListenOptions options;
  options.path = path;
  options.window_bytes = kShmMinBytes;
  return options;
}

/// Page faults of this thread so far.
std::size_t page_faults() {
  rusage usage{};
  REQUIRE(getrusage(RUSAGE_THREAD, &usage) == 0);
  return static_cast<std::size_t>(usage.ru_minflt + usage.ru_majflt);
}

/// A doorman's thread, and the test's as the one that moves frames.
struct Attended {
  explicit Attended(bool refuse_descriptors, bool at_once = true) : options(small(directory.path("socket"))) {
    options.refuse_descriptors = refuse_descriptors;
    auto made = ShmListener::listen(options);
    REQUIRE(made.has_value());
    listener = std::move(*made);
    if (at_once) start();
  }
  void start() {
    auto made = DoormanThread::start(std::move(listener));
    REQUIRE(made.has_value());
    doorman = std::move(*made);
  }
  template <class Condition>
  bool wait_until(Condition condition, Duration limit = seconds(10)) const {
    for (const Time give_up = monotonic_now() + limit; monotonic_now() < give_up;) {
      if (condition()) return true;
      pollfd state{doorman->descriptor(), POLLIN, 0};
      ::poll(&state, 1, 1);
    }
    return condition();
  }
  /// How long an honest host waits for its bridge.
  Duration time_to_attach() {
    const Time start = monotonic_now();
    auto connector = ShmConnector::start({.path = options.path}, start);
    REQUIRE(connector.has_value());
    std::optional<ShmAccepted> accepted;
    REQUIRE(wait_until([&] {
      if (!accepted) accepted = doorman->take();
      return accepted.has_value();
    }));
    std::optional<Result<std::unique_ptr<Bridge>>> host;
    while (!host) host = (*connector)->poll(monotonic_now());
    REQUIRE(host->has_value());
    return monotonic_now() - start;
  }
  test::TemporaryDirectory directory;
  ShmListenOptions options;
  std::unique_ptr<ShmListener> listener;  // until the doorman has it
  std::unique_ptr<DoormanThread> doorman;
};

}  // namespace

TEST_CASE("strangers attach lingering sockets, and an honest host attaches within half a second", "[fabric][shm]") {
  // As on a kernel that can't refuse descriptors. All attacks wait in their queues before the doorman starts: if it
  // closed a connection before its stranger has let go, the last close would be the stranger's.
  Attended unit(false, false);
  const auto hello = hello_bytes();
  const auto garbage = std::vector<std::byte>(300);
  std::vector<os::LingeringSocket> strangers;
  std::vector<os::UniqueFd> callers;
  struct Attack {
    std::span<const std::byte> before;
    std::span<const std::byte> with;
    bool stays;
  };
  const auto whole = std::span<const std::byte>(hello);
  const Attack attacks[] = {
      {{}, whole, true},           // with the hello
      {{}, whole.first(1), true},  // with its first byte
      {whole.first(50), whole.subspan(50), true},
      {whole, whole.first(1), true},  // behind a hello that is answered
      {{}, garbage, true},
      {{}, whole.first(40), false},  // and leaves
      {{}, whole, false},
  };
  for (const auto& [before, with, stays] : attacks) {
    auto caller = call(unit.options.path);
    strangers.emplace_back(30);
    if (!before.empty()) say(caller, before);
    REQUIRE(strangers.back().attach_to(caller.get(), with));
    strangers.back().let_go();
    if (stays) callers.push_back(std::move(caller));
  }
  unit.start();
  // A close that lasts would delay each of them by half a minute; a busy machine does not.
  Duration fastest = unit.time_to_attach();
  for (int i = 0; i < 4 && fastest >= milliseconds(500); ++i) fastest = std::min(fastest, unit.time_to_attach());
  CHECK(fastest < milliseconds(500));
  const auto ended = [&] {
    const auto counters = unit.doorman->report().counters;
    return counters.closed_descriptors + counters.closed_garbage + counters.closed_hung_up;
  };
  CHECK(unit.wait_until([&] { return ended() >= std::size(attacks) - 1; }));
  callers.clear();
  const Time start = monotonic_now();
  unit.doorman.reset();
  CHECK(monotonic_now() - start < seconds(5));
  for (const auto& stranger : strangers) CHECK(stranger.closed_at_last());
}

TEST_CASE("connections that nobody has accepted are closed elsewhere, too", "[fabric][shm]") {
  Polled unit([] {
    ShmListenOptions options;
    options.refuse_descriptors = false;
    return options;
  }());
  const auto caller = call(unit.directory.path("socket"));
  os::LingeringSocket stranger(30);
  REQUIRE(stranger.attach_to(caller.get(), hello_bytes()));
  stranger.let_go();
  const Time start = monotonic_now();
  unit.listener.reset();
  CHECK(monotonic_now() - start < seconds(5));
  CHECK(stranger.closed_at_last());
}

TEST_CASE("a kernel that can refuses descriptors when they are sent", "[fabric][shm]") {
  const os::UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!os::refuse_descriptors(probe.get())) {
    WARN("skipped: this kernel is older than Linux 6.16");
    return;
  }
  Polled unit;
  const auto caller = call(unit.directory.path("socket"));
  const os::LingeringSocket stranger(30);
  CHECK_FALSE(stranger.attach_to(caller.get(), hello_bytes()));
  unit.poll();
  CHECK_FALSE(stranger.attach_to(caller.get(), hello_bytes()));
}

TEST_CASE("a host can attach nothing to its doorbells, nor make the unit wait for one", "[fabric][shm]") {
  Polled unit([] {
    ShmListenOptions options;
    options.refuse_descriptors = false;
    return options;
  }());
  const auto caller = call(unit.directory.path("socket"));
  say(caller, hello_bytes());
  unit.poll();
  auto accepted = unit.listener->take();
  REQUIRE(accepted.has_value());
  ShmReply reply{};
  auto received =
      os::receive_with_descriptors(caller.get(), std::as_writable_bytes(std::span(&reply, 1)), kShmSetupDescriptors, 0);
  REQUIRE(received.bytes == static_cast<ssize_t>(sizeof reply));
  auto& got = received.descriptors;
  REQUIRE(got.size() == kShmSetupDescriptors);
  os::UniqueFd hears = std::move(got[2]);
  const os::UniqueFd rings = std::move(got[3]);

  os::LingeringSocket stranger(30);
  CHECK_FALSE(stranger.attach_to(hears.get(), std::vector<std::byte>(1)));
  CHECK(errno == EPIPE);
  // Waiting for a doorbell would now block: the flag is one of the file that both ends share.
  REQUIRE(fcntl(rings.get(), F_SETFL, 0) == 0);
  CHECK_FALSE(accepted->bridge->take_doorbells());
  const std::uint64_t highest = ~std::uint64_t{0} - 1;
  REQUIRE(write(rings.get(), &highest, sizeof highest) == static_cast<ssize_t>(sizeof highest));
  CHECK(accepted->bridge->take_doorbells());
  CHECK_FALSE(accepted->bridge->take_doorbells());
  // A host that hears none of its doorbells does not make the unit wait either.
  for (int i = 0; i < 2000; ++i) accepted->bridge->ring();
  CHECK(accepted->bridge->link() == LinkState::up);
  hears.reset();
  accepted->bridge->ring();
  CHECK(accepted->bridge->link() == LinkState::down);
}

TEST_CASE("with one place, sixteen hosts get one bridge, and memory is made for no other", "[fabric][shm]") {
  ShmListenOptions options;
  options.limits.places = 1;
  Polled unit(options);
  const std::size_t before = bridge_mappings().count;
  std::vector<os::UniqueFd> callers;
  for (int i = 0; i < 16; ++i) {
    callers.push_back(call(unit.directory.path("socket")));
    say(callers.back(), hello_bytes());
  }
  unit.poll();
  CHECK(bridge_mappings().count == before + 2);
  CHECK(unit.listener->counters().connected == 1);
  CHECK(unit.listener->counters().refused_places == 15);
  CHECK(answer_to(callers[0]) == ShmSetupStatus::ok);
  for (std::size_t i = 1; i < callers.size(); ++i) CHECK(answer_to(callers[i]) == ShmSetupStatus::no_place);
}

TEST_CASE("the unit's option limits both memories, and a host gets no more by asking", "[fabric][shm]") {
  Polled unit;
  CHECK_THAT(unit.refusal({.local_bytes = kShmMinBytes + 1}), Catch::Contains("refuses the requested memory sizes"));
  CHECK_THAT(unit.refusal({.window_bytes = 64U << 20U}), Catch::Contains("refuses the requested memory sizes"));
  CHECK(unit.listener->counters().refused_sizes == 2);
  const auto both = unit.connected();
  CHECK(both.host->local_memory().size() == kShmMinBytes);
  CHECK(both.host->peer_window().size() == kShmMinBytes);
}

TEST_CASE("a user whose hosts come and go waits ever longer, without a refusal, and others do not wait",
          "[fabric][shm]") {
  Polled unit;
  for (int i = 0; i < 10; ++i) static_cast<void>(unit.connected());
  unit.poll();
  CHECK(unit.listener->bridges() == 0);
  for (const Duration pause : {milliseconds(10), milliseconds(20), milliseconds(40)}) {
    CAPTURE(pause.count());
    const std::uint64_t delayed = unit.listener->counters().setup_delayed;
    const auto connector = unit.start();
    unit.poll();
    CHECK(unit.listener->counters().setup_delayed == delayed + 1);
    CHECK(unit.listener->next_deadline() == unit.now + pause);
    unit.now += pause - Duration(1);
    unit.poll();
    CHECK_FALSE(unit.listener->take().has_value());
    unit.now += Duration(1);
    unit.poll();
    CHECK(unit.listener->take().has_value());
    CHECK(connector->poll(unit.now).value().has_value());
    unit.poll();
  }
  // Pauses keep nobody's place, and end with the caller.
  { const auto leaves = unit.start(); }
  unit.poll();
  CHECK(unit.listener->setting_up() == 1);
  unit.now += milliseconds(80);
  unit.poll();
  CHECK(unit.listener->setting_up() == 0);
  CHECK(unit.listener->bridges() == 0);
}

TEST_CASE("a hang-up wakes whoever polls the listener, and the bridge is down", "[fabric][shm]") {
  Polled unit;
  auto both = unit.connected();
  both.host.reset();
  both.connector.reset();
  pollfd state{unit.listener->descriptor(), POLLIN, 0};
  CHECK(::poll(&state, 1, 5000) == 1);
  CHECK(both.unit.bridge->link() == LinkState::up);
  unit.poll();
  CHECK(both.unit.bridge->link() == LinkState::down);
  CHECK(unit.listener->hang_ups() == 1);
  CHECK(::poll(&state, 1, 0) == 0);  // no busy loop until the bridge ends
  CHECK(unit.listener->bridges() == 1);
  both.unit.bridge.reset();
  CHECK(::poll(&state, 1, 0) == 1);
  unit.poll();
  CHECK(unit.listener->bridges() == 0);
}

TEST_CASE("a bridge wakes its owner for doorbells and for the hang-up, also where nobody polls the listener",
          "[fabric][shm]") {
  Polled unit;
  auto both = unit.connected();
  pollfd state{both.unit.bridge->doorbell_descriptor(), POLLIN, 0};
  CHECK(::poll(&state, 1, 0) == 0);
  both.host->ring();
  CHECK(::poll(&state, 1, 0) == 1);
  CHECK(both.unit.bridge->take_doorbells());
  CHECK(::poll(&state, 1, 0) == 0);
  both.host.reset();
  CHECK(::poll(&state, 1, 5000) == 1);
  CHECK_FALSE(both.unit.bridge->take_doorbells());
  CHECK(both.unit.bridge->link() == LinkState::down);
}

TEST_CASE("a host whose bridge the unit ends is told, and keeps the content until it hangs up or a second has passed",
          "[fabric][shm]") {
  Polled unit;
  auto both = unit.connected();
  const auto last_words = test::bytes_of("the last message");
  both.unit.bridge->peer_window().write(64, last_words);
  both.unit.bridge.reset();
  unit.poll();
  pollfd state{both.host->doorbell_descriptor(), POLLIN, 0};
  CHECK(::poll(&state, 1, 0) == 1);
  static_cast<void>(both.host->take_doorbells());
  CHECK(both.host->link() == LinkState::down);
  std::vector<std::byte> read(last_words.size());
  both.host->local_memory().copy_out(64, read);
  CHECK(read == last_words);
  CHECK(unit.listener->bridges() == 1);
  SECTION("it hangs up") {
    both.host.reset();
    unit.poll();
    CHECK(unit.listener->bridges() == 0);
  }
  SECTION("a second passes") {
    unit.settle();
    CHECK(unit.listener->next_deadline() == unit.now + seconds(1) - PrefaultQueue::kDelay);
    unit.now += seconds(1) - PrefaultQueue::kDelay - Duration(1);
    unit.poll();
    CHECK(unit.listener->bridges() == 1);
    unit.now += Duration(1);
    unit.poll();
    CHECK(unit.listener->bridges() == 0);
    // The pages are not the unit's any more: what the host reads is new.
    both.host->local_memory().copy_out(64, read);
    CHECK(read == std::vector<std::byte>(read.size()));
  }
}

TEST_CASE("a killed host that is back before its old bridge has ended waits for the place", "[fabric][shm]") {
  ShmListenOptions options;
  options.limits.places = 1;
  Polled unit(options);
  auto first = unit.connected();
  first.host.reset();
  const auto second = unit.start();
  unit.poll();
  CHECK_FALSE(second->poll(unit.now).has_value());
  first.unit.bridge.reset();
  unit.poll();
  CHECK(unit.listener->take().has_value());
  CHECK(second->poll(unit.now).value().has_value());
  unit.poll();

  // Where the old one does not end, the wait does.
  auto third = unit.connected();
  third.host.reset();
  unit.settle();
  const auto fourth = unit.start();
  unit.poll();
  CHECK(unit.listener->next_deadline() == unit.now + seconds(2));
  unit.now += seconds(2);
  unit.poll();
  const auto verdict = fourth->poll(unit.now);
  REQUIRE(verdict.has_value());
  CHECK_THAT(verdict->error().message, Catch::Contains("as many hosts as it may"));
}

TEST_CASE("a further queue needs the cookie of a session that is there", "[fabric][shm]") {
  ShmListenOptions options;
  options.purposes = {ShmPurpose::session, ShmPurpose::further_queue};
  Polled unit(options);
  auto session = unit.connected({.features = kShmFeatureFurtherQueues | 1U << 7U, .name = "web1"});
  const std::uint64_t cookie = session.connector->cookie();
  CHECK(cookie != 0);
  CHECK(session.unit.cookie == cookie);
  CHECK(session.unit.name == "web1");
  CHECK(session.connector->features() == kShmFeatureFurtherQueues);
  CHECK(session.unit.features == kShmFeatureFurtherQueues);
  const ShmConnectOptions queue{.purpose = ShmPurpose::further_queue, .cookie = cookie};
  const auto further = unit.connected(queue);
  CHECK(further.unit.purpose == ShmPurpose::further_queue);
  CHECK(further.unit.cookie == cookie);
  CHECK_THAT(unit.refusal({.purpose = ShmPurpose::further_queue, .cookie = cookie + 1}),
             Catch::Contains("no such session"));
  CHECK(unit.listener->counters().refused_session == 1);
  session.host.reset();
  session.unit.bridge.reset();
  unit.poll();
  CHECK_THAT(unit.refusal(queue), Catch::Contains("no such session"));
}

TEST_CASE("a session gets no memory for more further queues than it may have", "[fabric][shm]") {
  ShmListenOptions options;
  options.purposes = {ShmPurpose::session, ShmPurpose::further_queue};
  options.further_queues = 2;
  Polled unit(options);
  const auto session = unit.connected();
  const auto other_session = unit.connected();
  const auto queue_of = [](const auto& its_session) {
    return ShmConnectOptions{.purpose = ShmPurpose::further_queue, .cookie = its_session.connector->cookie()};
  };
  auto first = unit.connected(queue_of(session));
  const auto second = unit.connected(queue_of(session));
  CHECK_THAT(unit.refusal(queue_of(session)), Catch::Contains("as many queues"));
  CHECK(unit.listener->counters().refused_user_limit == 1);
  CHECK(unit.listener->bridges() == 4);
  const auto of_other_session = unit.connected(queue_of(other_session));

  // A queue that comes back waits for its old bridge to end.
  first.host.reset();
  unit.poll();
  const auto again = unit.start(queue_of(session));
  unit.poll();
  CHECK(unit.listener->setting_up() == 1);
  first.unit.bridge.reset();
  unit.poll();
  CHECK(again->poll(unit.now).has_value());
  CHECK(unit.listener->counters().refused_user_limit == 1);
}

TEST_CASE("purposes that are not served are refused, and a unit without further queues has not the feature",
          "[fabric][shm]") {
  Polled unit;
  CHECK_THAT(unit.refusal({.purpose = ShmPurpose::endnode}), Catch::Contains("this kind of connection"));
  CHECK_THAT(unit.refusal({.purpose = ShmPurpose::further_queue, .cookie = 1}),
             Catch::Contains("this kind of connection"));
  CHECK(unit.listener->counters().refused_purpose == 2);
  CHECK(unit.connected({.features = kShmFeatureFurtherQueues}).connector->features() == 0);
}

TEST_CASE("a doorman hands over bridges, tells of hang-ups, and is quiet otherwise", "[fabric][shm]") {
  Attended unit(true);
  auto connector = ShmConnector::start({.path = unit.options.path}, monotonic_now());
  REQUIRE(connector.has_value());
  std::optional<ShmAccepted> accepted;
  CHECK(unit.wait_until([&] { return (accepted = unit.doorman->take()).has_value(); }));
  CHECK(accepted->uid == getuid());
  CHECK(accepted->bridge->peer().value().pid == getpid());
  std::optional<Result<std::unique_ptr<Bridge>>> host;
  while (!host) host = (*connector)->poll(monotonic_now());
  CHECK_FALSE(unit.doorman->take().has_value());
  CHECK_FALSE(unit.doorman->has_news());
  pollfd state{unit.doorman->descriptor(), POLLIN, 0};
  CHECK(::poll(&state, 1, 0) == 0);
  host.reset();
  CHECK(::poll(&state, 1, 5000) == 1);
  CHECK(unit.doorman->has_news());
  CHECK_FALSE(unit.doorman->take().has_value());
  CHECK(accepted->bridge->link() == LinkState::down);
  CHECK(unit.doorman->report().counters.connected == 1);
  // The bridge may outlive the doorman.
  unit.doorman.reset();
  accepted->bridge.reset();
}

TEST_CASE("refused strangers wake the owner now and then, not each time", "[fabric][shm]") {
  Attended unit(true);
  constexpr std::uint64_t kStrangers = 40;
  std::uint64_t woken = 0;
  const Time start = monotonic_now();
  for (std::uint64_t i = 1; i <= kStrangers; ++i) {
    say(call(unit.options.path), std::vector<std::byte>(200));
    REQUIRE(unit.wait_until([&] { return unit.doorman->report().counters.closed_garbage == i; }));
    if (!unit.doorman->has_news()) continue;
    ++woken;
    CHECK_FALSE(unit.doorman->take().has_value());
  }
  const auto intervals = static_cast<std::uint64_t>((monotonic_now() - start) / milliseconds(100));
  CHECK(woken >= 1);
  CHECK(woken <= intervals + 1);
}

TEST_CASE("a host notices a new socket without waiting for its next attempt", "[fabric][shm]") {
  const test::TemporaryDirectory directory;
  struct Ignored final : Notices {
    void notice(const std::string&) override {}
  } ignored;
  const std::string folder = directory.path("run");
  const bool with_folder = GENERATE(true, false);
  const bool stale = with_folder && GENERATE(false, true);
  CAPTURE(with_folder, stale);
  if (with_folder) REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  const std::string path = folder + "/socket";
  if (stale) {
    const os::UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ShmConnectSource source({.path = path}, ignored);
  // The clock stands still, so no attempt is due by time, except those that follow an event.
  const Time now{};
  for (int i = 0; i < 3; ++i) REQUIRE(source.poll(now) == nullptr);
  REQUIRE(source.next_deadline() > now);
  std::vector<int> descriptors;
  source.collect_descriptors(descriptors);
  REQUIRE(descriptors.size() == 1);
  pollfd state{descriptors[0], POLLIN, 0};
  CHECK(::poll(&state, 1, 0) == 0);
  if (!with_folder) REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  auto listener = ShmListener::listen(small(path));
  REQUIRE(listener.has_value());
  CHECK(::poll(&state, 1, 0) == 1);
  std::shared_ptr<Bridge> bridge;
  for (int turn = 0; turn < 10 && !bridge; ++turn) {
    bridge = source.poll(now);
    (*listener)->poll(now);
  }
  CHECK(bridge != nullptr);
  descriptors.clear();
  source.collect_descriptors(descriptors);
  CHECK(descriptors.empty());  // events of the folder do not wake a host that has its bridge
  listener->reset();
  rmdir(folder.c_str());
}

TEST_CASE("the memory of a bridge is soon in place for the thread that took it", "[fabric][shm]") {
  Attended unit(true);
  const auto connector = ShmConnector::start({.path = unit.options.path}, monotonic_now());
  REQUIRE(connector.has_value());
  std::optional<ShmAccepted> accepted;
  REQUIRE(unit.wait_until([&] { return (accepted = unit.doorman->take()).has_value(); }));
  constexpr std::size_t kPageBytes = 4096;
  const PeerMemory memory = accepted->bridge->local_memory();
  const std::size_t pages = memory.size() / kPageBytes;
  REQUIRE(pages == kShmMinBytes / kPageBytes);
  CHECK(unit.wait_until([] {
    const auto mappings = bridge_mappings();
    return mappings.count == 2 && mappings.present == mappings.bytes;
  }));
  std::array<std::byte, 1> octet{};
  const std::size_t before = page_faults();
  for (std::size_t page = 0; page < pages; ++page) {
    memory.copy_out(page * kPageBytes, octet);
    accepted->bridge->peer_window().write(page * kPageBytes, octet);
  }
#ifdef __SANITIZE_THREAD__
  const std::size_t of_sanitizer = 4 * pages;  // ThreadSanitizer keeps books of what is touched
#else
  const std::size_t of_sanitizer = 0;
#endif
  CHECK(page_faults() - before < of_sanitizer + pages / 2);
}

namespace {

/// A doorman that has refused one connection for each cause.
struct EveryCause final : Doorman {
  EveryCause() {
    using Counters = ShmListenerCounters;
    boost::mp11::mp_for_each<boost::describe::describe_members<Counters, boost::describe::mod_public>>(
        [this](auto member) { counters.*member.pointer = 1; });
  }
  [[nodiscard]] bool has_news() const override { return true; }
  [[nodiscard]] std::optional<ShmAccepted> take() override { return std::nullopt; }
  [[nodiscard]] int descriptor() const override { return -1; }
  [[nodiscard]] Report report() const override { return {counters, "no memory"}; }
  ShmListenerCounters counters;
};

struct Sources final : Notices {
  void notice(const std::string& line) override { FAIL(line); }
  void recurring_notice_from(std::string_view source, const std::string& /*line*/) override {
    ++lines;
    sources.emplace(source);
  }
  std::size_t lines = 0;
  std::set<std::string> sources;
};

}  // namespace

TEST_CASE("each cause for which connections are refused is a source of notices of its own", "[fabric][shm]") {
  Sources notices;
  ShmListenSource source(std::make_unique<EveryCause>(), notices);
  CHECK(source.poll(Time{}) == nullptr);
  CHECK(notices.lines == 11);
  CHECK(notices.sources.size() == notices.lines);
}

}  // namespace splitnic::fabric::doorman_test
