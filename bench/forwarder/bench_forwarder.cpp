// bench-forwarder: one process between a TAP and a LAN interface, the yardstick of `splitnic-bench nic`.
//
// It does by the plainest fair means what the split driver does with two processes and a bridge: poll(2), then each
// side emptied before it sleeps again. It shares no code with the product, so that a slow TAP or pcap class there
// can't hide behind an equally slow yardstick; the pcap settings are the product's (immediate, promiscuous, inbound
// only, whole frames). Partial checksums and oversized frames pass as they are: compare with the peers' offloads off.
//
// With --offloads on, a packet socket takes the place of libpcap, and both sides have virtio-net headers: each frame
// passes with its header, as the kernel made it.
//
// bench-forwarder --tap NAME --lan IFNAME [--netns NAME] [--tap-netns NAME] [--lan-netns NAME] [--offloads on|off]
// Prints "ready" on stdout when traffic can flow; ends on SIGTERM or SIGINT with counters on stderr. Exit 0, 1, 2.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace {

constexpr int kHeaderBytes = 10;               // of virtio-net
constexpr int kSnapBytes = 65536 + 64;         // the largest GSO frame with its headers
constexpr int kCaptureBufferBytes = 32 << 20;  // what the kernel may hold while this process is away
constexpr std::size_t kFrameBytesMax = kHeaderBytes + kSnapBytes;
constexpr int kBatchFrames = 256;  // one side may not starve the other for longer

constexpr unsigned long kUdpSegments = 0x20 | 0x40;  // TUN_F_USO4 and TUN_F_USO6

volatile std::sig_atomic_t stop_requested = 0;

struct Options {
  std::string tap, lan, tap_netns, lan_netns;
  bool offloads = false;
};

struct Counters {
  std::uint64_t to_lan = 0, to_lan_refused = 0, to_tap = 0, to_tap_refused = 0;
};

/// Returns true when all options are known and both interfaces named.
bool parse(int argc, char** argv, Options& options) {
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
      return false;
    }
  }
  return argc % 2 == 1 && !options.tap.empty() && options.tap.size() < IFNAMSIZ && !options.lan.empty();
}

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// Runs open() inside the named network namespace and comes back; an empty name stays where it is.
template <typename Open>
auto opened_in(const std::string& netns, Open open_it) {
  if (netns.empty()) return open_it();
  const int home = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = ::open(("/run/netns/" + netns).c_str(), O_RDONLY | O_CLOEXEC);
  if (home < 0 || there < 0 || ::setns(there, CLONE_NEWNET) != 0) throw_errno("namespace " + netns);
  auto result = open_it();
  if (::setns(home, CLONE_NEWNET) != 0) throw_errno("leaving namespace " + netns);
  ::close(there);
  ::close(home);
  return result;
}

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

struct PcapCloser {
  void operator()(pcap_t* handle) const { pcap_close(handle); }
};
using Pcap = std::unique_ptr<pcap_t, PcapCloser>;

Pcap open_pcap(const std::string& name) {
  std::array<char, PCAP_ERRBUF_SIZE> error{};
  Pcap handle{pcap_create(name.c_str(), error.data())};
  if (!handle) throw std::runtime_error(name + ": " + error.data());
  pcap_set_snaplen(handle.get(), kSnapBytes);
  pcap_set_promisc(handle.get(), 1);
  pcap_set_immediate_mode(handle.get(), 1);
  pcap_set_buffer_size(handle.get(), kCaptureBufferBytes);
  if (pcap_activate(handle.get()) < 0) throw std::runtime_error(name + ": " + pcap_geterr(handle.get()));
  if (pcap_setdirection(handle.get(), PCAP_D_IN) != 0 || pcap_setnonblock(handle.get(), 1, error.data()) != 0) {
    throw std::runtime_error(name + ": " + pcap_geterr(handle.get()));
  }
  // The kernel then need not copy what this process sends to its own ring, only for libpcap to drop it there.
  const int ignore = 1;
  ::setsockopt(pcap_fileno(handle.get()), SOL_PACKET, PACKET_IGNORE_OUTGOING, &ignore, sizeof ignore);
  return handle;
}

/// Takes what came from the LAN.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void on_frame(const std::byte* bytes, std::size_t size) = 0;
};

/// The LAN's side. Frames have a virtio-net header if the TAP's have one.
class Lan {
 public:
  virtual ~Lan() = default;
  [[nodiscard]] virtual int descriptor() const = 0;
  virtual bool send(const std::byte* bytes, std::size_t size) = 0;
  /// At most kBatchFrames. Returns how many came.
  virtual int receive(FrameSink& sink) = 0;
};

class PcapLan final : public Lan {
 public:
  explicit PcapLan(Pcap handle) : handle_{std::move(handle)} {}
  [[nodiscard]] int descriptor() const override { return pcap_get_selectable_fd(handle_.get()); }
  bool send(const std::byte* bytes, std::size_t size) override {
    return pcap_inject(handle_.get(), bytes, size) == static_cast<int>(size);
  }
  int receive(FrameSink& sink) override {
    const auto deliver = [](u_char* to, const pcap_pkthdr* header, const u_char* bytes) {
      reinterpret_cast<FrameSink*>(to)->on_frame(reinterpret_cast<const std::byte*>(bytes), header->caplen);
    };
    const int frames = pcap_dispatch(handle_.get(), kBatchFrames, deliver, reinterpret_cast<u_char*>(&sink));
    if (frames < 0) throw std::runtime_error(std::string("reading the LAN: ") + pcap_geterr(handle_.get()));
    return frames;
  }

