#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "common/os/errno_text.h"
#include "common/os/netlink.h"
#include "common/os/netns.h"

namespace splitnic::os::os_netlink_test {
namespace {

/// Runs the body in a thread of its own; what it throws (a failed REQUIRE) is thrown here.
void in_thread(const std::function<void()>& body) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

/// The same in a network namespace of its own, which ends with it. Without permission: says so, and the test has
/// nothing to show.
void in_own_namespace(const std::function<void()>& body) {
  in_thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      WARN("skipped: making a network namespace: " << errno_text());
      return;
    }
    body();
  });
}

// The shell inherits the calling thread's namespace.
void shell(const std::string& command) {
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
}

std::vector<LinkEvent> drain(LinkSocket& links) {
  std::vector<LinkEvent> events;
  links.poll_events([&](const LinkEvent& event) { events.push_back(event); });
  return events;
}

bool soon(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_CASE("an interface is found by name and index", "[common][netlink]") {
  auto links = LinkSocket::open();
  REQUIRE(links);
  const auto loopback = links->query("lo");
  REQUIRE(loopback);
  CHECK(loopback->name == "lo");
  CHECK(loopback->mac.is_zero());
  CHECK(links->query(loopback->index)->name == "lo");
}

TEST_CASE("an interface name has 1 to 15 characters, none of them a blank, a slash, a colon or a percent sign",
          "[common][netlink]") {
  for (const char* name : {"e", "fifteen-letters", "eth0.42", "..."}) CHECK(check_interface_name(name).has_value());
  for (const char* name : {".", "..", "a/b", "a b", "a:b", "tap%d", "a\n", "a\x7f", "a\tb"}) {
    CAPTURE(name);
    const auto checked = check_interface_name(name);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().message.ends_with("can't be an interface name: none has blanks, '/', ':' or '%'"));
  }
  for (const char* name : {"all", "default"}) {
    CHECK_THAT(check_interface_name(name).error().message, Catch::StartsWith(std::string("'") + name + "' can't be"));
  }
  CHECK(check_interface_name("").error().message == "an interface name can't be empty");
  CHECK(check_interface_name("sixteen-letters-").error().message ==
        "the interface name 'sixteen-letters-' is longer than 15 characters");
}

TEST_CASE("an interface that isn't there is named in the error", "[common][netlink]") {
  auto links = LinkSocket::open();
  REQUIRE(links);
  CHECK(links->query("eth7x").error().message == "no interface named eth7x");
  CHECK(links->query("").error().message == "an interface name can't be empty");
  CHECK(links->query(123456).error().message == "no interface has the index 123456");
  CHECK(links->query(0).error().message == "no interface has the index 0");
}

TEST_CASE("address, MTU and state of an interface can be set, and are told", "[common][netlink][privileged]") {
  in_own_namespace([] {
    auto links = LinkSocket::open();
    REQUIRE(links);
    shell("ip link add lan0 address 02:00:00:00:00:01 type veth peer name lan1 && ip link set lan1 up");
    auto link = links->query("lan0");
    REQUIRE(link);
    CHECK(to_string(link->mac) == "02:00:00:00:00:01");
    CHECK(link->mtu == 1500);
    CHECK_FALSE(link->up);
    CHECK_FALSE(link->carrier);
    CHECK(link->oper_state == OperState::kDown);

    const MacAddress mac{{0x02, 0, 0, 0, 0, 0x77}};
    REQUIRE(links->set_mac(*link, mac));
    REQUIRE(links->set_mtu(*link, 9000));
    REQUIRE(links->set_up(*link, true));
    shell("ip link set lan0 promisc on allmulticast on");
    link = links->query(link->index);
    REQUIRE(link);
    CHECK(link->mac == mac);
    CHECK(link->mtu == 9000);
    CHECK(link->up);
    CHECK(link->promiscuous);
    CHECK(link->all_multicast);
    CHECK(link->max_mtu == 65535);

    REQUIRE(links->set_up(*link, false));
    CHECK_FALSE(links->query("lan0")->up);
    const auto refused = links->set_mtu(*link, 70000);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message ==
          "setting the MTU of lan0 to 70000: Invalid argument (mtu greater than device maximum)");
    CHECK_FALSE(links->set_mac(*link, kBroadcastMac));
    link->index = 999;
    CHECK(links->set_up(*link, true).error().message.starts_with("setting lan0 up: No such device"));
  });
}

