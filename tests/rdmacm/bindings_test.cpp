#include "fabric/rdmacm/bindings.h"

#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/os/unix_listener.h"
#include "fabric/rdmacm/calls.h"
#include "fabric/rdmacm/rendezvous.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/other_process.h"

namespace splitnic::rdmacm::bindings_test {
namespace {

using Folder = os::TemporaryDirectory;

Address ip4(std::uint32_t value, std::uint16_t number) {
  Address address = any_ip4();
  for (unsigned i = 0; i < 4; ++i) address.bytes[12 + i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
  address.number = number;
  return address;
}

Address ip6(std::uint8_t last, std::uint16_t number) {
  Address address;
  address.bytes[15] = last;
  address.number = number;
  return address;
}

std::unique_ptr<Bindings> open(const Folder& folder) {
  auto opened = Bindings::open(folder.path());
  REQUIRE(opened);
  return std::move(*opened);
}

TEST_CASE("bindings that overlap exclude each other, in one process and between two", "[rdmacm]") {
  struct Case {
    Binding one;
    Binding other;
    bool overlap;
  };
  const std::vector<Case> cases{
      {{Space::tcp, ip4(0x7f000001, 7)}, {Space::tcp, ip4(0x7f000001, 7)}, true},
      {{Space::tcp, ip4(0x7f000001, 7)}, {Space::tcp, ip4(0x7f000002, 7)}, false},
      {{Space::tcp, ip4(0x7f000001, 7)}, {Space::tcp, ip4(0x7f000001, 8)}, false},
      {{Space::tcp, ip4(0x7f000001, 7)}, {Space::udp, ip4(0x7f000001, 7)}, false},
      {{Space::tcp, ip4(0, 7)}, {Space::tcp, ip4(0xffffffff, 7)}, true},
      {{Space::tcp, ip4(0, 7)}, {Space::tcp, ip4(0xffffffff, 6)}, false},
      {{Space::tcp, ip4(0, 7)}, {Space::tcp, ip6(1, 7)}, false},
      {{Space::tcp, ip6(0, 7)}, {Space::tcp, ip6(1, 7)}, true},
      {{Space::tcp, ip6(0, 7)}, {Space::tcp, ip4(0x0a000001, 7)}, true},
      {{Space::tcp, ip6(0, 7), true}, {Space::tcp, ip4(0, 7)}, false},
      {{Space::tcp, ip6(0, 7), true}, {Space::tcp, ip6(1, 7)}, true},
      {{Space::ib, ip6(0, 65535)}, {Space::ib, ip4(0, 65535)}, true},
  };
  SystemRandom random;
  for (const Case& test : cases) {
    const Folder folder;
    const auto bindings = open(folder);
    Binding one = test.one;
    Binding other = test.other;
    REQUIRE(bindings->take(one, random) == 0);
    CHECK(bindings->take(other, random) == (test.overlap ? EADDRINUSE : 0));
    const pid_t child = fork();
    if (child == 0) {
      auto opened = Bindings::open(folder.path());
      Binding again = test.one;
      _exit(opened && (*opened)->take(again, random) == EADDRINUSE && (*opened)->holder(again) == getppid() ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    bindings->give_back(one);
    if (test.overlap) REQUIRE(bindings->take(other, random) == 0);
  }
}

/// A process that holds a binding and listens at its socket until it is killed. With a keeper, a child of that process
/// keeps the socket open for as long as this object lives.
class Holder {
 public:
  static Binding binding() { return {Space::tcp, ip4(0, 7174)}; }

  Holder(const Folder& folder, bool with_keeper) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    process_ = fork();
    if (process_ == 0) hold(folder, with_keeper, ready[1]);
    REQUIRE(read(ready[0], &keeper_, sizeof keeper_) == sizeof keeper_);
    close(ready[0]);
    close(ready[1]);
    REQUIRE(keeper_ != kNothingHeld);
  }
  ~Holder() {
    if (process_ > 0) kill();
    if (keeper_ > 0) ::kill(keeper_, SIGKILL);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  [[nodiscard]] pid_t process() const { return process_; }
  void kill() {
    REQUIRE(::kill(process_, SIGKILL) == 0);
    REQUIRE(waitpid(process_, nullptr, 0) == process_);
    process_ = 0;
  }

 private:
  static constexpr pid_t kNothingHeld = -1;

  [[noreturn]] static void hold(const Folder& folder, bool with_keeper, int ready) {
    SystemRandom random;
    Binding held = binding();
    auto opened = Bindings::open(folder.path());
    const os::PeerSocket listener =
        opened && (*opened)->take(held, random) == 0 ? listen_at((*opened)->socket_path(held)) : os::PeerSocket();
    const pid_t keeper = with_keeper ? fork() : 0;
    if (with_keeper && keeper == 0) pause();
    const pid_t told = listener ? keeper : kNothingHeld;
    if (write(ready, &told, sizeof told) == sizeof told) pause();
    _exit(1);
  }

  pid_t process_ = 0;
  pid_t keeper_ = 0;
};

TEST_CASE("a killed holder's binding is free at once, and its socket is removed", "[rdmacm]") {
  const Folder folder;
  SystemRandom random;
  Holder holder(folder, false);
  Binding binding = Holder::binding();
  const auto bindings = open(folder);
  const std::string path = bindings->socket_path(binding);
  CHECK(bindings->holder(binding) == holder.process());
  CHECK(std::filesystem::exists(path));
  Line line;
  CHECK(call(*bindings, Space::tcp, ip4(0x7f000001, 7174), line) == Call::made);
  CHECK(line.process);
  CHECK(call(*bindings, Space::udp, ip4(0x7f000001, 7174), line) == Call::nobody);
  holder.kill();
  CHECK_FALSE(bindings->holder(binding));
  CHECK(call(*bindings, Space::tcp, ip4(0x7f000001, 7174), line) == Call::nobody);
  CHECK(bindings->take(binding, random) == 0);
  bindings->give_back(binding);
  const auto next = open(folder);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a socket whose listener was killed counts for nothing while its child keeps it open", "[rdmacm]") {
  const Folder folder;
  Holder holder(folder, true);
  const auto bindings = open(folder);
  Line line;
  CHECK(call(*bindings, Space::tcp, ip4(0x7f000001, 7174), line) == Call::made);
  holder.kill();
  CHECK(std::filesystem::exists(bindings->socket_path(Holder::binding())));
  CHECK(call(*bindings, Space::tcp, ip4(0x7f000001, 7174), line) == Call::nobody);
}

TEST_CASE("a listener is reached wherever an endnode has room for its sockets", "[rdmacm]") {
  constexpr std::size_t kEndnodes = sizeof "/49151.knock" - 1;
  const Folder folder;
  const std::string deep =
      folder.path(std::string(os::kMaxSocketPathBytes - kEndnodes - folder.path().size() - 1, 'd'));
  std::filesystem::create_directory(deep);
  SystemRandom random;
  const auto bindings = Bindings::open(deep);
  REQUIRE(bindings);
  // The longest names.
  for (Binding binding : {Binding{Space::udp, ip4(0, 65535)}, Binding{Space::ib, ip6(1, 65535)},
                          Binding{Space::ipoib, ip6(0, 65535), true}}) {
    CAPTURE(socket_name(binding));
    REQUIRE((*bindings)->take(binding, random) == 0);
    {
      const os::PeerSocket listener = listen_at((*bindings)->socket_path(binding));
      REQUIRE(listener);
      CHECK(std::filesystem::exists(deep + "/" + socket_name(binding)));
      Line line;
      CHECK(call(**bindings, binding.space, binding.address, line) == Call::made);
    }
    (*bindings)->give_back(binding);
    REQUIRE(Bindings::open(deep));  // removes what is left over
    CHECK_FALSE(std::filesystem::exists(deep + "/" + socket_name(binding)));
  }
}

TEST_CASE("a listener for which there is no descriptor says so", "[rdmacm]") {
  const Folder folder;
  CHECK(splitnic::testing::exit_code_of([&] {
          const rlimit none{0, 0};
          setrlimit(RLIMIT_NOFILE, &none);
          const bool listens = static_cast<bool>(listen_at(folder.path("cm-0-1")));
          return listens ? 0 : errno;
        }) == EMFILE);
}

TEST_CASE("a number that nobody names comes from the ephemeral ones", "[rdmacm]") {
  const Folder folder;
  const auto bindings = open(folder);
  SystemRandom random;
  for (int i = 0; i < 100; ++i) {
    Binding binding{Space::tcp, ip4(0x7f000001, 0)};
    REQUIRE(bindings->take(binding, random) == 0);
    CHECK(binding.address.number >= 32768);
    CHECK(binding.address.number <= 60999);
  }
}

TEST_CASE("addresses keep their form, and local ones are known", "[rdmacm]") {
  sockaddr_storage system;
  for (const Address& address : {ip4(0x0a010203, 99), ip6(1, 7), ip4(0, 0)}) {
    put_address(address, system);
    CHECK(system.ss_family == (address.is_ip4() ? AF_INET : AF_INET6));
    CHECK(address_of(reinterpret_cast<const sockaddr*>(&system)) == address);
  }
  system.ss_family = AF_UNIX;
  CHECK_FALSE(address_of(reinterpret_cast<const sockaddr*>(&system)));
  CHECK_FALSE(address_of(nullptr));
  CHECK(is_local(ip4(0x7f000001, 5)));
  CHECK(is_local(ip6(1, 5)));
  CHECK_FALSE(is_local(ip4(0xc0000201, 0)));  // TEST-NET-1
  CHECK_FALSE(is_local(ip4(0xe0000001, 0)));
  CHECK_FALSE(is_local(any_ip4()));
  CHECK_FALSE(is_local(ip4(0xffffffff, 0)));  // to which a socket can be bound
  CHECK(source_towards(ip4(0x7f000009, 5)) == ip4(0x7f000009, 0));
}

/// Gives the calling thread a network of its own, in which sockets may be bound to any address. Its loop-back interface
/// has this one, and the route to all others. False: not permitted.
bool make_network(const Address& own) {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const os::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address;
  char name[] = "lo";
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, name);
  put_address(own, address);
  std::memcpy(&loopback.ifr_addr, &address, sizeof loopback.ifr_addr);
  if (ioctl(socket.get(), SIOCSIFADDR, &loopback) != 0) return false;
  loopback.ifr_flags = IFF_UP;
  if (ioctl(socket.get(), SIOCSIFFLAGS, &loopback) != 0) return false;
  rtentry route{};
  put_address(any_ip4(), address);
  std::memcpy(&route.rt_dst, &address, sizeof route.rt_dst);
  std::memcpy(&route.rt_genmask, &address, sizeof route.rt_genmask);
  route.rt_flags = RTF_UP;
  route.rt_dev = name;
  if (ioctl(socket.get(), SIOCADDRT, &route) != 0) return false;
  std::ofstream permission("/proc/sys/net/ipv4/ip_nonlocal_bind");
  permission << "1" << std::flush;
  return permission.good();
}

TEST_CASE("an address is not local because sockets may be bound to any", "[rdmacm]") {
  const Address own = ip4(0xc0000202, 0);  // TEST-NET-1
  const Address far = ip4(0xc6336401, 0);  // TEST-NET-2
  bool made = false;
  bool own_is_local = false;
  bool far_is_local = false;
  std::thread apart([&] {
    made = make_network(own);
    own_is_local = is_local(own);
    far_is_local = is_local(far);
  });
  apart.join();
  if (!made) {
    WARN("skipped: only root makes a network in which sockets may be bound to any address");
    return;
  }
  CHECK(own_is_local);
  CHECK_FALSE(far_is_local);
}

TEST_CASE("what an identifier permits depends on its state", "[rdmacm]") {
  // A row for each state, a column for each act, in their order.
  static constexpr const char* kTable[kStates] = {
      "xxx........",  // idle
      ".xx.......x",  // bound
      "...........",  // listening
      "...x......x",  // address_resolved
      "....x.....x",  // route_resolved
      ".........x.",  // calling
      ".....x.x.x.",  // answered
      ".....xx..x.",  // requested
      "........xx.",  // accepted
      "........xx.",  // established
      ".........x.",  // disconnected
      ".........x.",  // failed
  };
  for (unsigned state = 0; state < kStates; ++state) {
    for (unsigned act = 0; act < kActs; ++act) {
      INFO(state << " " << act);
      CHECK(permits(static_cast<State>(state), static_cast<Act>(act)) == (kTable[state][act] == 'x'));
    }
  }
}

}  // namespace
}  // namespace splitnic::rdmacm::bindings_test
