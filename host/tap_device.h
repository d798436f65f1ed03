#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/frame/multicast.h"
#include "common/mac_address.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "messaging/received_frame.h"

namespace splitnic::host {

/// The kernel's side of one TAP interface: what goes through the tun descriptor, which works wherever the interface has
/// been moved or renamed to. Thread: the owner's.
class TapDevice {
 public:
  /// Makes the TAP `name` in the thread's network namespace or attaches to the one there; carrier off.
  /// Errors: no tun driver, no permission, another program is attached, an interface of that name that isn't a TAP.
  [[nodiscard]] static Result<TapDevice> attach(const std::string& name);

  /// Of each frame that is read this much is kept privately too: `to` is not for reading.
  static constexpr std::size_t kHeadBytes = frame::kMembershipReportHeadBytes;

  /// The next frame of the host's stack, written to `to`, all but its head by the kernel. 0: none now. One longer than
  /// `to` is dropped and counted, and the next one is tried.
  std::size_t read_frame(std::span<std::byte> to);
  /// The last read frame's first bytes, at most kHeadBytes. Valid until the next read.
  [[nodiscard]] std::span<const std::byte> head() const { return std::span(head_).first(head_bytes_); }
  /// False: refused, most often because the interface is down.
  bool write_frame(const messaging::ReceivedFrame& frame);

  /// Whether the interface outlives this descriptor.
  [[nodiscard]] bool set_persistent(bool persistent);
  void set_carrier(bool carrier);
  [[nodiscard]] bool set_mac(const MacAddress& mac);
  [[nodiscard]] MacAddress mac() const;
  /// Its name now: an administrator may have changed it. Empty once the interface was deleted.
  [[nodiscard]] std::string name() const;
  /// The network namespace that it is in now; empty where the kernel or missing rights don't tell.
  [[nodiscard]] os::UniqueFd network_namespace() const;

  [[nodiscard]] int descriptor() const { return fd_.get(); }
  [[nodiscard]] std::uint64_t oversized() const { return oversized_; }

 private:
  explicit TapDevice(os::UniqueFd fd) : fd_(std::move(fd)) {}
  os::UniqueFd fd_;
  std::array<std::byte, kHeadBytes> head_{};
  std::size_t head_bytes_ = 0;
  std::uint64_t oversized_ = 0;
};

}  // namespace splitnic::host