TEST_CASE("a link leaves its bridge without being taken for removed", "[common][netlink][privileged]") {
  in_own_namespace([] {
    shell("ip link add lan0 type veth peer name lan1 && ip link add br0 type bridge && ip link set lan0 master br0");
    auto links = LinkSocket::open();
    REQUIRE(links);
    const auto link = links->query("lan0");
    REQUIRE(link);
    CHECK(link->master == links->query("br0")->index);
    REQUIRE(links->clear_master(*link));
    CHECK_FALSE(links->query("lan0")->master);
    const auto events = drain(*links);
    CHECK_FALSE(events.empty());
    for (const auto& event : events) CHECK(event.kind == LinkEvent::Kind::kChanged);
  });
}

TEST_CASE("what a link receives for others is told: their addresses, and all groups", "[common][netlink][privileged]") {
  in_own_namespace([] {
    shell("ip link add lan0 type veth peer name lan1 && ip link set lan0 up && ip link set lan1 up");
    auto links = LinkSocket::open();
    REQUIRE(links);
    const auto further = [&] {
      const auto link = links->query("lan0");
      REQUIRE(link);
      const auto addresses = links->further_addresses(*link);
      REQUIRE(addresses);
      return *addresses;
    };
    CHECK(further().empty());
    CHECK_FALSE(links->query("lan0")->all_multicast);
    shell("ip link add link lan0 name above address 02:00:00:00:00:09 type macvlan && ip link set above up");
    shell("bridge fdb add 02:00:00:00:00:08 dev lan0 self && bridge fdb add 01:00:5e:01:02:03 dev lan0 self");
    shell("bridge fdb add 02:00:00:00:00:07 dev lan1 self");
    CHECK(further() == std::vector<MacAddress>{{{2, 0, 0, 0, 0, 8}}, {{2, 0, 0, 0, 0, 9}}});
    shell("ip link set above allmulticast on");
    CHECK(links->query("lan0")->all_multicast);
    shell("ip link del above");
    CHECK_FALSE(links->query("lan0")->all_multicast);
    // What a bridge has learned behind the link is not the link's.
    shell("ip link add br0 type bridge && ip link set lan0 master br0");
    shell("bridge fdb add 02:00:00:00:00:06 dev lan0 master static");
    CHECK(further() == std::vector<MacAddress>{{{2, 0, 0, 0, 0, 8}}});
    shell("bridge fdb del 02:00:00:00:00:08 dev lan0 self");
    CHECK(further().empty());
  });
}

TEST_CASE("changes, carrier and removal arrive as events", "[common][netlink][privileged]") {
  in_own_namespace([] {
    auto links = LinkSocket::open();
    REQUIRE(links);
    CHECK(drain(*links).empty());
    shell("ip link add lan0 type veth peer name lan1 && ip link set lan0 up && ip link set lan1 up");
    drain(*links);
    shell("ip link set lan0 mtu 1280");
    // The kernel tells of both ends' carriers when it comes to it, so one of lan1 may be the last.
    const auto events = drain(*links);
    const auto of_lan0 =
        std::find_if(events.rbegin(), events.rend(), [](const LinkEvent& event) { return event.link.name == "lan0"; });
    REQUIRE(of_lan0 != events.rend());
    CHECK(of_lan0->kind == LinkEvent::Kind::kChanged);
    CHECK(of_lan0->link.mtu == 1280);

    CHECK(links->query("lan0")->carrier);
    shell("ip link set lan1 down");
    CHECK_FALSE(links->query("lan0")->carrier);
    // A kernel's thread derives this flag from the carrier, soon after.
    CHECK(soon([&] { return !links->query("lan0")->running; }));

    drain(*links);
    shell("ip link del lan0");
    bool removed = false;
    for (const auto& event : drain(*links)) {
      removed = removed || (event.kind == LinkEvent::Kind::kRemoved && event.link.name == "lan0");
      CHECK_FALSE(event.moved_to_netnsid);
    }
    CHECK(removed);
  });
}

