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

Error attach_error(const std::string& name, int reason) {
  switch (reason) {
    case EBUSY:
      return {fmt::format("the TAP {} is busy: another program is attached to it", name)};
    case EPERM:
    case EACCES:
      return {fmt::format("no permission to use the TAP {}: CAP_NET_ADMIN or its ownership is needed", name)};
    case EINVAL:
      return {fmt::format("the interface {} exists and is not a single-queue TAP", name)};
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

Result<TapDevice> TapDevice::attach(const std::string& name) {
  os::UniqueFd fd(::open(kTunPath, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return tl::unexpected(open_error(errno));
  ifreq request = empty_request();
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  // Without IFF_NO_CARRIER (kernels before 6.0 ignore it), the carrier would briefly come up.
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | IFF_NO_CARRIER);
  if (::ioctl(fd.get(), TUNSETIFF, &request) != 0) return tl::unexpected(attach_error(name, errno));
  TapDevice device(std::move(fd));
  device.set_carrier(false);
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
  return TapDevice(std::move(descriptor));
}

std::size_t TapDevice::read_frame(std::span<std::byte> to) {
  // The kernel truncates a frame to the buffer. Only a frame that doesn't fit fills the spare byte, which so reveals
  // the truncation.
  std::byte spare{};
  const std::size_t head_room = std::min(head_.size(), to.size());
  const std::span<std::byte> rest = to.subspan(head_room);
  const iovec parts[3] = {{head_.data(), head_room}, {rest.data(), rest.size()}, {&spare, 1}};
  for (int dropped = 0; dropped < kMostDropped; ++dropped) {
    const ssize_t result = ::readv(fd_.get(), parts, 3);
    if (result <= 0) return 0;
    const auto bytes = static_cast<std::size_t>(result);
    if (bytes <= to.size()) {
      head_bytes_ = std::min(bytes, head_room);
      std::memcpy(to.data(), head_.data(), head_bytes_);
      return bytes;
    }
    ++oversized_;
  }
  return 0;
}

bool TapDevice::write_frame(const messaging::ReceivedFrame& frame) {
  const iovec part = frame.bytes.for_kernel(0, frame.size());
  return ::write(fd_.get(), part.iov_base, part.iov_len) == static_cast<ssize_t>(frame.size());
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
