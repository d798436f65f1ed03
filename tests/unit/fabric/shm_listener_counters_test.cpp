// Every counter of a listener is raised on purpose; and who must go when too many connections wait.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <map>

#include "common/os/passed_descriptors.h"
#include "tests/unit/fabric/listener_fixtures.h"

namespace splitnic::fabric::shm_listener_counters_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::call;
using test::call_as;
using test::hello_bytes;
using test::kOtherUser;
using test::may_change_user;
using test::Polled;
using test::say;

constexpr unsigned kTimes = 3;

/// While it lives, this process can open only so many descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t spare) {
    constexpr rlim_t kLimit = 256;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit few{kLimit, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (;;) {
      os::UniqueFd one(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one) break;
      taken_.push_back(std::move(one));
    }
    REQUIRE(taken_.size() >= spare);
    taken_.resize(taken_.size() - spare);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<os::UniqueFd> taken_;
};

std::string path_of(const Polled& unit) { return unit.directory.path("socket"); }

/// Strangers that say these bytes and wait.
std::vector<os::UniqueFd> strangers(Polled& unit, std::span<const std::byte> bytes) {
  std::vector<os::UniqueFd> callers;
  for (unsigned time = 0; time < kTimes; ++time) {
    callers.push_back(call(path_of(unit)));
    if (!bytes.empty()) say(callers.back(), bytes);
  }
  unit.poll();
  return callers;
}

void greet(Polled& unit, const ShmHelloFields& fields = {}) { static_cast<void>(strangers(unit, hello_bytes(fields))); }

struct Event {
  void (*act)(Polled& unit);
  void (*set)(ShmListenOptions& options) = [](ShmListenOptions&) {};
  std::uint64_t hosts = 0;  ///< that it connects on its way
  bool by_another_user = false;
};
using Table = std::map<std::string, Event>;

void allow_other_user(ShmListenOptions& options) { options.allow_uids = {kOtherUser}; }

/// Each is to raise its counter by three, and no other, except for the hosts that it needs.
const Table kTable{
    {"connected", {[](Polled& unit) { greet(unit); }}},
    {"refused_credentials",
     {[](Polled& unit) {
        for (unsigned time = 0; time < kTimes; ++time) {
          static_cast<void>(call_as(kOtherUser, path_of(unit)));
          unit.poll();
        }
      },
      [](ShmListenOptions& options) { options.allow_uids = {kOtherUser + 1}; }, 0, true}},
    {"refused_version", {[](Polled& unit) {
       ShmHello hello = encode_shm_hello({});
       hello.version = kShmSetupVersion + 1;
       static_cast<void>(strangers(unit, std::as_bytes(std::span(&hello, 1))));
     }}},
    {"refused_sizes", {[](Polled& unit) { greet(unit, {.local_bytes = 1}); }}},
    {"refused_purpose", {[](Polled& unit) { greet(unit, {.purpose = ShmPurpose::endnode}); }}},
    {"refused_session",
     {[](Polled& unit) { greet(unit, {.purpose = ShmPurpose::further_queue, .cookie = 1}); },
      [](ShmListenOptions& options) { options.purposes.push_back(ShmPurpose::further_queue); }}},
    {"refused_places",
     {[](Polled& unit) {
        const auto first = unit.connected();
        greet(unit);
      },
      [](ShmListenOptions& options) { options.limits.places = options.limits.places_per_user = 1; }, 1}},
    {"refused_user_limit",
     {[](Polled& unit) {
        std::vector<os::UniqueFd> callers;
        for (unsigned time = 0; time < 1 + kTimes; ++time) {
          callers.push_back(call_as(kOtherUser, path_of(unit)));
          say(callers.back(), hello_bytes());
        }
        unit.poll();
      },
      [](ShmListenOptions& options) {
        allow_other_user(options);
        options.limits.places_per_user = 1;
      },
      1, true}},
    {"refused_resources", {[](Polled& unit) {
       for (unsigned time = 0; time < kTimes; ++time) {
         const auto caller = call(path_of(unit));
         say(caller, hello_bytes());
         const FewDescriptors few(2);  // for the connection and one of the memories
         unit.poll();
       }
       CHECK_FALSE(unit.listener->last_error().empty());
     }}},
    {"closed_garbage",
     {[](Polled& unit) { static_cast<void>(strangers(unit, std::vector<std::byte>(kShmHelloBytes))); }}},
    {"closed_descriptors",
     {[](Polled& unit) {
        for (unsigned time = 0; time < kTimes; ++time) {
          const auto caller = call(path_of(unit));
          const auto hello = hello_bytes();
          const int own = caller.get();
          REQUIRE(os::send_with_descriptors(own, hello, std::span(&own, 1), 0) > 0);
          unit.poll();
        }
      },
      [](ShmListenOptions& options) { options.refuse_descriptors = false; }}},
    {"closed_silent", {[](Polled& unit) {
       const auto callers = strangers(unit, {});
       unit.now += seconds(2);
       unit.poll();
     }}},
    {"closed_excess",
     {[](Polled& unit) {
        const auto one = call(path_of(unit));
        static_cast<void>(strangers(unit, {}));
      },
      [](ShmListenOptions& options) { options.max_setting_up = 1; }}},
    {"closed_hung_up", {[](Polled& unit) {
       static_cast<void>(strangers(unit, {}));
       unit.poll();
     }}},
    {"accept_paused", {[](Polled& unit) {
       const auto caller = call(path_of(unit));
       const FewDescriptors none(0);
       for (unsigned time = 0; time < kTimes; ++time) {
         unit.poll();
         unit.now += milliseconds(100);
       }
     }}},
    {"setup_delayed",
     {[](Polled& unit) {
        static_cast<void>(unit.connected());
        unit.poll();
        const auto callers = strangers(unit, hello_bytes());
      },
      [](ShmListenOptions& options) { options.limits.free_ends = 1; }, 1}},
};