TEST_CASE("lost events are reported as such and later ones arrive", "[common][netlink][privileged]") {
  in_own_namespace([] {
    auto links = LinkSocket::open();
    REQUIRE(links);
    const int small = 1;
    REQUIRE(::setsockopt(links->descriptor(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    shell("ip link add lan0 type veth peer name lan1");
    shell("for mtu in 1000 1001 1002 1003 1004 1005 1006 1007; do ip link set lan0 mtu $mtu; done");
    bool resync = false;
    for (const auto& event : drain(*links)) resync = resync || event.kind == LinkEvent::Kind::kResync;
    CHECK(resync);
    CHECK(drain(*links).empty());
    shell("ip link del lan0");
    CHECK_FALSE(drain(*links).empty());
  });
}

TEST_CASE("a link moved to another namespace is found there, and its old one hears of it",
          "[common][netns][privileged]") {
  in_own_namespace([] {
    auto links = LinkSocket::open();
    const auto home = open_current_netns();
    REQUIRE(links);
    REQUIRE(home);
    UniqueFd other;
    in_thread([&] {
      REQUIRE(::unshare(CLONE_NEWNET) == 0);
      other = std::move(*open_current_netns());
    });
    CHECK_FALSE(same_netns(home->get(), other.get()));
    shell("ip link add lan0 type veth peer name lan1");
    drain(*links);
    // iproute2 takes a process or a descriptor's path.
    shell("ip link set lan0 netns /proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(other.get()));

    CHECK(links->query("lan0").error().message == "no interface named lan0");
    bool moved = false;
    for (const auto& event : drain(*links)) {
      moved = moved || (event.kind == LinkEvent::Kind::kRemoved && event.link.name == "lan0" && event.moved_to_netnsid);
    }
    CHECK(moved);
    {
      const auto visit = ScopedNetns::enter(other.get());
      REQUIRE(visit);
      auto there = LinkSocket::open();
      REQUIRE(there);
      CHECK(there->query("lan0"));
      CHECK_FALSE(there->query("lan1"));
    }
    CHECK(same_netns(home->get(), open_current_netns()->get()));
    CHECK(LinkSocket::open()->query("lan1"));
  });
}

TEST_CASE("a namespace that isn't there is named in the error", "[common][netns]") {
  CHECK(enter_netns("no-such-netns").error().message ==
        "no network namespace named no-such-netns (there is no /run/netns/no-such-netns)");
  for (const char* name : {"", ".", ".."}) {
    CHECK(enter_netns(name).error().message == "'" + std::string(name) + "' can't be the name of a network namespace");
  }
  CHECK(enter_netns("../no/such").error().message ==
        "opening the network namespace ../no/such: No such file or directory");
  CHECK(enter_netns("4194305").error().message == "no network namespace named 4194305, and no process 4194305");
}

TEST_CASE("a namespace is found by path and by the pid of a process in it", "[common][netns]") {
  const auto here = open_current_netns();
  REQUIRE(here);
  for (const std::string& which : {std::string("/proc/self/ns/net"), std::to_string(::getpid())}) {
    const auto found = open_netns(which);
    REQUIRE(found);
    CHECK(same_netns(found->get(), here->get()));
  }
}

TEST_CASE("a namespace can be entered by name", "[common][netns][privileged]") {
  const std::string name = "splitnic-test-" + std::to_string(::getpid());
  if (std::system(("ip netns add " + name + " 2>/dev/null").c_str()) != 0) {
    WARN("skipped: making a named network namespace is not permitted");
    return;
  }
  in_thread([&] {
    const auto home = open_current_netns();
    const auto entered = enter_netns(name);
    REQUIRE(entered);
    CHECK_FALSE(same_netns(home->get(), open_current_netns()->get()));
    CHECK(same_netns(open_netns(name)->get(), open_current_netns()->get()));
  });
  shell("ip netns del " + name);
}

TEST_CASE("what is no namespace can't be entered", "[common][netns][privileged]") {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto refused = enter_netns(null.get());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message ==
        "entering descriptor " + std::to_string(null.get()) + ": it is no network namespace");
}

}  // namespace
}  // namespace splitnic::os::os_netlink_test
