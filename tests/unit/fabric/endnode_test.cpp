#include "fabric/endnode/endnode.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "common/os/errno_text.h"
#include "common/os/unix_address.h"
#include "fabric/endnode/knock.h"
#include "tests/unit/common/lingering_socket.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/other_process.h"

namespace splitnic::fabric::test::endnode_test {
namespace {

using testing::KilledAtTheEnd;
using testing::OtherProcess;

constexpr Duration kDeadline = std::chrono::seconds(10);

struct TestEndnode {
  explicit TestEndnode(const std::string& directory, std::uint64_t seed, std::size_t max_peers = 16) : random(seed) {
    auto opened = Endnode::open({.directory = directory, .window_bytes = kShmMinBytes, .max_peers = max_peers}, random);
    REQUIRE(opened);
    endnode = std::move(*opened);
  }
  LocalId id() const { return endnode->local_id(); }
  void poll() {
    while (auto change = endnode->poll(monotonic_now())) changes.push_back(std::move(*change));
    // As users of a bridge do: this is how they see a hang-up.
    for (const auto& change : changes) {
      if (change.bridge) static_cast<void>(change.bridge->take_doorbells());
    }
  }
  /// The bridges that were handed out.
  std::size_t bridges() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(changes, [](const EndnodeChange& change) { return change.bridge != nullptr; }));
  }
  std::size_t deaths() const { return changes.size() - bridges(); }

  SeededRandom random;
  std::unique_ptr<Endnode> endnode;
  std::vector<EndnodeChange> changes;
};

