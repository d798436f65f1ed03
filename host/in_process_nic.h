#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "common/mac_address.h"
#include "common/os/unique_fd.h"
#include "common/time.h"
#include "host/frame_ring.h"
#include "host/virtual_nic.h"

namespace splitnic::host {

struct InProcessNicOptions {
  MacAddress mac{};                 ///< zero: the I/O unit chooses
  std::uint32_t mtu = 1500;         ///< layer-3 bytes
  std::size_t frames = 256;         ///< maximum waiting frames in each direction
  std::size_t frame_bytes = 65600;  ///< maximum frame length: 64 KiB with header and tags
};

/// A virtual NIC without an operating-system interface. The program that links the host driver is its network stack, as
/// appliance firmware is. The NIC has two sides, each for one thread: the application's and, behind VirtualNic, the
/// driver's.
class InProcessNic final : public VirtualNic {
 public:
  explicit InProcessNic(const InProcessNicOptions& options = {});

  // --- The application's side. ---

  /// Sends a copy of one frame, destination address first, without FCS. False: the NIC is down, the ring is full, or
  /// the frame is shorter than 14 bytes or longer than the MTU with header and tags.
  bool send(std::span<const std::byte> frame);
  /// Copies the oldest waiting frame to `to`; returns its length, 0 when there is none. Drops a frame longer than `to`.
  std::size_t receive(std::span<std::byte> to);
  /// Readable when a frame has arrived after receive() returned 0.
  [[nodiscard]] int receive_descriptor() const { return to_application_.descriptor(); }

  void set_up(bool up);
  void set_address(const MacAddress& mac);
  /// False: `mtu` is larger than the I/O unit's MTU, or below 68.
  [[nodiscard]] bool set_mtu(std::uint32_t mtu);
  void set_promiscuous(bool on);
  void set_all_multicast(bool on);
  /// Replaces the list of joined groups. Until the first call, the NIC receives all multicast.
  void set_multicast(std::vector<MacAddress> groups);

  [[nodiscard]] bool carrier() const { return carrier_.load(std::memory_order_relaxed); }
  [[nodiscard]] MacAddress address() const;
  [[nodiscard]] std::uint32_t mtu() const;
  /// Frames that this NIC dropped: too long for the receiver, or arrived while the ring was full or the NIC was down.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // --- The driver's side. ---

  std::size_t read_frame(std::span<std::byte> to) override;
  bool write_frame(const messaging::ReceivedFrame& frame) override;
  void set_carrier(bool carrier) override { carrier_.store(carrier, std::memory_order_relaxed); }
  void set_max_mtu(std::uint32_t max_mtu) override;
  void set_mac(const MacAddress& mac) override;
  [[nodiscard]] MacAddress preferred_mac() const override;
  const NicSettings& settings(Time now) override;
  void collect_descriptors(std::vector<int>& out) const override;

 private:
  template <class Change>
  void change(Change&& change);
  void count_drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }

  FrameRing to_driver_;
  FrameRing to_application_;
  std::atomic<bool> carrier_{false};
  std::atomic<bool> up_{false};
  std::atomic<std::uint32_t> longest_frame_;  ///< the MTU with header and two tags
  std::atomic<std::uint64_t> dropped_{0};

  mutable std::mutex mutex_;  ///< guards the next five members: configuration, never the per-frame path
  NicSettings wanted_;
  std::uint32_t max_mtu_ = 65535;
  bool address_set_ = false;                  ///< the application set it; the I/O unit's choice no longer applies
  os::UniqueFd changed_;                      ///< an eventfd, signalled when wanted_ is newer than the driver's copy
  std::atomic<std::uint64_t> generation_{1};  ///< of wanted_; written under the mutex, read without
  NicSettings seen_;                          ///< the driver's copy
  std::uint64_t seen_generation_ = 0;
};

}  // namespace splitnic::host