std::map<std::string, std::uint64_t> values(const ShmListenerCounters& counters) {
  std::map<std::string, std::uint64_t> all;
  boost::mp11::mp_for_each<boost::describe::describe_members<ShmListenerCounters, boost::describe::mod_public>>(
      [&](auto member) { all[member.name] = counters.*member.pointer; });
  return all;
}

bool is_hung_up(const os::UniqueFd& caller) {
  pollfd state{caller.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&state, 1, 5000) == 1 && recv(caller.get(), &byte, 1, MSG_DONTWAIT) == 0;
}
bool is_open(const os::UniqueFd& caller) {
  pollfd state{caller.get(), POLLIN, 0};
  return ::poll(&state, 1, 0) == 0;
}

}  // namespace

TEST_CASE("every counter of a listener has an event that raises it, and no other", "[fabric][shm][counters]") {
  const auto names = values(ShmListenerCounters{});
  STATIC_REQUIRE(sizeof(ShmListenerCounters) % sizeof(std::uint64_t) == 0);
  REQUIRE(names.size() == sizeof(ShmListenerCounters) / sizeof(std::uint64_t));
  REQUIRE(std::ranges::equal(
      kTable, names, {}, [](const auto& each) { return each.first; }, [](const auto& each) { return each.first; }));
  for (const auto& [name, event] : kTable) {
    INFO(name);
    if (event.by_another_user && !may_change_user()) {
      WARN("skipped: " << name << ": only root can connect as somebody else");
      continue;
    }
    ShmListenOptions options;
    event.set(options);
    Polled unit(options);
    event.act(unit);
    auto expected = names;
    expected["connected"] = event.hosts;
    expected[name] += kTimes;
    CHECK(values(unit.listener->counters()) == expected);
  }
}

TEST_CASE("a listener without descriptors accepts later", "[fabric][shm]") {
  Polled unit;
  const auto caller = call(path_of(unit));
  say(caller, hello_bytes());
  {
    const FewDescriptors none(0);
    unit.poll();
    CHECK(unit.listener->counters().accept_paused == 1);
    CHECK(unit.listener->next_deadline() == unit.now + milliseconds(100));
    pollfd state{unit.listener->descriptor(), POLLIN, 0};
    CHECK(::poll(&state, 1, 0) == 0);  // or the doorman would not sleep
  }
  unit.now += milliseconds(100);
  unit.poll();
  CHECK(test::answer_to(caller) == ShmSetupStatus::ok);
}

TEST_CASE("a host that the unit had no memory for leaves its place to the next one", "[fabric][shm]") {
  ShmListenOptions options;
  options.limits.places = options.limits.places_per_user = 1;
  Polled unit(options);
  const auto caller = call(path_of(unit));
  say(caller, hello_bytes());
  {
    const FewDescriptors few(2);
    unit.poll();
  }
  CHECK(test::answer_to(caller) == ShmSetupStatus::no_resources);
  CHECK(unit.connected().host != nullptr);
}

