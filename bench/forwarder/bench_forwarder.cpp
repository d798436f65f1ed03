// bench-forwarder: one process between a TAP and a LAN interface, the yardstick of `splitnic-bench nic`.
//
// It does by the plainest fair means what the split driver does with two processes and a bridge: poll(2), then each
// side emptied before it sleeps again. The pcap settings are the product's (immediate, promiscuous, inbound only, whole
// frames). Partial checksums and oversized frames pass as they are: compare with the peers' offloads off.
//
// With --offloads on, a packet socket takes the place of libpcap, and both sides have virtio-net headers: each frame
// passes with its header, as the kernel made it.
//
// bench-forwarder --tap NAME --lan IFNAME [--netns NAME] [--tap-netns NAME] [--lan-netns NAME] [--offloads on|off]
// Prints "ready" on stdout when traffic can flow; ends on SIGTERM or SIGINT with counters on stderr. Exit 0, 1, 2.

#include <linux/if_packet.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "bench/forwarder/interfaces.h"

namespace splitnic::bench::forwarder {

namespace {

struct Counters {
  std::uint64_t to_lan = 0, to_lan_refused = 0, to_tap = 0, to_tap_refused = 0;
};

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
  explicit PacketLan(const std::string& name) : socket_{open_packet_socket(name)} {}
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
      if (bytes < 0 && comes_later(errno)) return frames;
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
    while (!stop_requested()) {
      const int moved = tap_to_lan() + lan_.receive(*this);
      if (moved > 0) continue;
      if (::poll(waits.data(), waits.size(), kSleepMilliseconds) < 0 && errno != EINTR) throw_errno("poll");
    }
  }

  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  int tap_to_lan() {
    for (int frames = 0; frames < kBatchFrames; ++frames) {
      const ssize_t bytes = ::read(tap_, frame_.data(), frame_.size());
      if (bytes < 0) {
        if (comes_later(errno)) return frames;
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

int run(const Options& options) {
  const auto lan = opened_in(options.lan_netns, [&] { return open_lan(options); });
  const int tap = opened_in(options.tap_netns, [&] { return open_tap(options.tap, options.offloads); });
  stop_on({SIGTERM, SIGINT});
  std::puts("ready");
  std::fflush(stdout);

  Forwarder forwarder{tap, *lan};
  forwarder.run();
  const Counters& c = forwarder.counters();
  std::fprintf(stderr, "bench-forwarder: to LAN %ju (%ju refused), to TAP %ju (%ju refused)\n",
               static_cast<std::uintmax_t>(c.to_lan), static_cast<std::uintmax_t>(c.to_lan_refused),
               static_cast<std::uintmax_t>(c.to_tap), static_cast<std::uintmax_t>(c.to_tap_refused));
  return 0;
}

}  // namespace

}  // namespace splitnic::bench::forwarder

int main(int argc, char** argv) {
  return splitnic::bench::forwarder::run_program(argc, argv, "bench-forwarder", splitnic::bench::forwarder::run);
}
