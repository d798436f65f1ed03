#include "bench/forwarder/interfaces.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <system_error>

namespace splitnic::bench::forwarder {

namespace {

constexpr unsigned long kUdpSegments = 0x20 | 0x40;  // TUN_F_USO4 and TUN_F_USO6

volatile std::sig_atomic_t stopping = 0;

/// nullopt: an option is unknown, or one of the interfaces has no name.
std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    const std::string value = argv[i + 1];
    if (key == "--tap") {
      options.tap = value;
    } else if (key == "--lan") {
      options.lan = value;
    } else if (key == "--netns") {
      options.tap_netns = options.lan_netns = value;
    } else if (key == "--tap-netns") {
      options.tap_netns = value;
    } else if (key == "--lan-netns") {
      options.lan_netns = value;
    } else if (key == "--offloads" && (value == "on" || value == "off")) {
      options.offloads = value == "on";
    } else {
      return std::nullopt;
    }
  }
  if (argc % 2 == 0 || options.tap.empty() || options.tap.size() >= IFNAMSIZ || options.lan.empty()) {
    return std::nullopt;
  }
  return options;
}

}  // namespace

int run_program(int argc, char** argv, const char* name, int (*run)(const Options& options)) {
  const auto options = parse(argc, argv);
  if (!options) {
    std::fprintf(stderr,
                 "usage: %s --tap NAME --lan IFNAME [--netns NAME | --tap-netns NAME --lan-netns NAME] "
                 "[--offloads on|off]\n",
                 name);
    return 2;
  }
  try {
    return run(*options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

void throw_errno(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

int open_tap(const std::string& name, bool offloads) {
  const int fd = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) throw_errno("/dev/net/tun");
  ifreq request{};
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | (offloads ? IFF_VNET_HDR : 0));
  std::memcpy(request.ifr_name, name.data(), name.size());
  if (::ioctl(fd, TUNSETIFF, &request) != 0) throw_errno("TAP " + name);
  constexpr unsigned long kFrames = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
  // Kernels before 6.2 don't know super-frames of UDP.
  if (offloads && ::ioctl(fd, TUNSETOFFLOAD, kFrames | kUdpSegments) != 0 && ::ioctl(fd, TUNSETOFFLOAD, kFrames) != 0) {
    throw_errno("offloads of " + name);
  }
  return fd;
}

int open_packet_socket(const std::string& name) {
  const int fd = ::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_errno("a packet socket");
  const int on = 1;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(::if_nametoindex(name.c_str()));
  packet_mreq promiscuous{};
  promiscuous.mr_ifindex = address.sll_ifindex;
  promiscuous.mr_type = PACKET_MR_PROMISC;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kCaptureBufferBytes, sizeof kCaptureBufferBytes);
  if (::setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0 ||
      ::setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
      ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) != 0) {
    throw_errno("the packet socket on " + name);
  }
  return fd;
}

bool comes_later(int error) { return error == EAGAIN || error == EINTR || error == EIO || error == ENETDOWN; }

void stop_on(std::initializer_list<int> signals) {
  struct sigaction action {};
  action.sa_handler = [](int) { stopping = 1; };  // without SA_RESTART: poll(2) returns
  for (const int signal : signals) ::sigaction(signal, &action, nullptr);
}

bool stop_requested() { return stopping != 0; }

}  // namespace splitnic::bench::forwarder
