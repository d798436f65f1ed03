#include "bench/nic/laboratory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "bench/nic/process.h"
#include "common/os/errno_text.h"
#include "common/os/netlink.h"
#include "common/os/netns.h"
#include "common/time.h"

namespace splitnic::bench::nic {

namespace {

constexpr Duration kTapPatience = std::chrono::seconds(10);
constexpr const char* kScratch = "/run/splitnic-bench";
constexpr const char* kPeerLink = "eth0";
constexpr const char* kBridge = "br0";
constexpr const char* kBridgePort = "port0";

void write_file(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw StartupError{fmt::format("writing {}: {}", path, os::errno_text())};
}

void unshare_all() {
  const auto uid = ::geteuid();
  const auto gid = ::getegid();
  const int own = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | (uid == 0 ? 0 : CLONE_NEWUSER);
  if (::unshare(own) != 0) {
    throw StartupError{fmt::format(
        "the benchmark needs network namespaces, which {} may not make ({}): run it as root{}",
        uid == 0 ? "root here" : "this user", os::errno_text(),
        uid == 0 ? " of the whole machine" : ", or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)")};
  }
  if (uid == 0) return;
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", fmt::format("0 {} 1", uid));
  write_file("/proc/self/gid_map", fmt::format("0 {} 1", gid));
}

/// The first process of the new process namespace: its end is the end of all in there.
[[noreturn]] void be_first(int parent_alive, const std::function<int()>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that took effect: its end of the pipe is closed then.
  pollfd parent{parent_alive, 0, 0};
  if (::poll(&parent, 1, 0) != 0) ::_exit(1);
  int code = 1;
  try {
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/run", "tmpfs", 0, "mode=0755") != 0 || ::mkdir("/run/netns", 0755) != 0 ||
        ::mkdir(kScratch, 0700) != 0) {
      throw StartupError{fmt::format("a private /run: {}", os::errno_text())};
    }
    code = work();
  } catch (const StartupError& error) {
    std::fprintf(stderr, "splitnic-bench: %s\n", error.message.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "splitnic-bench: %s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

Result<void> set_offload(int socket, const char* interface, std::uint32_t command, bool on) {
  ethtool_value value{command, on ? 1U : 0U};
  ifreq request;
  std::memset(&request, 0, sizeof request);
  std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&value);
  if (::ioctl(socket, SIOCETHTOOL, &request) == 0) return {};
  return fail("switching the offloads of {} {}: {}", interface, on ? "on" : "off", os::errno_text());
}

/// Of an interface of this namespace: whether it sends frames unfinished, and puts received ones together.
Result<void> set_offloads(int netns, const char* interface, bool on) {
  const auto inside = os::ScopedNetns::enter(netns);
  if (!inside) return tl::unexpected(inside.error());
  const os::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail("a socket: {}", os::errno_text());
  // Segmentation needs checksums.
  for (const int command : {ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO}) {
    if (auto set = set_offload(socket.get(), interface, static_cast<std::uint32_t>(command), on); !set) return set;
  }
  return set_offload(socket.get(), interface, ETHTOOL_SGRO, false);  // what comes from the contestant stays as it is
}

}  // namespace

int run_apart(const std::function<int()>& work) {
  int alive[2];
  if (::pipe2(alive, O_CLOEXEC) != 0) throw StartupError{fmt::format("a pipe: {}", os::errno_text())};
  unshare_all();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw StartupError{fmt::format("a process of its own: {}", os::errno_text())};
  if (child == 0) {
    ::close(alive[1]);
    be_first(alive[0], work);
  }
  ::close(alive[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ::close(alive[1]);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

Result<Laboratory> Laboratory::build() {
  Laboratory laboratory;
  if (auto made = laboratory.make_namespaces(); !made) return tl::unexpected(made.error());
  if (auto made = laboratory.make_cable(); !made) return tl::unexpected(made.error());
  return laboratory;
}

std::string Laboratory::scratch(const std::string& name) const { return fmt::format("{}/{}", kScratch, name); }

Result<void> Laboratory::make_namespaces() {
  if (auto made = make_namespace(kPeer, peer_); !made) return made;
  if (auto made = make_namespace(kUnit, unit_); !made) return made;
  return make_namespace(kHost, host_);
}

Result<void> Laboratory::make_namespace(const std::string& name, os::UniqueFd& made) {
  if (auto added = run_ip({"netns", "add", name}, scratch("ip.log")); !added) return added;
  auto netns = os::open_netns(name);
  if (!netns) return tl::unexpected(netns.error());
  const auto inside = os::ScopedNetns::enter(netns->get());
  if (!inside) return tl::unexpected(inside.error());
  // Neighbour discovery would only add frames that nobody measures. A kernel without IPv6 has no such file.
  std::ofstream("/proc/sys/net/ipv6/conf/default/disable_ipv6") << 1;
  made = *std::move(netns);
  return {};
}

Result<void> Laboratory::make_cable() {
  const auto log = scratch("ip.log");
  const std::vector<std::string> steps[] = {
      {"-n", kUnit, "link", "add", kLan, "type", "veth", "peer", "name", kPeerLink, "netns", kPeer},
      {"-n", kPeer, "address", "add", fmt::format("{}/24", kPeerAddress), "dev", kPeerLink},
      {"-n", kUnit, "link", "set", kLan, "up"},
      {"-n", kPeer, "link", "set", kPeerLink, "up"}};
  for (const auto& step : steps) {
    if (auto made = run_ip(step, log); !made) return made;
  }
  return {};
}

Result<void> Laboratory::set_peer_offloads(bool on) const { return set_offloads(peer_.get(), kPeerLink, on); }

Result<void> Laboratory::make_bridge(bool offloads) const {
  const std::vector<std::string> steps[] = {
      {"-n", kUnit, "link", "add", kBridge, "type", "bridge"},
      {"-n", kUnit, "link", "add", kBridgePort, "type", "veth", "peer", "name", kTap, "netns", kHost},
      {"-n", kUnit, "link", "set", kLan, "master", kBridge},
      {"-n", kUnit, "link", "set", kBridgePort, "master", kBridge},
      {"-n", kUnit, "link", "set", kBridgePort, "up"},
      {"-n", kUnit, "link", "set", kBridge, "up"}};
  for (const auto& step : steps) {
    if (auto made = run_ip(step, scratch("ip.log")); !made) return made;
  }
  return set_offloads(host_.get(), kTap, offloads);
}

namespace {

/// In this namespace; carrier: it must have that, too.
Result<void> await_interface(int netns, const std::string& name, bool carrier) {
  const auto inside = os::ScopedNetns::enter(netns);
  if (!inside) return tl::unexpected(inside.error());
  auto links = os::LinkSocket::open();
  if (!links) return tl::unexpected(links.error());
  for (const Time give_up = monotonic_now() + kTapPatience; monotonic_now() < give_up;) {
    const auto link = links->query(name);
    if (link && (link->carrier || !carrier)) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fail("{} did not appear", name);
}

}  // namespace

Result<void> Laboratory::dress_tap(const std::string& netns_name, int netns, const std::string& address) {
  if (auto there = await_interface(netns, kTap, false); !there) return there;
  const auto log = scratch("ip.log");
  auto dressed = run_ip({"-n", netns_name, "address", "add", address + "/24", "dev", kTap}, log);
  return dressed ? run_ip({"-n", netns_name, "link", "set", kTap, "up"}, log) : dressed;
}

Result<void> Laboratory::give_tap_to_host() {
  if (auto set = set_offloads(unit_.get(), kTap, false); !set) return set;
  return run_ip({"-n", kUnit, "link", "set", kTap, "netns", kHost}, scratch("ip.log"));
}

Result<void> Laboratory::dress_tap(bool offloads) {
  auto dressed = dress_tap(kHost, host_.get(), kHostAddress);
  return dressed && !offloads ? set_offloads(host_.get(), kTap, false) : dressed;
}

Result<void> Laboratory::dress_tap(const FurtherHost& host) { return dress_tap(host.name, host.netns, host.address); }

Result<Laboratory::FurtherHost> Laboratory::further_host(std::size_t index) {
  FurtherHost host{.name = fmt::format("busy{}", index), .address = fmt::format("10.77.0.{}", 10 + index)};
  os::UniqueFd& netns = further_[index];
  if (!netns) {
    if (auto made = make_namespace(host.name, netns); !made) return tl::unexpected(made.error());
  }
  host.netns = netns.get();
  return host;
}

Result<void> Laboratory::await_idle_tap(const std::string& tap) {
  if (auto there = await_interface(unit_.get(), tap, true); !there) return there;
  return run_ip({"-n", kUnit, "link", "set", tap, "up"}, scratch("ip.log"));
}

void Laboratory::clear_tap() {
  // Each may well have nothing to do.
  static_cast<void>(run_ip({"-n", kHost, "link", "delete", kTap}, scratch("ip.log")));
  static_cast<void>(run_ip({"-n", kUnit, "link", "delete", kBridge}, scratch("ip.log")));
  static_cast<void>(run_ip({"-n", kPeer, "neighbour", "flush", "dev", kPeerLink}, scratch("ip.log")));
}

}  // namespace splitnic::bench::nic
