#include "iounit/pcap_lan.h"

#include <linux/if_packet.h>
#include <sys/socket.h>

#include <cerrno>

#include "common/frame/ethernet.h"
#include "iounit/libpcap.h"

namespace splitnic::iounit {
namespace {

/// The longest frame that receive offloads make, with header and tags. A smaller value would truncate frames.
constexpr int kSnapBytes = 65536 + 64;
/// No slot of the ring is smaller.
constexpr int kLeastSlotBytes = 128;

struct Taker {
  LanSink* sink;
  LanCounters* counters;
  MovedFrames moved{};
};

void take(u_char* user, const pcap_pkthdr* header, const u_char* bytes) {
  auto& taker = *reinterpret_cast<Taker*>(user);
  if (header->caplen < header->len || header->caplen < frame::kEthernetHeaderBytes) {
    ++taker.counters->rx_truncated;
    return;
  }
  ++taker.counters->rx_frames;
  taker.moved.add(header->caplen);
  taker.sink->on_lan_frame(std::as_bytes(std::span(bytes, header->caplen)));
}

Error refusal(const std::string& interface, int result, pcap_t* capture) {
  switch (result) {
    case PCAP_ERROR_PERM_DENIED:
    case PCAP_ERROR_PROMISC_PERM_DENIED:
      return {
          fmt::format("no permission to capture on the LAN interface {}: run as root or with CAP_NET_RAW", interface)};
    case PCAP_ERROR_NO_SUCH_DEVICE:
      return {fmt::format("there is no LAN interface {}", interface)};
    default: {
      const char* detail = Libpcap::get().geterr(capture);
      return {fmt::format("can't capture on the LAN interface {}: {}", interface,
                          *detail != '\0' ? detail : Libpcap::get().statustostr(result))};
    }
  }
}

}  // namespace

void PcapLan::Close::operator()(pcap* capture) const { Libpcap::get().close(capture); }

PcapLan::~PcapLan() = default;

Result<std::unique_ptr<PcapLan>> PcapLan::open(const PcapOptions& options, Time now, os::Log& log) {
  if (auto library = Libpcap::load(); !library) return tl::unexpected(library.error());
  std::unique_ptr<PcapLan> lan(new PcapLan(options, log));
  if (auto error = lan->open_in_this_namespace(now)) return tl::unexpected(*std::move(error));
  return lan;
}

Result<void> PcapLan::reopen_with(const PacketSockets& sockets) {
  if (capture_ == nullptr) {
    return fail(
        "the LAN interface {} is down: libpcap opens only interfaces that are up, and in the sandbox only at the "
        "start",
        interface());
  }
  move_ = sockets.move;
  return {};
}

std::optional<Error> PcapLan::open_capture() {
  if (move_) return move_capture();
  char reason[PCAP_ERRBUF_SIZE] = "";
  std::unique_ptr<pcap, Close> capture(Libpcap::get().create(interface().c_str(), reason));
  if (capture == nullptr) return Error{reason};
  Libpcap::get().set_snaplen(capture.get(), kSnapBytes);
  Libpcap::get().set_promisc(capture.get(), 1);
  Libpcap::get().set_immediate_mode(capture.get(), 1);
  Libpcap::get().set_buffer_size(capture.get(), ring_bytes_);
  const int result = Libpcap::get().activate(capture.get());
  if (result < 0) return refusal(interface(), result, capture.get());
  if (result > 0) log().warning("LAN interface {}: {}", interface(), Libpcap::get().statustostr(result));
  if (const int link_type = Libpcap::get().datalink(capture.get()); link_type != DLT_EN10MB) {
    const char* type_name = Libpcap::get().datalink_val_to_name(link_type);
    return Error{fmt::format("the LAN interface {} is not Ethernet but {}", interface(),
                             type_name != nullptr ? type_name : std::to_string(link_type))};
  }
  if (Libpcap::get().setnonblock(capture.get(), 1, reason) != 0) return Error{reason};
  if (Libpcap::get().setdirection(capture.get(), PCAP_D_IN) != 0) return refusal(interface(), 0, capture.get());
  // libpcap drops frames that this machine sends only after the kernel has copied them to the ring; this option avoids
  // the copy. Kernels before 4.20 lack it; the direction above is then sufficient.
  const int ignore = 1;
  ::setsockopt(Libpcap::get().fileno(capture.get()), SOL_PACKET, PACKET_IGNORE_OUTGOING, &ignore, sizeof ignore);
  enlarge_send_buffer(Libpcap::get().fileno(capture.get()));
  capture_ = std::move(capture);
  away_ = false;
  kernel_drops_seen_ = 0;
  return std::nullopt;
}

std::optional<Error> PcapLan::move_capture() {
  const auto moved = move_(Libpcap::get().fileno(capture_.get()), link().index);
  if (!moved) return moved.error();
  for (const std::string& note : *moved) log().warning("{}", note);
  static_cast<void>(has_socket_error());  // that the old interface is down is known
  // What the ring still has is of the old interface, or of one that took its name.
  const auto ignore = [](u_char* /*user*/, const pcap_pkthdr* /*header*/, const u_char* /*bytes*/) {};
  static_cast<void>(Libpcap::get().dispatch(capture_.get(), ring_bytes_ / kLeastSlotBytes, ignore, nullptr));
  away_ = false;
  return std::nullopt;
}

/// Takes the error from the socket. In the sandbox libpcap can't look for errors itself.
bool PcapLan::has_socket_error() const {
  int error = 0;
  socklen_t bytes = sizeof error;
  return ::getsockopt(Libpcap::get().fileno(capture_.get()), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error != 0;
}

InterfaceLan::Look PcapLan::look(LanSink& sink, std::size_t budget) {
  Taker taker{&sink, &counters_};
  const int result =
      Libpcap::get().dispatch(capture_.get(), static_cast<int>(budget), take, reinterpret_cast<u_char*>(&taker));
  if (result < 0 || (result == 0 && move_ && has_socket_error())) check_at_once();
  note_moved(taker.moved);
  return {static_cast<std::size_t>(taker.moved.frames), result < static_cast<int>(budget)};
}

bool PcapLan::send(std::span<const std::byte> frame) {
  const auto header = frame::parse_ethernet(frame);
  if (!is_open() || !header || frame.size() > longest_frame(*header)) {
    ++counters_.tx_errors;
    return false;
  }
  if (!batch_.has_room(frame.size())) flush();
  batch_.add({}, frame);
  note_moved(frame.size());
  return true;
}

// Through libpcap's socket, by the system call that the sandbox permits. pcap_inject() would send one frame with each.
void PcapLan::flush() {
  batch_.send(is_open() ? Libpcap::get().fileno(capture_.get()) : -1, counters_, [this](std::size_t) {
    if (interface_lost(errno)) check_at_once();
  });
}

void PcapLan::close_capture() {
  away_ = true;
  if (!move_) capture_.reset();
}

void PcapLan::read_kernel_drops() {
  pcap_stat statistics{};
  if (Libpcap::get().stats(capture_.get(), &statistics) != 0) return;
  counters_.rx_kernel_drops += statistics.ps_drop - kernel_drops_seen_;
  kernel_drops_seen_ = statistics.ps_drop;
}

int PcapLan::capture_descriptor() const { return Libpcap::get().get_selectable_fd(capture_.get()); }

}  // namespace splitnic::iounit