TEST_CASE("one user's memory has a limit that neither root nor another user meets", "[fabric][shm][privileged]") {
  if (!may_change_user()) {
    WARN("skipped: only root can connect as somebody else");
    return;
  }
  ShmListenOptions options;
  options.allow_uids = {kOtherUser, kOtherUser + 1};
  options.limits.bytes_per_user = 2 * 2 * kShmMinBytes;
  Polled unit(options);
  std::vector<os::UniqueFd> callers;  // a host that closes its own hangs up
  const auto answer = [&](uid_t user) {
    callers.push_back(call_as(user, path_of(unit)));
    say(callers.back(), hello_bytes());
    unit.poll();
    return test::answer_to(callers.back());
  };
  for (const uid_t user : {kOtherUser, kOtherUser, kOtherUser + 1, uid_t{0}, uid_t{0}, uid_t{0}}) {
    CHECK(answer(user) == ShmSetupStatus::ok);
  }
  CHECK(answer(kOtherUser) == ShmSetupStatus::user_limit);
  CHECK(answer(kOtherUser + 1) == ShmSetupStatus::ok);
  CHECK(unit.listener->counters().refused_user_limit == 1);
}

TEST_CASE("when too many connections wait, the oldest one of the user who has the most is closed",
          "[fabric][shm][privileged]") {
  if (!may_change_user()) {
    WARN("skipped: only root can connect as somebody else");
    return;
  }
  const bool own_has_most = GENERATE(false, true);
  CAPTURE(own_has_most);
  ShmListenOptions options;
  allow_other_user(options);
  options.max_setting_up = 5;
  Polled unit(options);
  const auto caller = [&](bool own) { return own ? call(path_of(unit)) : call_as(kOtherUser, path_of(unit)); };
  std::vector<os::UniqueFd> few;
  std::vector<os::UniqueFd> most;
  few.push_back(caller(!own_has_most));  // the oldest of all
  for (int i = 0; i < 4; ++i) most.push_back(caller(own_has_most));
  unit.poll();
  REQUIRE(unit.listener->setting_up() == 5);
  few.push_back(caller(!own_has_most));
  unit.poll();
  CHECK(is_hung_up(most[0]));
  CHECK(unit.listener->counters().closed_excess == 1);
  CHECK(unit.listener->setting_up() == 5);
  for (const auto* const open : {few.data(), &few[1], &most[1], &most[2], &most[3]}) CHECK(is_open(*open));
}

TEST_CASE("a host that its user saw leave before the listener did makes no later caller wait", "[fabric][shm]") {
  ShmListenOptions options;
  options.limits.places = options.limits.places_per_user = 1;
  options.max_setting_up = options.max_setting_up_per_user = 100;
  Polled unit(options);
  auto leaving = unit.connected();
  // The listener hears of 64 things at once, and of the hang-up after these.
  std::vector<os::UniqueFd> callers;
  for (int i = 0; i < 70; ++i) {
    callers.push_back(call(path_of(unit)));
    unit.poll();
  }
  const auto hello = hello_bytes();
  for (const os::UniqueFd& caller : callers) say(caller, std::span(hello).first(1));
  leaving.host.reset();
  leaving.connector.reset();
  CHECK_FALSE(leaving.unit.bridge->take_doorbells());
  REQUIRE(leaving.unit.bridge->link() == LinkState::down);
  leaving.unit.bridge.reset();
  unit.listener->poll(unit.now);
  REQUIRE(unit.listener->bridges() == 0);
  REQUIRE(unit.listener->hang_ups() == 0);
  const auto next = unit.connected();
  CHECK_THAT(unit.refusal(), Catch::Contains("serves as many hosts as it may"));
}

TEST_CASE("one user has sixteen connections without a bridge, and one more closes its own oldest", "[fabric][shm]") {
  ShmListenOptions options;
  allow_other_user(options);
  Polled unit(options);
  const auto of_another = may_change_user() ? call_as(kOtherUser, path_of(unit)) : os::UniqueFd();
  std::vector<os::UniqueFd> callers;
  for (int i = 0; i < 17; ++i) {
    callers.push_back(call(path_of(unit)));
    unit.poll();
  }
  CHECK(unit.listener->counters().closed_excess == 1);
  CHECK(unit.listener->setting_up() == (of_another ? 17 : 16));
  CHECK(is_hung_up(callers[0]));
  CHECK(std::all_of(callers.begin() + 1, callers.end(), is_open));
  if (of_another) CHECK(is_open(of_another));
}

}  // namespace splitnic::fabric::shm_listener_counters_test