/// Polls these endnodes, when they ask for it alone, until it is done.
void run(std::vector<TestEndnode*> ends, const std::function<bool()>& done) {
  const Time give_up = monotonic_now() + kDeadline;
  for (;;) {
    for (TestEndnode* end : ends) end->poll();
    if (done()) return;
    const Time now = monotonic_now();
    REQUIRE(now < give_up);
    std::vector<pollfd> waits;
    Time next = give_up;
    for (TestEndnode* end : ends) {
      waits.push_back({end->endnode->descriptor(), POLLIN, 0});
      next = std::min(next, end->endnode->next_deadline());
    }
    for (TestEndnode* end : ends) {
      for (const auto& change : end->changes) {
        if (change.bridge && change.bridge->link() == LinkState::up) {
          waits.push_back({change.bridge->doorbell_descriptor(), POLLIN, 0});
        }
      }
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(std::max(next - now, Duration(0)));
    static_cast<void>(::poll(waits.data(), waits.size(), static_cast<int>(left.count()) + 1));
  }
}

std::set<std::string> files_of(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

/// A process with an endnode that serves whoever calls or knocks. Says its local ID.
OtherProcess serving(const std::string& directory, bool with_child = false) {
  return OtherProcess([directory, with_child](OtherProcess::Pipe& pipe) {
    SystemRandom random;
    auto endnode = Endnode::open({.directory = directory, .window_bytes = kShmMinBytes}, random);
    if (!endnode) ::_exit(1);
    std::vector<std::shared_ptr<Bridge>> bridges;
    pipe.say_number((*endnode)->local_id().value);
    bool forked = false;
    for (;;) {
      while (auto change = (*endnode)->poll(monotonic_now())) {
        bridges.push_back(change->bridge);
        if (!with_child || forked) continue;
        forked = true;
        const pid_t child = ::fork();  // it has a copy of every descriptor
        if (child == 0) {
          for (;;) ::pause();
        }
        pipe.say_number(child);
      }
      pollfd wait{(*endnode)->descriptor(), POLLIN, 0};
      static_cast<void>(::poll(&wait, 1, 5));
    }
  });
}

constexpr std::int64_t kConnected = 1;
constexpr std::int64_t kGivenBack = 2;

/// A process that takes the ID and calls the endnode whose ID it reads from `commands`; then reads again, and gives its
/// ID back, but keeps its bridge. Says each step.
OtherProcess calling_as(LocalId id, const std::string& directory, int commands) {
  return OtherProcess([id, directory, commands](OtherProcess::Pipe& pipe) {
    const auto read_id = [commands] {
      std::uint16_t value = 0;
      if (::read(commands, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) ::_exit(1);
      return value;
    };
    const std::string path = fmt::format("{}/{}", directory, read_id());
    auto ids = LocalIds::open(directory);
    if (!ids || !(*ids)->take(id)) ::_exit(1);
    auto call = ShmConnector::start({.path = path, .purpose = ShmPurpose::endnode, .name = fmt::format("{}", id.value)},
                                    monotonic_now());
    if (!call) ::_exit(1);
    auto outcome = (*call)->poll(monotonic_now());
    for (; !outcome; outcome = (*call)->poll(monotonic_now())) {
      pollfd wait{(*call)->descriptor(), POLLIN, 0};
      static_cast<void>(::poll(&wait, 1, 5));
    }
    pipe.say_number(*outcome ? kConnected : 0);
    static_cast<void>(read_id());
    (*ids)->give_back(id);
    pipe.say_number(kGivenBack);
    for (;;) ::pause();
  });
}

}  // namespace

TEST_CASE("two endnodes make one bridge, whichever of them wants it, or both at once", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  for (const auto& [first_wants, second_wants] : {std::pair{true, false}, {false, true}, {true, true}}) {
    CAPTURE(first_wants, second_wants);
    TestEndnode first(directory.path(), 1);
    TestEndnode second(directory.path(), 2);
    REQUIRE(first.id() != second.id());
    if (first_wants) REQUIRE(first.endnode->reach(second.id(), monotonic_now()));
    if (second_wants) REQUIRE(second.endnode->reach(first.id(), monotonic_now()));
    run({&first, &second}, [&] { return first.bridges() == 1 && second.bridges() == 1; });
    CHECK(first.changes.size() == 1);
    CHECK(second.changes.size() == 1);
    CHECK(first.changes[0].peer == second.id());
    CHECK(second.changes[0].peer == first.id());
    CHECK(first.endnode->has_bridge(second.id()));
    // What one end writes is in the other one's memory.
    first.changes[0].bridge->write_scratchpad(3, 77);
    CHECK(second.changes[0].bridge->read_scratchpad(3) == 77);
    CHECK(first.endnode->counters().bridges_made == 1);
    CHECK(second.endnode->counters().refused_bridges == 0);
    REQUIRE(first.endnode->reach(second.id(), monotonic_now()));  // there is one
    CHECK(first.endnode->next_deadline() == kNever);
  }
  CHECK(files_of(directory.path()) == std::set<std::string>{"local-ids"});
}

TEST_CASE("an endnode that is not there yet is reached when it comes", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  TestEndnode first(directory.path(), 1);
  LocalId later{};
  {
    const TestEndnode second(directory.path(), 2);
    later = second.id();
  }
  REQUIRE(first.endnode->reach(later, monotonic_now()));
  first.poll();
  CHECK(first.changes.empty());
  CHECK(first.endnode->next_deadline() != kNever);
  TestEndnode second(directory.path(), 2);
  REQUIRE(second.id() == later);
  run({&first, &second}, [&] { return first.bridges() == 1 && second.bridges() == 1; });
}

TEST_CASE("an end that has given up its bridge and wants one again gets a new one", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  TestEndnode first(directory.path(), 1);
  TestEndnode second(directory.path(), 2);
  REQUIRE(first.endnode->reach(second.id(), monotonic_now()));
  run({&first, &second}, [&] { return first.bridges() == 1 && second.bridges() == 1; });
  // Each of them: one of them calls, and one of them knocks.
  const bool is_first = GENERATE(true, false);
  const bool forgets = GENERATE(true, false);
  CAPTURE(is_first, forgets);
  TestEndnode& one = is_first ? first : second;
  TestEndnode& other = is_first ? second : first;
  one.changes.clear();
  if (forgets) one.endnode->forget(other.id());
  CHECK_FALSE(one.endnode->has_bridge(other.id()));
  REQUIRE(one.endnode->reach(other.id(), monotonic_now()));
  run({&first, &second}, [&] { return one.bridges() == 1 && other.bridges() == 2; });
  CHECK(other.deaths() == 1);
  CHECK_FALSE(other.changes[1].bridge);  // before the new one
}

TEST_CASE("the death of a process that held an ID before does not end the bridge to the one that holds it now",
          "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  std::array<std::array<int, 2>, 2> commands{};
  for (auto& ends : commands) REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  OtherProcess before = calling_as(LocalId{1}, directory.path(), commands[0][0]);
  OtherProcess now = calling_as(LocalId{1}, directory.path(), commands[1][0]);
  TestEndnode unit(directory.path(), 1);
  REQUIRE(unit.id() > LocalId{1});
  const auto tell = [&](std::size_t process) {
    const std::uint16_t id = unit.id().value;
    REQUIRE(::write(commands[process][1], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
  };
  tell(0);
  REQUIRE(before.number() == kConnected);
  run({&unit}, [&] { return unit.bridges() == 1; });
  tell(0);
  REQUIRE(before.number() == kGivenBack);
  tell(1);
  REQUIRE(now.number() == kConnected);
  before.kill();  // the endnode learns of the new bridge and of this death together
  run({&unit}, [&] { return unit.bridges() == 2; });
  unit.poll();
  CHECK(unit.deaths() == 1);
  CHECK(unit.endnode->has_bridge(LocalId{1}));
  for (const auto& ends : commands) {
    for (const int end : ends) ::close(end);
  }
}

TEST_CASE("a wish that is forgotten is not tried any more", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  TestEndnode first(directory.path(), 1);
  REQUIRE(
      first.endnode->reach(LocalId{first.id() == LocalId{5} ? std::uint16_t{6} : std::uint16_t{5}}, monotonic_now()));
  CHECK(first.endnode->next_deadline() != kNever);
  first.endnode->forget(LocalId{5});
  first.endnode->forget(LocalId{6});
  CHECK(first.endnode->next_deadline() == kNever);
}

TEST_CASE("the death of a peer is seen although a child holds its sockets", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  OtherProcess other = serving(directory.path(), true);
  const LocalId peer{static_cast<std::uint16_t>(other.number())};
  TestEndnode first(directory.path(), 1);
  REQUIRE(first.endnode->reach(peer, monotonic_now()));
  run({&first}, [&] { return first.bridges() == 1; });
  const KilledAtTheEnd child(static_cast<pid_t>(other.number()));
  other.kill();
  run({&first}, [&] { return first.deaths() == 1; });
  CHECK(first.endnode->counters().peers_died == 1);
  CHECK_FALSE(first.endnode->has_bridge(peer));
  CHECK_FALSE(first.endnode->ids()->holder(peer));
  // The next endnode removes what was left.
  CHECK(files_of(directory.path()).contains(fmt::format("{}", peer.value)));
  const TestEndnode second(directory.path(), 2);
  CHECK_FALSE(files_of(directory.path()).contains(fmt::format("{}", peer.value)));
  CHECK_FALSE(files_of(directory.path()).contains(fmt::format("{}.knock", peer.value)));
}

TEST_CASE("each of many peers has its own bridge, and its own death", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  std::vector<std::unique_ptr<OtherProcess>> others;
  std::vector<LocalId> peers;
  for (int count = 0; count < 4; ++count) {
    others.emplace_back(new OtherProcess(serving(directory.path())));
    peers.push_back(LocalId{static_cast<std::uint16_t>(others.back()->number())});
  }
  TestEndnode first(directory.path(), 1);
  for (const LocalId peer : peers) REQUIRE(first.endnode->reach(peer, monotonic_now()));
  run({&first}, [&] { return first.bridges() == 4; });
  others[2]->kill();
  run({&first}, [&] { return first.deaths() == 1; });
  CHECK(first.changes.back().peer == peers[2]);
  for (const std::size_t alive : {0U, 1U, 3U}) CHECK(first.endnode->has_bridge(peers[alive]));
}

TEST_CASE("a caller that does not hold the ID that it goes by is refused", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  OtherProcess other = serving(directory.path());  // holds an ID that is not ours
  const LocalId foreign{static_cast<std::uint16_t>(other.number())};
  TestEndnode unit(directory.path(), 1);
  const LocalId higher{static_cast<std::uint16_t>(unit.id().value + 1)};
  std::uint64_t refused = 0;
  for (const std::string& name :
       {fmt::format("{}", foreign.value), fmt::format("{}", unit.id().value), fmt::format("{}", higher.value),
        std::string("0"), std::string(""), std::string("17.knock"), std::string("65535"), std::string("17x")}) {
    CAPTURE(name);
    auto call = ShmConnector::start(
        {.path = fmt::format("{}/{}", directory.path(), unit.id().value), .purpose = ShmPurpose::endnode, .name = name},
        monotonic_now());
    REQUIRE(call);
    ++refused;
    run({&unit}, [&] { return unit.endnode->counters().refused_bridges == refused; });
  }
  CHECK(unit.changes.empty());
}

TEST_CASE("an endnode calls the higher ones alone", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  TestEndnode one(directory.path(), 1);
  TestEndnode two(directory.path(), 2);
  auto& lower = one.id() < two.id() ? one : two;
  auto& higher = one.id() < two.id() ? two : one;
  // A call in the higher one's name, by the process that holds its ID.
  auto call = ShmConnector::start({.path = fmt::format("{}/{}", directory.path(), lower.id().value),
                                   .purpose = ShmPurpose::endnode,
                                   .name = fmt::format("{}", higher.id().value)},
                                  monotonic_now());
  REQUIRE(call);
  run({&lower}, [&] { return lower.endnode->counters().refused_bridges == 1; });
  CHECK(lower.changes.empty());
}

TEST_CASE("a peer that answers a call with a lingering socket does not stop the endnode that calls",
          "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  TestEndnode one(directory.path(), 1);
  TestEndnode two(directory.path(), 2);
  auto& lower = one.id() < two.id() ? one : two;
  const LocalId hostile = std::max(one.id(), two.id());
  const std::string path = fmt::format("{}/{}", directory.path(), hostile.value);
  REQUIRE(::unlink(path.c_str()) == 0);
  const os::UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const os::UnixAddress address(path);
  REQUIRE(::bind(listener.get(), address.get(), os::UnixAddress::size()) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(lower.endnode->reach(hostile, monotonic_now()));
  os::UniqueFd called(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(called);
  os::LingeringSocket stranger(30);
  REQUIRE(stranger.attach_to(called.get(), std::vector<std::byte>(64)));
  stranger.let_go();
  called.reset();
  const Time start = monotonic_now();
  lower.poll();
  CHECK(monotonic_now() - start < kDeadline);
  CHECK(stranger.closed_at_last());
}

TEST_CASE("a knock that is malformed or leads nowhere is counted, nothing else", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  TestEndnode unit(directory.path(), 1);
  const os::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const os::UnixAddress address(fmt::format("{}/{}.knock", directory.path(), unit.id().value));
  const auto send = [&](const KnockMessage& message, std::size_t bytes) {
    REQUIRE(::sendto(socket.get(), &message, bytes, 0, address.get(), os::UnixAddress::size()) ==
            static_cast<ssize_t>(bytes));
  };
  KnockMessage right{};
  right.magic = kKnockMagic;
  right.version = kKnockVersion;
  right.from = unit.id().value == kMaxLocalId ? 1 : kMaxLocalId;  // nobody holds it
  send(right, sizeof right);
  send(right, sizeof right - 1);
  send(right, 0);
  KnockMessage wrong = right;
  wrong.magic = kKnockMagic + 1;
  send(wrong, sizeof wrong);
  wrong = right;
  wrong.version = kKnockVersion + 1;
  send(wrong, sizeof wrong);
  for (const std::uint16_t from : {std::uint16_t{0}, std::uint16_t{0xffff}, unit.id().value}) {
    wrong = right;
    wrong.from = from;
    send(wrong, sizeof wrong);
  }
  run({&unit}, [&] { return unit.endnode->counters().refused_knocks == 8; });
  CHECK(unit.endnode->counters().knocks == 0);
  CHECK(unit.endnode->next_deadline() == kNever);
}

TEST_CASE("a lingering socket that comes with a knock stops nobody", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  const bool refuse = GENERATE(true, false);
  CAPTURE(refuse);
  const std::string path = directory.path("7.knock");
  std::optional<Result<Knock>> unit(Knock::listen(path, LocalId{7}, refuse));
  REQUIRE(unit->has_value());
  const os::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const os::UnixAddress address(path);
  REQUIRE(::connect(socket.get(), address.get(), os::UnixAddress::size()) == 0);
  KnockMessage message{};
  message.magic = kKnockMagic;
  message.version = kKnockVersion;
  message.from = 9;
  const auto bytes = std::as_bytes(std::span(&message, 1));
  std::array<os::LingeringSocket, 2> strangers{os::LingeringSocket(30), os::LingeringSocket(30)};
  const bool attached = strangers[0].attach_to(socket.get(), bytes);
  const os::UniqueFd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  CHECK(attached == !(refuse && os::refuse_descriptors(probe.get())));
  REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  CHECK(strangers[1].attach_to(socket.get(), bytes) == attached);
  for (auto& stranger : strangers) stranger.let_go();

  const Time start = monotonic_now();
  LocalId from{};
  if (attached) CHECK((*unit)->hear(from) == Knock::Heard::garbage);
  CHECK((*unit)->hear(from) == Knock::Heard::knock);
  CHECK(from == LocalId{9});
  if (!attached) CHECK((*unit)->hear(from) == Knock::Heard::nothing);
  unit.reset();  // with the other one unheard
  CHECK(monotonic_now() - start < kDeadline);
  for (const auto& stranger : strangers) CHECK(stranger.closed_at_last());
}

TEST_CASE("an endnode for whose knocks there is no descriptor says so", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  const std::string path = directory.path("7.knock");
  std::ofstream(path).put('x');  // what is there is no part of the answer
  for (const bool left_over : {true, false}) {
    CAPTURE(left_over);
    CHECK(testing::exit_code_of([&] {
            static_cast<void>(fmt::format("{}: {}", path, os::errno_text()));  // UBSan needs descriptors the first time
            const rlimit none{0, 0};
            setrlimit(RLIMIT_NOFILE, &none);
            const auto knock = Knock::listen(path, LocalId{7});
            return !knock && knock.error().message == path + ": Too many open files" ? 17 : 1;
          }) == 17);
    std::filesystem::remove(path);
  }
}

TEST_CASE("the bytes of a knock", "[fabric][endnode][wire]") {
  KnockMessage message{};
  message.magic = kKnockMagic;
  message.version = kKnockVersion;
  message.from = 0x0102;
  const auto bytes = std::as_bytes(std::span(&message, 1));
  const std::array<std::uint8_t, 8> expected{'S', 'L', 'N', 'K', 1, 0, 2, 1};
  CHECK(std::ranges::equal(bytes, std::as_bytes(std::span(expected))));
}

TEST_CASE("an endnode has at most as many peers as it may", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  TestEndnode first(directory.path(), 1, 1);
  const LocalId one{first.id().value == 1 ? std::uint16_t{9} : std::uint16_t{1}};
  REQUIRE(first.endnode->reach(one, monotonic_now()));
  REQUIRE(first.endnode->reach(one, monotonic_now()));
  CHECK_FALSE(
      first.endnode->reach(LocalId{first.id().value == 2 ? std::uint16_t{9} : std::uint16_t{2}}, monotonic_now()));
}

TEST_CASE("an endnode needs a folder that is there, and short enough for a socket", "[fabric][endnode]") {
  const os::TemporaryDirectory directory;
  SeededRandom random(1);
  CHECK(Endnode::open({.directory = directory.path("none")}, random).error().message ==
        directory.path("none") + "/local-ids: No such file or directory");
  // Whichever ID it gets: the longest one has five digits.
  constexpr std::size_t kLongestName = sizeof "/49151.knock" - 1;
  const std::size_t room = os::kMaxSocketPathBytes - kLongestName - directory.path().size() - 1;
  const std::string fits = directory.path(std::string(room, 'd'));
  const std::string deep = fits + "d";
  for (const std::string& folder : {fits, deep}) std::filesystem::create_directory(folder);
  CHECK(Endnode::open({.directory = fits, .window_bytes = kShmMinBytes}, random));
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SeededRandom other(seed);
    CHECK_FALSE(Endnode::open({.directory = deep}, other));
  }
  // The ID is free again.
  auto ids = LocalIds::open(deep);
  REQUIRE(ids);
  CHECK((*ids)->holders().empty());
}

}  // namespace splitnic::fabric::test::endnode_test
