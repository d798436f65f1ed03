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
#include "host/virtual_nic.h"
#include "messaging/received_frame.h"

namespace splitnic::host {

/// The error of attaching to a TAP to which another program is attached.
[[nodiscard]] Error busy_tap(const std::string& name);

/// One TAP interface through its tun descriptor, which keeps working after the interface is moved or renamed. Thread:
/// the owner's.
class TapDevice {
 public:
  /// Settled when a TAP is made. An existing TAP must agree with multi_queue.
  struct Kind {
    bool unfinished = false;   ///< it exchanges frames with metadata (virtio-net header)
    bool multi_queue = false;  ///< several descriptors may be attached, each with a queue of its own
  };
  /// Creates the TAP `name` in the thread's network namespace, or attaches to an existing one, with carrier off. The
  /// stack leaves nothing to the device before set_offloads(). Errors: no tun driver, no permission, another program is
  /// attached, the interface of that name is not a TAP of this kind, a kernel without virtio-net headers (before
  /// 2.6.33).
  [[nodiscard]] static Result<TapDevice> attach(const std::string& name, const Kind& kind);
  /// Attaches one more queue to a TAP that attach() has made with the same kind, which has multi_queue. It is inactive.
  [[nodiscard]] static Result<TapDevice> attach_queue(const std::string& name, const Kind& kind);

  /// The device behind a descriptor that another process has attached. Errors: it is no TAP's.
  [[nodiscard]] static Result<TapDevice> adopt(os::UniqueFd descriptor);
  /// Transfers ownership of the descriptor to the caller; the device is empty then.
  [[nodiscard]] os::UniqueFd release() { return std::move(fd_); }

  /// The device keeps a private copy of this many bytes of each frame that it reads, because `to` is write-only.
  static constexpr std::size_t kHeadBytes = frame::kMembershipReportHeadBytes;

  /// Reads the next frame of the host's stack into `to`; the kernel writes all but the head. Returns its length; 0:
  /// none now. Drops and counts a frame longer than `to`, or than max_complete_bytes if it is not to be segmented, and
  /// an unfinished frame that the last set_offloads() does not permit. It then tries the next one.
  std::size_t read_frame(const messaging::FrameMemory& to, std::size_t max_complete_bytes,
                         frame::FrameOffload& offload);
  /// What the kernel and this device can do, as probe_offloads() found it. attach() probes; after adopt() the caller
  /// does so, if it is the one that reads the frames.
  [[nodiscard]] const NicOffloads& offloads() const { return possible_; }
  /// Asks the kernel, and switches all offloads off.
  void probe_offloads();
  /// See VirtualNic. Frames that wait in the device keep what they are.
  void set_offloads(const NicOffloads& permitted);
  /// The first bytes of the last frame read, at most kHeadBytes. Valid until the next read.
  [[nodiscard]] std::span<const std::byte> head() const { return std::span(head_).first(head_bytes_); }
  /// Of a multi-queue TAP: whether the kernel sends frames in this queue. The frames that wait in it are dropped when
  /// it becomes inactive.
  void set_active(bool active);
  /// Of a multi-queue TAP: the kernel asks this program for the queue of each frame (load_tap_steering()). False: it
  /// can't (before Linux 4.16).
  [[nodiscard]] bool steer(int program);
  /// What set_offloads() of another queue of this TAP has permitted.
  void follow_offloads(const NicOffloads& permitted) { permitted_ = permitted; }
  /// False: the kernel refused the frame, most often because the interface is down.
  bool write_frame(const messaging::ReceivedFrame& frame);

  /// Whether the interface outlives this descriptor.
  [[nodiscard]] bool set_persistent(bool persistent);
  void set_carrier(bool carrier);
  [[nodiscard]] bool set_mac(const MacAddress& mac);
  [[nodiscard]] MacAddress mac() const;
  /// The interface's present name, which an administrator may have changed. Empty after the interface was deleted.
  [[nodiscard]] std::string name() const;
  /// The interface's present network namespace. Empty if the kernel can't report it or the driver lacks the rights.
  [[nodiscard]] os::UniqueFd network_namespace() const;

  [[nodiscard]] int descriptor() const { return fd_.get(); }
  [[nodiscard]] std::uint64_t oversized() const { return oversized_; }
  /// Frames that the stack left unfinished before set_offloads() no longer permitted that, and that were dropped.
  [[nodiscard]] std::uint64_t unfinished() const { return unfinished_; }

 private:
  [[nodiscard]] static Result<os::UniqueFd> open_interface(const std::string& name, const Kind& kind);
  [[nodiscard]] bool switch_offloads(const NicOffloads& to);
  [[nodiscard]] bool permits(const frame::FrameOffload& offload) const;

  explicit TapDevice(os::UniqueFd fd) : fd_(std::move(fd)) {}
  os::UniqueFd fd_;
  std::array<std::byte, kHeadBytes> head_{};
  std::size_t head_bytes_ = 0;
  bool has_header_ = false;  ///< each frame has a virtio-net header
  NicOffloads possible_;
  NicOffloads permitted_;
  std::uint64_t oversized_ = 0;
  std::uint64_t unfinished_ = 0;
};

}  // namespace splitnic::host