 private:
  Pcap handle_;
};

class PacketLan final : public Lan {
 public:
  explicit PacketLan(const std::string& name)
      : socket_{::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)} {
    if (socket_ < 0) throw_errno("a packet socket");
    const int on = 1;
    const int buffer_bytes = kCaptureBufferBytes;
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(name.c_str()));
    packet_mreq promiscuous{};
    promiscuous.mr_ifindex = address.sll_ifindex;
    promiscuous.mr_type = PACKET_MR_PROMISC;
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes);
    if (::setsockopt(socket_, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0 ||
        ::setsockopt(socket_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
        ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::setsockopt(socket_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) != 0) {
      throw_errno("the packet socket on " + name);
    }
  }
  ~PacketLan() override { ::close(socket_); }
  PacketLan(const PacketLan&) = delete;
  PacketLan& operator=(const PacketLan&) = delete;

  [[nodiscard]] int descriptor() const override { return socket_; }
  bool send(const std::byte* bytes, std::size_t size) override {
    return ::send(socket_, bytes, size, MSG_DONTWAIT) == static_cast<ssize_t>(size);
  }
  int receive(FrameSink& sink) override {
    for (int frames = 0; frames < kBatchFrames; ++frames) {
      const ssize_t bytes = ::recv(socket_, frame_.data(), frame_.size(), MSG_DONTWAIT);
      if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return frames;
      if (bytes < 0) throw_errno("reading the LAN");
      sink.on_frame(frame_.data(), static_cast<std::size_t>(bytes));
    }
    return kBatchFrames;
  }

 private:
  int socket_;
  std::array<std::byte, kFrameBytesMax> frame_{};
};

class Forwarder final : private FrameSink {
 public:
  Forwarder(int tap, Lan& lan) : tap_{tap}, lan_{lan} {}

  void run() {
    std::array<pollfd, 2> waits{pollfd{tap_, POLLIN, 0}, pollfd{lan_.descriptor(), POLLIN, 0}};
    while (stop_requested == 0) {
      const int moved = tap_to_lan() + lan_.receive(*this);
      if (moved > 0) continue;
      // Not for ever: a signal between the test above and the sleep is noticed a second later.
      if (::poll(waits.data(), waits.size(), 1000) < 0 && errno != EINTR) throw_errno("poll");
    }
  }

  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  int tap_to_lan() {
    for (int frames = 0; frames < kBatchFrames; ++frames) {
      const ssize_t bytes = ::read(tap_, frame_.data(), frame_.size());
      if (bytes < 0) {
        // EIO: the TAP is administratively down, which somebody will end.
        if (errno == EAGAIN || errno == EINTR || errno == EIO) return frames;
        throw_errno("reading the TAP");
      }
      ++(lan_.send(frame_.data(), static_cast<std::size_t>(bytes)) ? counters_.to_lan : counters_.to_lan_refused);
    }
    return kBatchFrames;
  }

  void on_frame(const std::byte* bytes, std::size_t size) override {
    const ssize_t written = ::write(tap_, bytes, size);
    ++(written == static_cast<ssize_t>(size) ? counters_.to_tap : counters_.to_tap_refused);
  }

  int tap_;
  Lan& lan_;
  Counters counters_;
  std::array<std::byte, kFrameBytesMax> frame_{};
};

std::unique_ptr<Lan> open_lan(const Options& options) {
  if (options.offloads) return std::make_unique<PacketLan>(options.lan);
  return std::make_unique<PcapLan>(open_pcap(options.lan));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs(
        "usage: bench-forwarder --tap NAME --lan IFNAME [--netns NAME | --tap-netns NAME --lan-netns NAME] "
        "[--offloads on|off]\n",
        stderr);
    return 2;
  }
  try {
    const auto lan = opened_in(options.lan_netns, [&] { return open_lan(options); });
    const int tap = opened_in(options.tap_netns, [&] { return open_tap(options.tap, options.offloads); });
    struct sigaction action {};
    action.sa_handler = [](int) { stop_requested = 1; };  // without SA_RESTART: poll(2) returns
    ::sigaction(SIGTERM, &action, nullptr);
    ::sigaction(SIGINT, &action, nullptr);
    std::puts("ready");
    std::fflush(stdout);

    Forwarder forwarder{tap, *lan};
    forwarder.run();
    const Counters& c = forwarder.counters();
    std::fprintf(stderr, "bench-forwarder: to LAN %ju (%ju refused), to TAP %ju (%ju refused)\n",
                 static_cast<std::uintmax_t>(c.to_lan), static_cast<std::uintmax_t>(c.to_lan_refused),
                 static_cast<std::uintmax_t>(c.to_tap), static_cast<std::uintmax_t>(c.to_tap_refused));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-forwarder: %s\n", error.what());
    return 1;
  }
}
