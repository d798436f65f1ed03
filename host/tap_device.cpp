#include "host/tap_device.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/os/errno_text.h"

namespace splitnic::host {
namespace {

constexpr const char* kTunPath = "/dev/net/tun";
/// TUN_F_USO4 and TUN_F_USO6: super-frames of UDP, since Linux 6.2.
constexpr unsigned long kUdpSegments = 0x20 | 0x40;
/// Maximum oversized frames that one read_frame() drops before the rest of the driver gets a turn.
constexpr int kMostDropped = 16;

Error open_error(int reason) {
  if (reason == ENOENT || reason == ENODEV || reason == ENXIO) {
    return {fmt::format("{} is missing: load the kernel's tun module", kTunPath)};
  }
  if (reason == EACCES || reason == EPERM) {
    return {fmt::format("no permission to make a TAP: {} is not open to this user; run as root", kTunPath)};
  }
  return {fmt::format("can't open {}: {}", kTunPath, os::errno_text(reason))};
}

Error attach_error(const std::string& name, const TapDevice::Kind& kind, int reason) {
  switch (reason) {
    case EBUSY:
      return busy_tap(name);
    case EPERM:
    case EACCES:
      return {fmt::format("no permission to use the TAP {}: CAP_NET_ADMIN or its ownership is needed", name)};
    case EINVAL:
      return {fmt::format("the interface {} exists and is not a {}-queue TAP", name,
                          kind.multi_queue ? "multi" : "single")};
    default:
      return {fmt::format("can't make the TAP {}: {}", name, os::errno_text(reason))};
  }
}

ifreq empty_request() {
  ifreq request;
  std::memset(&request, 0, sizeof request);
  return request;
}

}  // namespace

Error busy_tap(const std::string& name) {
  return {fmt::format("the TAP {} is busy: another program is attached to it", name)};
}

Result<os::UniqueFd> TapDevice::open_interface(const std::string& name, const Kind& kind) {
  os::UniqueFd fd(::open(kTunPath, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return tl::unexpected(open_error(errno));
  ifreq request = empty_request();
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  // Without IFF_NO_CARRIER (kernels before 6.0 ignore it), the carrier would briefly come up.
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | IFF_NO_CARRIER | (kind.unfinished ? IFF_VNET_HDR : 0) |
                                         (kind.multi_queue ? IFF_MULTI_QUEUE : 0));
  if (::ioctl(fd.get(), TUNSETIFF, &request) != 0) return tl::unexpected(attach_error(name, kind, errno));
  return fd;
}

Result<TapDevice> TapDevice::attach_queue(const std::string& name, const Kind& kind) {
  auto fd = open_interface(name, kind);
  if (!fd) return tl::unexpected(fd.error());
  TapDevice device(*std::move(fd));
  device.has_header_ = kind.unfinished;
  device.set_active(false);
  return device;
}

void TapDevice::set_active(bool active) {
  ifreq request = empty_request();
  request.ifr_flags = active ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE;
  ::ioctl(fd_.get(), TUNSETQUEUE, &request);  // EINVAL: it is so already
}

bool TapDevice::steer(int program) { return ::ioctl(fd_.get(), TUNSETSTEERINGEBPF, &program) == 0; }

Result<TapDevice> TapDevice::attach(const std::string& name, const Kind& kind) {
  auto fd = open_interface(name, kind);
  if (!fd) return tl::unexpected(fd.error());
  TapDevice device(*std::move(fd));
  device.set_carrier(false);
  if (kind.unfinished) {
    int header_bytes = sizeof(frame::VirtioNetHeader);
    int little_endian = 1;
    if (::ioctl(device.descriptor(), TUNSETVNETHDRSZ, &header_bytes) != 0 ||
        ::ioctl(device.descriptor(), TUNSETVNETLE, &little_endian) != 0) {
      return fail("the TAP {} takes no virtio-net header: {}", name, os::errno_text());
    }
    device.has_header_ = true;
  }
  // A driver that died may have left the interface with offloads.
  if (!device.switch_offloads({})) return fail("the offloads of the TAP {} can't be set", name);
  device.probe_offloads();
  return device;
}

Result<TapDevice> TapDevice::adopt(os::UniqueFd descriptor) {
  // The same request means something else to another kind of device.
  constexpr unsigned kMajor = 10;  // of /dev/net/tun (the kernel's devices.txt)
  constexpr unsigned kMinor = 200;
  struct stat status {};
  const bool is_tun =
      ::fstat(descriptor.get(), &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == ::makedev(kMajor, kMinor);
  ifreq request = empty_request();
  if (!is_tun || ::ioctl(descriptor.get(), TUNGETIFF, &request) != 0 ||
      (static_cast<unsigned short>(request.ifr_flags) & IFF_TAP) == 0) {
    return fail("the descriptor is not that of a TAP");
  }
  TapDevice device(std::move(descriptor));
  device.has_header_ = (static_cast<unsigned short>(request.ifr_flags) & IFF_VNET_HDR) != 0;
  return device;
}

bool TapDevice::switch_offloads(const NicOffloads& to) {
  const unsigned long frames = to.frames ? TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 : 0;
  return ::ioctl(fd_.get(), TUNSETOFFLOAD, frames | (to.udp_segments ? kUdpSegments : 0)) == 0;
}

void TapDevice::probe_offloads() {
  possible_ = permitted_ = {};
  if (!has_header_) return;
  for (const bool udp_segments : {true, false}) {
    const NicOffloads all{.frames = true, .udp_segments = udp_segments};
    if (!switch_offloads(all)) continue;
    possible_ = all;
    break;
  }
  static_cast<void>(switch_offloads({}));
}

void TapDevice::set_offloads(const NicOffloads& permitted) {
  if (permitted == permitted_ || !switch_offloads(permitted)) return;
  permitted_ = permitted;
}

bool TapDevice::permits(const frame::FrameOffload& offload) const {
  if (offload.kind == frame::SegmentKind::udp) return permitted_.udp_segments;
  return permitted_.frames || !offload.asks_for_work();
}

std::size_t TapDevice::read_frame(const messaging::FrameMemory& to, std::size_t max_complete_bytes,
                                  frame::FrameOffload& offload) {
  // The kernel truncates a frame to the buffer. Only a frame that doesn't fit fills the spare byte, which so reveals
  // the truncation.
  std::byte spare{};
  frame::VirtioNetHeader header{};
  const std::size_t header_bytes = has_header_ ? sizeof header : 0;
  const std::size_t head_room = std::min(head_.size(), to.size());
  const messaging::FrameMemory behind = to.behind(head_room);
  const iovec parts[5] = {{&header, header_bytes},
                          {head_.data(), head_room},
                          {behind.bytes.data(), behind.bytes.size()},
                          {behind.rest.data(), behind.rest.size()},
                          {&spare, 1}};
  for (int dropped = 0; dropped < kMostDropped; ++dropped) {
    const ssize_t result = ::preadv2(fd_.get(), parts, 5, -1, 0);
    if (result <= static_cast<ssize_t>(header_bytes)) return 0;
    const std::size_t bytes = static_cast<std::size_t>(result) - header_bytes;
    const auto metadata = frame::parse_virtio_net_header(header);
    if (!metadata || !permits(*metadata)) {
      ++unfinished_;
      continue;
    }
    const bool segmented = metadata->kind != frame::SegmentKind::none;
    if (bytes > to.size() || (bytes > max_complete_bytes && !segmented)) {
      ++oversized_;
      continue;
    }
    offload = *metadata;
    head_bytes_ = std::min(bytes, head_room);
    to.write(0, std::span(head_).first(head_bytes_));
    return bytes;
  }
  return 0;
}

bool TapDevice::write_frame(const messaging::ReceivedFrame& frame) {
  frame::VirtioNetHeader header = frame::make_virtio_net_header(frame.offload);
  const std::size_t header_bytes = has_header_ ? sizeof header : 0;
  if (!has_header_ && frame.offload.asks_for_work()) return false;
  const iovec parts[3] = {{&header, header_bytes},
                          frame.bytes.for_kernel(0, frame.bytes.size()),
                          frame.rest.for_kernel(0, frame.rest.size())};
  return ::writev(fd_.get(), parts, 3) == static_cast<ssize_t>(header_bytes + frame.size());
}

bool TapDevice::set_persistent(bool persistent) { return ::ioctl(fd_.get(), TUNSETPERSIST, persistent ? 1 : 0) == 0; }

void TapDevice::set_carrier(bool carrier) {
  int value = carrier ? 1 : 0;
  ::ioctl(fd_.get(), TUNSETCARRIER, &value);
}

bool TapDevice::set_mac(const MacAddress& mac) {
  ifreq request = empty_request();
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  std::memcpy(request.ifr_hwaddr.sa_data, mac.octets.data(), mac.octets.size());
  return ::ioctl(fd_.get(), SIOCSIFHWADDR, &request) == 0;
}

MacAddress TapDevice::mac() const {
  ifreq request = empty_request();
  MacAddress mac;
  if (::ioctl(fd_.get(), SIOCGIFHWADDR, &request) == 0) {
    std::memcpy(mac.octets.data(), request.ifr_hwaddr.sa_data, mac.octets.size());
  }
  return mac;
}

std::string TapDevice::name() const {
  ifreq request = empty_request();
  if (::ioctl(fd_.get(), TUNGETIFF, &request) != 0) return {};
  return {request.ifr_name, ::strnlen(request.ifr_name, IFNAMSIZ)};
}

os::UniqueFd TapDevice::network_namespace() const { return os::UniqueFd(::ioctl(fd_.get(), TUNGETDEVNETNS)); }

}  // namespace splitnic::host
